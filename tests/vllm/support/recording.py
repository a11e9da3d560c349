"""What an engine's adapter planned and saw, step by step."""

from __future__ import annotations

from typing import Any


def record_steps(engine: Any) -> list[tuple[Any, Any, Any]]:
    """Record context, plan and outcome of every step the engine runs from here on.

    Steps that scheduled nothing are dropped: they have no depth and no outcome.
    """
    controller = engine.controller
    driver = engine.scheduler.adaptive_spec
    steps: list[tuple[Any, Any, Any]] = []
    plain_plan = type(controller).plan.__get__(controller)
    plain_observe = type(controller).observe.__get__(controller)
    plain_scheduled = type(driver).scheduled.__get__(driver)
    planned: list[tuple[Any, Any]] = []

    def plan(context: Any) -> Any:
        made = plain_plan(context)
        planned[:] = [(context, made)]
        return made

    def scheduled(output: Any) -> None:
        plain_scheduled(output)
        if planned and output.total_num_scheduled_tokens:
            steps.append((*planned.pop(), None))

    def observe(outcome: Any) -> None:
        plain_observe(outcome)
        for index in range(len(steps) - 1, -1, -1):
            if steps[index][0].step == outcome.step:
                steps[index] = (*steps[index][:2], outcome)
                break

    controller.plan, controller.observe, driver.scheduled = plan, observe, scheduled
    return steps


def stop_recording(engine: Any) -> None:
    """Undo `record_steps`."""
    for owner, names in (
        (engine.controller, ("plan", "observe")),
        (engine.scheduler.adaptive_spec, ("scheduled",)),
    ):
        for name in names:
            vars(owner).pop(name, None)
