"""Fixtures for the SGLang adapter: bench models, and engines in processes of their own.

A start takes 15 to 50 s, so each configuration is started once and many cases run in it; only one
is alive at a time.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine_processes import OneAtATime, skip_without

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for folder in (HERE / "support", ROOT):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without("sglang", items, HERE)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the bench models; ADAPTIVE_SPEC_SGLANG_MODELS names a folder to keep them in."""
    from sglang_models import build_models

    given = os.environ.get("ADAPTIVE_SPEC_SGLANG_MODELS")
    return build_models(Path(given) if given else tmp_path_factory.mktemp("models"))


class EngineShelf(OneAtATime):
    """Holds at most one engine: starting the next closes the last."""

    def __init__(self, models: dict[str, Path], folder: Path) -> None:
        super().__init__()
        self._models = models
        self._folder = folder
        self._count = 0

    def get(
        self,
        algorithm: str | None = None,
        *,
        adaptive: dict[str, Any] | None = None,
        variables: dict[str, str] | None = None,
        without: tuple[str, ...] = (),
        **options: Any,
    ) -> Any:
        """The engine with these options: the one at hand, or a new one.

        `adaptive` is a configuration of adaptive-spec; `without` names engine options to drop.
        """
        key = repr((algorithm, adaptive, variables, without, sorted(options.items())))
        return self.hold(
            key, lambda: self._start(algorithm, adaptive, variables or {}, without, options)
        )

    def _start(
        self,
        algorithm: str | None,
        adaptive: dict[str, Any] | None,
        variables: dict[str, str],
        without: tuple[str, ...],
        options: dict[str, Any],
    ) -> Any:
        from serving import Engine, arguments, environment, write_config

        self._count += 1
        folder = self._folder / f"engine-{self._count}"
        folder.mkdir()
        record = folder / "record.jsonl"
        config = None
        if adaptive is not None:
            status = {"status_file": str(folder / "status.json")}
            config = write_config(folder, **(status | adaptive))
        asked = arguments(self._models, folder, algorithm) | options
        for name in without:
            del asked[name]
        made = environment(config=config, **({"RECORD": str(record)} | variables))
        engine: Any = Engine(asked, made, folder)
        engine.record_file, engine.status_file = record, folder / "status.json"
        return engine


@pytest.fixture(scope="session")
def shelf(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    shelf = EngineShelf(models, tmp_path_factory.mktemp("engines"))
    yield shelf
    shelf.clear()


@pytest.fixture(scope="session")
def without_speculation(
    request: pytest.FixtureRequest, shelf: EngineShelf
) -> tuple[dict[str, Any], Any]:
    """Greedy answers by name of the request, and sampled completions if a test compares them."""
    from samples import sample
    from serving import PLAIN
    from traffic import SCENARIOS

    engine = shelf.get(**PLAIN)
    answers: dict[str, Any] = {}
    for make in SCENARIOS.values():
        answers |= engine.run(make())
    items = request.session.items
    compared = any("unspeculated" in getattr(item, "fixturenames", ()) for item in items)
    return answers, sample(engine) if compared else None


@pytest.fixture(scope="session")
def cycle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Another K at every step, traced: one engine of an algorithm serves all tests that use it."""
    from serving import PATIENT

    return {
        "policy": "recorded_policies:CyclePolicy",
        "trace": {"directory": str(tmp_path_factory.mktemp("trace"))},
        "memory_guard": False,
        "fail_open": PATIENT,
    }


@pytest.fixture(scope="session")
def reference(without_speculation: tuple[dict[str, Any], Any]) -> dict[str, Any]:
    """Greedy answers without speculation, by name of the request."""
    return without_speculation[0]


@pytest.fixture(scope="session")
def unspeculated(without_speculation: tuple[dict[str, Any], Any]) -> Any:
    """Sampled completions without speculation; see `samples`."""
    return without_speculation[1]
