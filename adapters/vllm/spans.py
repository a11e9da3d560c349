"""Attributes of speculation on vLLM's own span of a request, where tracing is on.

vLLM makes the span `llm_request` in the API server when a request ends. Its scheduler can count
each request's verified and accepted drafts (`per_request_spec_decode_metrics`) and send them along
with the last output; the gate turns that on where `--otlp-traces-endpoint` is given. Unless the
operator has turned it on, too, the counts stay out of the responses.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

PREFIX = "adaptive_spec."
_LOG = logging.getLogger("vllm.adaptive_spec")
_MARK = "_adaptive_spec_spans"


def annotate_spans(vllm_config: Any) -> None:
    """Have the counts made and put on the spans of this process. Never raises."""
    observability, parallel = vllm_config.observability_config, vllm_config.parallel_config
    if getattr(observability, "otlp_traces_endpoint", None) is None:
        return
    # Other API servers get a finished configuration and no gate: they would show the counts.
    several = getattr(parallel, "_api_process_count", 1) > 1
    hidden = observability.per_request_spec_decode_metrics == "none"
    if several and hidden:
        _LOG.info(
            "adaptive_spec: no attributes on spans: with several API servers they need "
            "--per-request-spec-decode-metrics summary"
        )
        return
    try:
        _wrap(hidden=hidden)
    except Exception as error:
        _LOG.warning("adaptive_spec: no attributes on spans: %s: %s", type(error).__name__, error)
        return
    if hidden:
        observability.per_request_spec_decode_metrics = "summary"


def span_attributes(metrics: Any, output_tokens: int) -> dict[str, float]:
    """Return the attributes of a request that has ended.

    Args:
        metrics: vLLM's RequestSpecDecodeMetrics; None if the request ended without.
        output_tokens: tokens that the request has emitted; the first came out of its prompt.
    """
    if metrics is None:
        return {}
    verified = int(metrics.num_draft_tokens)
    accepted = sum(kept * count for kept, count in enumerate(metrics.histogram))
    steps = max(output_tokens - 1 - accepted, sum(metrics.histogram), 1)
    return {
        f"{PREFIX}verified_tokens": verified,
        f"{PREFIX}accepted_tokens": accepted,
        f"{PREFIX}mean_k": verified / steps,
    }


def _wrap(*, hidden: bool) -> None:
    """Wrap what makes the span, once a process; raises where vLLM differs."""
    from vllm.v1.engine import output_processor as module

    if hidden:
        # Responses show the counts as soon as this attribute has a value.
        module.RequestState.spec_decode_metrics = property(lambda state: None, _forget)
    original, make_span = module.OutputProcessor.do_tracing, module.instrument_manual
    if hasattr(original, _MARK):
        return
    current: dict[str, float] = {}

    @functools.wraps(original)
    def do_tracing(self: Any, engine_core_output: Any, req_state: Any, stats: Any) -> Any:
        current.clear()
        try:
            metrics = engine_core_output.spec_decode_metrics
            current.update(span_attributes(metrics, req_state.stats.num_generation_tokens))
        except Exception as error:  # a span without our attributes is a span
            _LOG.debug("adaptive_spec: span: %s: %s", type(error).__name__, error)
        return original(self, engine_core_output, req_state, stats)

    @functools.wraps(make_span)
    def instrument_manual(*args: Any, **kwargs: Any) -> Any:
        if current:
            kwargs["attributes"] = {**(kwargs.get("attributes") or {}), **current}
            current.clear()
        return make_span(*args, **kwargs)

    setattr(do_tracing, _MARK, True)
    module.OutputProcessor.do_tracing = do_tracing
    module.instrument_manual = instrument_manual


def _forget(state: Any, value: Any) -> None:
    """Set nothing."""
