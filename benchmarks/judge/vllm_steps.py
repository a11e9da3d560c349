"""Count what a step of vLLM runs."""

from __future__ import annotations

from typing import Any

from .device import Work


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
