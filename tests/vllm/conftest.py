"""Fixtures for the vLLM adapter: bench models, engines in this process, two servers.

The first engine takes about 15 s, later ones half a second. Each is built once per configuration,
many cases run in it, and only one is alive at a time.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine_processes import OneAtATime, skip_without

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SUPPORT = HERE / "support"
for folder in (SUPPORT, ROOT, ROOT / "scripts", ROOT / "tests" / "packaging"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_without("vllm", items, HERE)
    if importlib.util.find_spec("vllm"):
        import processors

        processors.pretend_as_told()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of the bench models; ADAPTIVE_SPEC_MODELS names a folder to keep them in."""
    from benchmarks.bench_pair.build import build

    given = os.environ.get("ADAPTIVE_SPEC_MODELS")
    folder = Path(given) if given else tmp_path_factory.mktemp("models")
    return build(folder, ("target", "draft", "eagle", "eagle3", "mtp"))


class EngineShelf(OneAtATime):
    """Holds at most one engine: building the next closes the last."""

    def __init__(self, models: dict[str, Path]) -> None:
        super().__init__()
        self._models = models

    def get(self, method: str | None = None, **options: Any) -> Any:
        """The engine with these options: the one at hand, or a new one."""
        from engines import Engine, prepare_environment

        prepare_environment()
        from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

        apply()
        key = repr((method, sorted(options.items())))
        return self.hold(key, lambda: Engine(self._models, method, **options))


@pytest.fixture(scope="session")
def shelf(models: dict[str, Path]) -> Iterator[EngineShelf]:
    shelf = EngineShelf(models)
    yield shelf
    shelf.clear()


@pytest.fixture(scope="session")
def v2(models: dict[str, Path]) -> Iterator[Any]:
    """Engines with model runner V2, one at a time."""
    from v2_engines import V2Engines

    engines = V2Engines(models)
    yield engines
    engines.close()


@pytest.fixture(scope="session")
def reference(shelf: EngineShelf, pytestconfig: pytest.Config) -> dict[str, dict[str, Any]]:
    """Answers of every scenario without speculation; on other versions, of the one that runs."""
    from scenarios import SCENARIOS

    names = ["crowded"] if "every_version" in pytestconfig.option.markexpr else list(SCENARIOS)
    engine = shelf.get()
    return {name: engine.run(SCENARIOS[name]()) for name in names}


@pytest.fixture(scope="session")
def unspeculated(shelf: EngineShelf) -> dict[str, tuple[int, ...]]:
    """Greedy tokens by prompt, without speculation, for what is asked over HTTP."""
    from engines import Job
    from scenarios import prompts

    texts = prompts(16, 41)
    jobs = [Job(str(place), text, 0, {"max_tokens": 48}) for place, text in enumerate(texts)]
    answers = shelf.get().run(jobs)
    shelf.clear()
    return {text: answers[str(place)].tokens[0] for place, text in enumerate(texts)}


@pytest.fixture(scope="session")
def collector() -> Iterator[Any]:
    """What receives the spans of `server`; None where vLLM comes without OpenTelemetry."""
    if importlib.util.find_spec("opentelemetry") is None:
        yield None
        return
    from collector import collecting

    with collecting() as collector:
        yield collector


@pytest.fixture(scope="session")
def server(
    models: dict[str, Path],
    unspeculated: dict[str, tuple[int, ...]],
    collector: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Any]:
    """One `vllm serve` for all that is asked over HTTP; requests are answered with random K."""
    del unspeculated  # the engine for it must be gone before the server takes its memory
    from server import serving

    adaptive = {
        "policy": "switchable_policies:RandomPolicy",
        "fail_open": {"max_decision_ms": 60_000},
    }
    traced = () if collector is None else ("--otlp-traces-endpoint", collector.url)
    with serving(models, tmp_path_factory.mktemp("server"), adaptive, *traced) as server:
        yield server


@pytest.fixture
def switched(server: Any) -> Iterator[Any]:
    """The server, put back afterwards."""
    from server import AT_START

    yield server
    server.ask("/v1/adaptive_spec", AT_START)


@pytest.fixture
def gpu(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Any:
    """vLLM's configurations, graphs and workers as on a GPU."""
    from gpu import Gpu

    return Gpu(models, monkeypatch)


@pytest.fixture
def said() -> Iterator[Callable[[], list[str]]]:
    """What our logger said so far; vLLM's loggers don't propagate."""
    import logging

    logger = logging.getLogger("vllm.adaptive_spec")
    level = logger.level
    lines: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return True

    # A filter, since vLLM's first configuration takes handlers away.
    logger.addFilter(note)
    logger.setLevel(logging.INFO)
    yield lambda: lines
    logger.setLevel(level)
    logger.removeFilter(note)
