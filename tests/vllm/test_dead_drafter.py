"""A drafter that is of no use any more is switched off by `goodput` itself, and on again later."""

from collections.abc import Iterator
from typing import Any

import pytest
from engines import PATIENT, Job
from scenarios import prompts

STEPS = 6000
"""In which it must have come back; some seconds of probing, at a few milliseconds a step."""


def jobs(turn: int) -> list[Job]:
    return [
        Job(f"{turn}-{place}", text, 0, {"max_tokens": 48})
        for place, text in enumerate(prompts(4, turn))
    ]


@pytest.fixture
def weights() -> Iterator[list[tuple[Any, Any]]]:
    """Parameters that a test has changed, and their own values, put back at its end."""
    import torch

    changed: list[tuple[Any, Any]] = []
    yield changed
    with torch.no_grad():
        for parameter, own in changed:
            parameter.copy_(own)


@pytest.mark.engine
@pytest.mark.long  # it waits for probes, which go by the clock
def test_goodput_leaves_a_useless_drafter_out_and_tries_it_again(
    shelf: Any, weights: list[tuple[Any, Any]]
) -> None:
    import torch

    adaptive = {"policy": "goodput", "fail_open": PATIENT}
    engine = shelf.get()
    expected = {turn: engine.run(jobs(turn)) for turn in range(4)}

    engine = shelf.get("draft_model", adaptive=adaptive)
    modes = engine.controller.counters.modes
    engine.run(jobs(0))
    assert modes["on"] > 0
    with torch.no_grad():
        for parameter in engine.runner.drafter.model.parameters():
            weights.append((parameter, parameter.clone()))
            parameter.normal_(std=0.02)

    cold = wait_for(engine, "off_cold", expected, at_least=100)
    assert cold, f"never cold: {dict(modes)}"
    passes = engine.drafter_passes
    before = modes["off_cold"]
    engine.run(jobs(0))
    assert modes["off_cold"] > before
    assert engine.drafter_passes - passes <= 48, "the drafter runs on"

    with torch.no_grad():
        for parameter, own in weights:
            parameter.copy_(own)
    on = modes["on"]
    assert wait_for(engine, "on", expected, at_least=200), f"stayed off: {dict(modes)}"
    assert modes["on"] > on
    assert engine.controller.counters.failures == {}


def wait_for(engine: Any, mode: str, expected: Any, at_least: int) -> bool:
    """Serve until so many steps more were in this mode; every answer is compared."""
    modes = engine.controller.counters.modes
    goal, most, turn = modes[mode] + at_least, engine.steps + STEPS, 0
    while modes[mode] < goal and engine.steps < most:
        turn += 1
        wanted = expected[turn % 4]
        for name, answer in engine.run(jobs(turn % 4)).items():
            assert answer.tokens == wanted[name].tokens, name
    return bool(modes[mode] >= goal)
