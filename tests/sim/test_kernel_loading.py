"""Only policies that use kernels load them."""

import subprocess
import sys

import pytest

_REPLAY = """
import sys
from adaptive_spec.commands.cli import main
sys.argv = ["adaptive-spec", "replay", "--tokens", "1000", "--acceptance", "model:good"]
sys.argv += ["--oracles", "never"]
for policy in sys.stdin.read().split():
    sys.argv += ["--policy", policy]
try:
    main()
finally:
    print("numba" if "numba" in sys.modules else "no numba")
"""


@pytest.mark.parametrize(
    ("policies", "expected"),
    [("off static:k=3 sglang_ema", "no numba"), ("off goodput", "numba")],
)
def test_numba_is_imported_iff_a_policy_uses_kernels(policies: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _REPLAY], input=policies, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-1:] == [expected], done.stderr


_TYPO = """
import sys
from adaptive_spec.commands.cli import main
sys.argv = ["adaptive-spec", "replay", "--policy", "gooodput"]
try:
    main()
finally:
    heavy = {"numba", "polars", "adaptive_spec.sim.scenario", "adaptive_spec.sim.engine.loop"}
    print(*sorted(heavy & set(sys.modules)))
"""


def test_an_unknown_policy_is_reported_before_anything_heavy_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TYPO], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert "unknown policy 'gooodput'" in done.stderr
    assert done.stdout.strip() == ""
