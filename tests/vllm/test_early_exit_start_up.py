"""Where the draft loop is ended early, where it is left alone, and what the start line says."""

from __future__ import annotations

from typing import Any

import pytest
from stopping_policies import RANDOM

from adaptive_spec.adapters.vllm.draft_signal.early_exit import of_engine
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS


@pytest.mark.engine
def test_start_line_says_whether_the_loop_ends_early_or_why_not(shelf: Any, models: Any) -> None:
    from engines import prepare_environment, speculative_config

    prepare_environment()
    from vllm.engine.arg_utils import EngineArgs

    from adaptive_spec.adapters.vllm.capability import detect

    def found(method: str = "draft_model", **changes: Any) -> str:
        arguments = EngineArgs(
            model=str(models["target"]),
            max_model_len=256,
            enforce_eager=changes.pop("enforce_eager", True),
            speculative_config=speculative_config(models, method),
        )
        config = arguments.create_engine_config()
        config.parallel_config.worker_cls = WORKERS["vllm.v1.worker.cpu_worker.CPUWorker"]
        for name, value in changes.items():
            part, _, field = name.partition("__")
            setattr(getattr(config, part), field, value)
        support = detect(config)
        assert support.capability is not None
        assert support.capability.stops_drafting == (not support.early_exit)
        return support.early_exit

    assert found() == ""
    assert found("eagle") == ""
    assert "ngram" in found("ngram")
    assert "asynchronous" in found(scheduler_config__async_scheduling=True)
    assert "another process" in found(parallel_config__distributed_executor_backend="mp")
    assert "wait for the device" in found(device_config__device_type="cuda")
    assert "enforce_eager" in found(model_config__enforce_eager=False)
    worker = "vllm.v1.worker.cpu_worker.CPUWorker"
    assert "confidence" in found(parallel_config__worker_cls=worker)
    assert "not both free" in found(speculative_config__parallel_drafting=True)


@pytest.mark.engine
def test_without_confidence_or_not_enabled_no_loop_is_touched(shelf: Any) -> None:
    for options in ({}, {"adaptive": RANDOM | {"confidence": False}}):
        engine = shelf.get("draft_model", **options)
        drafter = engine.runner.drafter
        assert not {"propose", "_sample_draft_tokens"} & vars(drafter).keys()
        assert of_engine(engine.scheduler.vllm_config.instance_id) is None
        if options:
            assert not engine.controller.capability.stops_drafting


@pytest.mark.engine
def test_nothing_is_left_when_the_engine_is_gone(shelf: Any) -> None:
    engine = shelf.get("draft_model", adaptive=RANDOM)
    name = engine.scheduler.vllm_config.instance_id
    assert of_engine(name) is engine.scheduler.adaptive_spec._exit
    shelf.clear()
    assert of_engine(name) is None
