"""A kernel runs in numpy until it is loaded, and wherever numba is missing or fails."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policies.kernels import kernel, kernel_in_use, load_kernels, select_kernel
from adaptive_spec.policies.kernels.kernel import Kernel
from adaptive_spec.step import Capability, Level
from tests import steps as made

_DECLARED = """
import numpy as np
from adaptive_spec.errors import ConfigError
from adaptive_spec.policies.kernels import kernel, kernel_in_use, load_kernels, select_kernel

def _loop(values, limit):
    for i in range(len(values)):
        values[i] = 2.0 * values[i] if i < limit[i] else -1.0

@kernel("void(float64[:], int64[:])", _loop)
def double(values, limit):
    values[:] = np.where(np.arange(len(values)) < limit, 2.0 * values, -1.0)
"""


def run(script: str, **environment: str) -> str:
    """Output of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _DECLARED + script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def without_numba(folder: Path) -> dict[str, str]:
    """Environment of a machine on which numba is installed and broken."""
    (folder / "numba.py").write_text("raise ImportError('numba needs another numpy')\n")
    return {"PYTHONPATH": os.pathsep.join((str(folder), *sys.path))}


def test_a_declared_kernel_runs_in_numpy_and_keeps_its_name_and_docstring() -> None:
    def loop(values: np.ndarray) -> None:
        raise AssertionError("only to be compiled")

    @kernel("void(float64[:])", loop)
    def negate(values: np.ndarray) -> None:
        """Negate in place."""
        np.negative(values, out=values)

    values = np.array([1.0])
    negate(values)
    assert values.tolist() == [-1.0]
    assert negate.__doc__ == "Negate in place."


def test_without_a_selection_loading_changes_nothing() -> None:
    select_kernel("numpy")
    load_kernels()
    assert kernel_in_use() == "numpy"


@pytest.mark.usefixtures("needs_numba")
def test_declaring_and_selecting_do_not_import_numba_and_loading_does() -> None:
    script = """
import sys
select_kernel("numba")
values = np.ones(2)
double(values, np.array([1, 0]))
print("numba" in sys.modules, kernel_in_use(), values.tolist())
load_kernels()
double(values, np.array([1, 0], dtype=np.int32))
print("numba" in sys.modules, kernel_in_use(), values.tolist())
select_kernel("numpy")
print(kernel_in_use())
"""
    assert run(script).splitlines() == [
        "False numpy [2.0, -1.0]",
        "True numba [4.0, -1.0]",
        "numpy",
    ]


def test_automatic_selection_falls_back_to_numpy_with_one_line(tmp_path: Path) -> None:
    script = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
select_kernel("auto")
load_kernels()
print(kernel_in_use())
"""
    found = run(script, **without_numba(tmp_path)).splitlines()
    assert "numba needs another numpy" in found[0]
    assert found[1:] == ["numpy"]


def test_numba_that_was_asked_for_and_fails_is_an_error(tmp_path: Path) -> None:
    script = """
select_kernel("numba")
try:
    load_kernels()
except ConfigError as error:
    print(error)
"""
    assert "numba needs another numpy" in run(script, **without_numba(tmp_path))


KMAX = 4


@pytest.mark.usefixtures("needs_numba")
@pytest.mark.parametrize("level", list(Level))
def test_no_step_of_goodput_makes_a_kernel_copy_its_arguments(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Numba refuses read-only arrays where a signature says writable ones, and the controller makes
    # the limits of a plan read-only. The refusal, the copies and the second call took 190 us.
    compiled, refused = Kernel.compile, []

    def watched(kernel: Kernel[Any, Any]) -> Any:
        loop = compiled(kernel)

        def run(*arguments: Any) -> Any:
            try:
                return loop(*arguments)
            except TypeError:
                refused.append(kernel.__name__)
                raise

        return run

    monkeypatch.setattr(Kernel, "compile", watched)
    select_kernel("numba")
    try:
        load_kernels()
        drive(Controller(GoodputPolicy(GoodputOptions()), capability(level), Config()))
    finally:
        select_kernel("numpy")
    assert not refused


def capability(level: Level) -> Capability:
    """An engine whose graphs are captured for multiples of 8 tokens."""
    return Capability(level=level, max_draft_tokens=KMAX, token_buckets=tuple(range(8, 65, 8)))


def drive(controller: Controller, batch: int = 8, steps: int = 60) -> None:
    """Run steps whose requests accept half of their drafts and report a confidence."""
    random = np.random.default_rng(0)
    names = [f"r{i}" for i in range(batch)]
    slots = np.array([controller.slots.assign(name) for name in names])
    depth = KMAX
    for step in range(steps):
        context = made.context(
            capability=controller.capability,
            step=step,
            request_ids=names,
            slots=slots,
            context_tokens=100 + step,
            draft_available=depth,
            confidence=random.random((batch, KMAX)),
            now=1.0 + 0.01 * step,
        )
        plan = controller.plan(context)
        accepted = np.minimum(random.geometric(0.5, batch) - 1, plan.verify)
        depth = KMAX if controller.capability.level is Level.VERIFY else plan.draft_depth
        controller.observe(
            made.outcome(
                context,
                plan.verify,
                accepted,
                draft_depth=depth,
                seconds=0.01 + 1e-4 * float(plan.verify.sum()),
                now=context.now + 0.01,
            )
        )
    assert not controller.counters.failures
