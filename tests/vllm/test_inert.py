"""Installed but not enabled, or only watching: vLLM behaves exactly as without us."""

from typing import Any

import pytest
from engines import PATIENT
from scenarios import crowded

pytestmark = [pytest.mark.engine, pytest.mark.every_version]


def scheduling_of(engine: Any) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """What the scheduler decided at every step, and the answers."""
    steps: list[tuple[Any, ...]] = []
    original = engine.scheduler.schedule

    def schedule(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        steps.append(
            (
                tuple(
                    (name.rpartition("-")[0], count)
                    for name, count in output.num_scheduled_tokens.items()
                ),
                tuple(len(ids) for ids in output.scheduled_spec_decode_tokens.values()),
                output.num_spec_tokens_to_schedule,
            )
        )
        return output

    engine.scheduler.schedule = schedule
    answers = engine.run(crowded())
    return steps, {name: answer.tokens for name, answer in answers.items()}


@pytest.mark.parametrize(
    "asynchronous",
    [pytest.param(False, id="sync", marks=pytest.mark.long), pytest.param(True, id="async")],
)
def test_shadow_and_off_schedule_as_stock(shelf: Any, asynchronous: bool) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    plain = AsyncScheduler if asynchronous else Scheduler
    stock = shelf.get("draft_model", asynchronous=asynchronous)
    assert type(stock.scheduler) is plain
    expected = scheduling_of(stock)

    watching = shelf.get(
        "draft_model",
        asynchronous=asynchronous,
        adaptive={
            "mode": "shadow",
            "policy": "static",
            "options": {"k": 1},
            "fail_open": PATIENT,  # on a busy machine a decision may be late
        },
    )
    assert type(watching.scheduler) is not plain
    assert scheduling_of(watching) == expected
    status = watching.controller.status()
    assert status["steps_by_mode"].keys() == {"shadow"}
    assert max(map(int, status["requests_by_k"])) == 4

    if asynchronous:
        return  # mode off goes no further than the gate, which knows no scheduling
    off = shelf.get("draft_model", asynchronous=asynchronous, adaptive={"mode": "off"})
    assert type(off.scheduler) is plain
    assert scheduling_of(off) == expected


def test_not_enabled_no_class_of_vllm_is_changed(shelf: Any) -> None:
    """Only the configuration gate is wrapped; every other function is vLLM's own."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    shelf.get("draft_model", asynchronous=False)
    for cls in (Scheduler, AsyncScheduler, EngineCore, SpecDecodeBaseProposer, GPUModelRunner):
        for name, value in vars(cls).items():
            module = getattr(value, "__module__", "") or ""
            assert not module.startswith("adaptive_spec"), f"{cls.__name__}.{name}"
            wrapped = getattr(value, "__wrapped__", None)
            assert "adaptive_spec" not in getattr(wrapped, "__module__", ""), name
    gate = EngineArgs.create_engine_config
    assert gate.__wrapped__.__module__ == "vllm.engine.arg_utils"
    ours = [
        name
        for name, value in vars(EngineArgs).items()
        if getattr(getattr(value, "__globals__", {}), "get", lambda _: None)("__name__")
        == "adaptive_spec.adapters.vllm.plugin"
    ]
    assert ours == ["create_engine_config"]
