"""The stand-in, imported afresh for each test, with the hook in front of its import."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
STAND_IN = HERE / "stand_in"

sys.path[:0] = [str(HERE), str(HERE / "support")]


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets TLLM_ADAPTIVE_SPEC to a configuration."""

    def switch(**config: Any) -> None:
        # Machines that run tests are slow at times: no fault of a policy.
        fixed = {"fail_open": {"max_decision_ms": 1e6}}
        monkeypatch.setenv("TLLM_ADAPTIVE_SPEC", json.dumps({**fixed, **config}))

    monkeypatch.delenv("TLLM_ADAPTIVE_SPEC_LADDER", raising=False)
    monkeypatch.delenv("ADAPTIVE_SPEC_CONFIG", raising=False)
    return switch


@pytest.fixture
def import_stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Imports the stand-in, or another tree, as an engine process does: hook first."""
    from harness import package

    from adaptive_spec.adapters.tensorrt_llm import patches

    def forget() -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] == "tensorrt_llm" or name.endswith("host_drafter"):
                del sys.modules[name]
        patches._require_supported.cache_clear()

    def load(tree: Path = STAND_IN) -> Any:
        monkeypatch.syspath_prepend(str(tree))
        return package.load()

    finders = list(sys.meta_path)
    forget()
    yield load
    forget()
    sys.meta_path[:] = finders


@pytest.fixture
def started(
    switched_on: Callable[..., None], import_stand_in: Callable[..., Any]
) -> Callable[..., Any]:
    """Switches on with a configuration, then imports the stand-in, or another tree."""

    def start(tree: Path = STAND_IN, **config: Any) -> Any:
        switched_on(**config)
        return import_stand_in(tree)

    return start
