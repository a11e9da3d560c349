"""Attributes on vLLM's own span, made by vLLM's own output processor; no engine runs here."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="the stage with vLLM runs these tests")

from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason, output_processor
from vllm.v1.engine.output_processor import OutputProcessor, RequestState
from vllm.v1.metrics import stats as vllm_stats
from vllm.v1.metrics.stats import IterationStats

from adaptive_spec.adapters.vllm.spans import annotate_spans, span_attributes

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not hasattr(vllm_stats, "RequestSpecDecodeMetrics"),
        reason="this vLLM counts no drafts per request",
    ),
]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Attributes of each span; vLLM is put back afterwards."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(
        output_processor, "instrument_manual", lambda **span: made.append(span["attributes"])
    )
    monkeypatch.setattr(OutputProcessor, "do_tracing", OutputProcessor.do_tracing)
    yield made
    if "spec_decode_metrics" in vars(RequestState):
        del RequestState.spec_decode_metrics


def config(endpoint: str | None, level: str = "none", servers: int = 1) -> Any:
    return SimpleNamespace(
        observability_config=SimpleNamespace(
            otlp_traces_endpoint=endpoint, per_request_spec_decode_metrics=level
        ),
        parallel_config=SimpleNamespace(_api_process_count=servers),
    )


def counts() -> Any:
    """Five steps with drafts: none kept, then 1, 2, 2 and 3 of 3."""
    return vllm_stats.RequestSpecDecodeMetrics(3, histogram=[1, 1, 2, 1], num_draft_tokens=14)


def ended() -> Any:
    """The answer to a request that emits 15 tokens in its last step."""
    processor = OutputProcessor(None, log_stats=True, tracing_enabled=True)
    request = EngineCoreRequest(
        request_id="r",
        external_req_id="r",
        prompt_token_ids=[1, 2],
        mm_features=None,
        sampling_params=SamplingParams(detokenize=False, max_tokens=15),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    processor.add_request(request, None)
    output = EngineCoreOutput(
        request_id="r",
        new_token_ids=list(range(15)),
        finish_reason=FinishReason.LENGTH,
        spec_decode_metrics=counts(),
    )
    return processor.process_outputs([output], 1.0, IterationStats()).request_outputs[0]


def test_a_span_has_verified_and_accepted_drafts_and_mean_k(spans):
    given = config("http://collector")
    annotate_spans(given)
    answer = ended()
    # 15 tokens, 8 of them accepted drafts, one from the prompt: 6 steps decoded.
    assert spans[0]["adaptive_spec.verified_tokens"] == 14
    assert spans[0]["adaptive_spec.accepted_tokens"] == 8
    assert spans[0]["adaptive_spec.mean_k"] == pytest.approx(14 / 6)
    assert "gen_ai.request.id" in spans[0]
    assert given.observability_config.per_request_spec_decode_metrics == "summary"
    assert answer.outputs[0].spec_decode_metrics is None


def test_counts_that_the_operator_asked_for_stay_in_the_answer(spans):
    annotate_spans(config("http://collector", "detailed"))
    assert ended().outputs[0].spec_decode_metrics == counts()
    assert spans[0]["adaptive_spec.accepted_tokens"] == 8


@pytest.mark.parametrize("given", [config(None), config("http://collector", servers=2)])
def test_without_tracing_or_with_several_servers_nothing_changes(spans, given):
    annotate_spans(given)
    assert given.observability_config.per_request_spec_decode_metrics == "none"
    ended()
    assert not any(name.startswith("adaptive_spec") for name in spans[0])


def test_a_request_without_counts_has_no_attributes():
    assert span_attributes(None, 5) == {}
