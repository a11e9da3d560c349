"""On a real engine: what the alarm hears of damage, of forced tokens, and of ordinary requests."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from engines import Engine, Job
from scenarios import prompts

from adaptive_spec.operation import stuck_requests
from adaptive_spec.operation.stuck_requests import Stuck

torch = pytest.importorskip("torch", reason="the stage with vLLM runs these tests")
pytestmark = pytest.mark.engine

ADAPTIVE = {"policy": "static", "options": {"k": 3}}
ORDINARY = 48


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has heard enough after forty requests."""
    monkeypatch.setattr(stuck_requests, "_LEAST_REQUESTS", 40)
    monkeypatch.setattr(stuck_requests, "_REMEMBERED", 480)
    monkeypatch.setattr(stuck_requests, "_EVERY", 8)


def noise(engine: Engine, step: int) -> None:
    """Weights of the drafter that are not its own, from the first step on."""
    if step:
        return
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in engine.runner.drafter.model.parameters():
            weight.normal_(0.0, 0.2, generator=random)


def zeros(engine: Engine, step: int) -> None:
    """Weights that were never read."""
    with torch.no_grad():
        for weight in () if step else engine.runner.drafter.model.parameters():
            weight.zero_()


def damaged_cache(engine: Engine, _: int) -> None:
    """Overwrite the drafter's KV of earlier tokens."""
    layers = engine.core.vllm_config.compilation_config.static_forward_context
    with torch.no_grad():
        for name in engine.runner.drafter._draft_attn_layer_names:
            for cache in layers[name].kv_cache:
                cache.normal_(0.0, 5.0)


def jobs(name: str, count: int, seed: int, **options: Any) -> list[Job]:
    return [
        Job(f"{name}-{n}", text, n, {"max_tokens": 40} | options)
        for n, text in enumerate(prompts(count, seed))
    ]


def events(engine: Engine) -> dict[str, int]:
    found: dict[str, int] = engine.controller.status()["events"]
    return {kind: found.get(kind, 0) for kind in Stuck}


@pytest.mark.parametrize(
    ("method", "damage", "options", "kind"),
    [
        pytest.param("draft_model", noise, {}, Stuck.NONE, id="weights replaced by noise"),
        pytest.param(
            "eagle",
            zeros,
            {},
            Stuck.NONE,
            id="weights of a head that were never read",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "draft_model",
            damaged_cache,
            {},
            Stuck.NONE,
            id="a drafter's KV damaged",
            marks=pytest.mark.long,
        ),
        pytest.param("ngram", None, {"allowed_token_ids": [33]}, Stuck.ALL, id="one token forced"),
    ],
)
def test_a_fault_is_heard_by_its_first_request_and_ordinary_ones_are_not(
    early: None,
    models: Any,
    method: str,
    damage: Callable[[Engine, int], None] | None,
    options: dict[str, Any],
    kind: Stuck,
) -> None:
    engine = Engine(models, method, adaptive=ADAPTIVE, num_gpu_blocks_override=64)
    try:
        engine.run(jobs("ordinary", ORDINARY, 3))
        assert events(engine) == {Stuck.ALL: 0, Stuck.NONE: 0}
        each_step = None if damage is None else functools.partial(damage, engine)
        engine.run(jobs("planted", 2, 5, max_tokens=250, **options), each_step)
        found = engine.controller.status()
        assert found["events"][kind] >= 1
        assert found["stuck_latest"][kind].startswith("planted")
        assert found["fail_opens"] == {}
    finally:
        engine.close()
