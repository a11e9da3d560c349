"""vLLM's scheduler in this process: the work of its steps, its table of K, who decides in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from adaptive_spec.config import SecondSource, Trace
from adaptive_spec.step import Capability

from .arms import Arm, Table
from .clock import Recorder
from .device import Work


def record_steps(scheduler: Any, recorder: Recorder) -> None:
    """Let a recorder see each step's launch and its results, from now on."""
    requests = scheduler.requests
    schedule_as_was, update_as_was = scheduler.schedule, scheduler.update_from_output

    def schedule(*args: Any, **kwargs: Any) -> Any:
        output = schedule_as_was(*args, **kwargs)
        if output.total_num_scheduled_tokens:
            recorder.launched(id(output), work_of(output, requests))
        return output

    def update(output: Any, *args: Any, **kwargs: Any) -> Any:
        work = recorder.arrived(id(output), *args)
        outputs = update_as_was(output, *args, **kwargs)
        if work is not None:
            work.emitted = sum(
                len(one.new_token_ids) for each in outputs.values() for one in each.outputs
            )
        return outputs

    scheduler.schedule, scheduler.update_from_output = schedule, update


def work_of(output: Any, requests: dict[str, Any]) -> Work:
    """Return what a vLLM SchedulerOutput runs, the drafter's passes not counted yet.

    Args:
        output: of the scheduler.
        requests: the scheduler's requests by id.
    """
    cached = output.scheduled_cached_reqs
    computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    drafts = output.scheduled_spec_decode_tokens
    work, verified = Work(), []
    for name, tokens in output.num_scheduled_tokens.items():
        before, prompt = computed[name], requests[name].num_prompt_tokens
        if before >= prompt:
            work.requests += 1
            work.tokens += tokens
            work.context += before
            verified.append(len(drafts.get(name, ())))
        else:
            work.prefill += tokens
            work.prefill_context += tokens * before + tokens * (tokens - 1) // 2
        work.drafting += before + tokens >= prompt
    if verified:
        work.least_k, work.most_k = min(verified), max(verified)
    return work


def use_table(scheduler: Any, table: Table | None, most: int) -> None:
    """Set `num_speculative_tokens_per_batch_size`, as the configuration would have done it.

    Args:
        scheduler: vLLM's.
        table: None: Kmax for every batch size.
        most: requests in a batch.
    """
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    lookup = None
    if table is not None:
        clipped: Table = [(low, min(high, most), k) for low, high, k in table if low <= most]
        lookup = build_dynamic_sd_schedule_lookup(clipped, most, scheduler.num_spec_tokens)
    scheduler.dynamic_sd_lookup = lookup


def let_decide(
    scheduler: Any,
    arm: Arm,
    seen: Callable[[Capability], Capability],
    clock: Callable[[], float],
) -> None:
    """Let an arm decide on K, with everything as at a server's start.

    Args:
        scheduler: with our hooks.
        arm: what decides.
        seen: the capability that the adapter is to find, where it finds a CPU without graphs.
        clock: of our plugin.
    """
    from adaptive_spec.adapters.vllm import hooks
    from adaptive_spec.adapters.vllm.capability import Support, detect

    def detect_device(vllm_config: Any) -> Support:
        found = detect(vllm_config)
        if found.capability is None:
            return found
        return msgspec.structs.replace(found, capability=seen(found.capability))

    names: Any = hooks
    names.detect = detect_device  # other engines of this process have their own
    holder = scheduler.vllm_config.scheduler_config
    mode = "shadow" if arm.shadow_share else "on" if arm.policy else "off"
    config = msgspec.structs.replace(
        getattr(holder, hooks.ATTRIBUTE),
        mode=mode,
        shadow_share=arm.shadow_share,
        audit=arm.audit,
        trace=Trace(directory=arm.trace),
        policy=arm.policy or "goodput",
        options=dict(arm.options),
        confidence=arm.confidence,
        second_source=SecondSource() if arm.second_source else None,
        state_directory=arm.state or None,
        state=arm.fleet or None,
        seed=arm.seed,
    )
    setattr(holder, hooks.ATTRIBUTE, config)
    scheduler.adaptive_spec.close()
    scheduler.adaptive_spec = hooks.attach(scheduler)
    scheduler.adaptive_spec.clock = clock
