"""What an engine's adapter planned and saw, step by step."""

from collections.abc import Iterator
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


def labels(record: list[tuple[Any, Any, Any]]) -> dict[str, list[tuple[int, int]]]:
    """(verified, accepted) of each request's steps; those without drafts are left out."""
    found: dict[str, list[tuple[int, int]]] = {}
    for context, _, outcome in record:
        for name, _, verified, accepted in _rows(context, outcome):
            if verified:
                found.setdefault(name, []).append((verified, accepted))
    return found


def rate(record: list[tuple[Any, Any, Any]], begins: str) -> float:
    """Accepted over verified drafts of the requests whose names begin so."""
    by_name = labels(record)
    pairs = [pair for name in by_name if name.startswith(begins) for pair in by_name[name]]
    assert pairs, "no draft was verified"
    return sum(accepted for _, accepted in pairs) / sum(verified for verified, _ in pairs)


def accepted_by_place(record: list[tuple[Any, Any, Any]], k: int) -> dict[tuple[str, int], int]:
    """(request, tokens before) of each step with K drafts -> accepted drafts."""
    return {
        (name, before): accepted
        for context, _, outcome in record
        for name, before, verified, accepted in _rows(context, outcome)
        if verified == k
    }


def _rows(context: Any, outcome: Any) -> Iterator[tuple[str, int, int, int]]:
    """Name, tokens before, verified and accepted drafts of each request of a step."""
    if outcome is None:
        return
    rows = {slot: row for row, slot in enumerate(context.slots.tolist())}
    columns = (outcome.slots, outcome.verified, outcome.accepted)
    for slot, verified, accepted in zip(*(c.tolist() for c in columns), strict=True):
        row = rows[slot]
        name = context.request_ids[row].rsplit("-", 1)[0]  # vLLM adds random letters
        yield name, int(context.context_tokens[row]), verified, accepted


def count_reused(engine: Any) -> list[int]:
    """Prompt tokens that each new request finds in the cache, as they come."""
    reused: list[int] = []
    cache = engine.scheduler.kv_cache_manager
    look_up = cache.get_computed_blocks

    def counted(request: Any, *more: Any, **others: Any) -> Any:
        found = look_up(request, *more, **others)
        reused.append(found[1])
        return found

    cache.get_computed_blocks = counted
    return reused
