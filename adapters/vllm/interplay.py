"""What becomes of speculation together with vLLM's other features: one table, shown twice.

`adaptive-spec doctor` prints it, docs/vllm.md contains it (`markdown_table`).

Supported: acts, and was executed so. Trimming only: the draft depth is vLLM's, K_i is ours. Shadow:
decides and records, vLLM's own K runs. Inert: nothing is attached.
"""

from __future__ import annotations

from adaptive_spec.engines.doctor_rows import Interplay

SUPPORTED, TRIMMING, SHADOW, INERT = "supported", "trimming only", "shadow", "inert"

_SAME_TOKENS = "test_greedy_identity: same tokens as without speculation"

INTERPLAY: tuple[Interplay, ...] = (
    Interplay("abort", SUPPORTED, "the request is forgotten where vLLM frees it", _SAME_TOKENS),
    Interplay(
        "preemption",
        SUPPORTED,
        "late results are no labels; K shrinks first where drafts alone would preempt",
        "test_greedy_identity, test_tight_memory",
    ),
    Interplay("n > 1", SUPPORTED, "each sample is a request of its own", _SAME_TOKENS),
    Interplay(
        "chunked prefill",
        SUPPORTED,
        "drafts are trimmed before the budget is given out, so that prompts get what is freed",
        _SAME_TOKENS,
    ),
    Interplay(
        "structured output",
        SUPPORTED,
        "drafts that the grammar rejects are neither verified nor labels; those vLLM would verify "
        "without asking the grammar, after a pause with asynchronous scheduling, are left out; "
        "acceptance is learned apart, as for a task label",
        "test_greedy_identity, test_interplay: pauses",
    ),
    Interplay("logprobs", SUPPORTED, "unchanged", "test_greedy_identity: the same values"),
    Interplay(
        "prefix caching",
        SUPPORTED,
        "unchanged; blocks written while OFF-cold have no draft half, requests that reused any "
        "cached block since are counted",
        "test_greedy_identity, test_off_cold",
    ),
    Interplay(
        "max_num_batched_tokens",
        SUPPORTED,
        "K is trimmed before vLLM schedules",
        "test_greedy_identity: 96 tokens a step",
    ),
    Interplay(
        "LoRA",
        SUPPORTED,
        "acceptance is learned per adapter, as for a task label: the 128 combinations of adapter, "
        "label and structured output used last have their own",
        "test_interplay: two adapters, ngram; test_context_and_outcome: their numbers",
    ),
    Interplay(
        "min_p, logit_bias",
        "vLLM refuses",
        "vLLM rejects such requests whenever speculation is configured, also at K = 0",
        "test_interplay",
    ),
    Interplay(
        "beam search",
        INERT,
        "vLLM runs it as requests of one token each: nothing is left to draft for",
        "test_interplay",
    ),
    Interplay("no speculation configured", INERT, "one line says so", "test_start_up"),
    Interplay("pooling, diffusion", INERT, "one line says so"),
    Interplay(
        "sleep mode, pause, reload of weights",
        SUPPORTED,
        "steps across a pause give no time sample; at `set_weight_version` the policy starts over",
        "test_interplay: pause and weight version; sleep levels 1 and 2 need a GPU",
    ),
    Interplay(
        "data parallelism, dense model",
        SUPPORTED,
        "each rank is an engine that decides alone; the switch reaches all of them",
        "test_parallelism: two ranks on a CPU",
    ),
    Interplay(
        "data parallelism, mixture of experts",
        TRIMMING,
        "idle ranks draft Kmax, so that depth stays Kmax for all; each rank trims alone, on a GPU "
        "with K per request where all ranks have captured varlen graphs",
        "test_parallelism: two ranks on a CPU, with collectives that the test adds",
    ),
    Interplay(
        "tensor parallelism",
        SUPPORTED,
        "decisions reach all ranks in vLLM's own message",
        "test_parallelism: two ranks on a CPU",
    ),
    Interplay(
        "pipeline parallelism",
        TRIMMING,
        "a plan covers the requests whose turn it is; steps of others are under way, so that depth "
        "stays Kmax; vLLM does not start it on a CPU, only the taking of turns was executed",
        "test_start_up, test_context_and_outcome; test_v2_model_runner: requests take turns",
    ),
    Interplay(
        "pipeline parallelism with --no-async-scheduling",
        SHADOW,
        "vLLM's output is wrong there with speculation (vllm#52071)",
        "test_start_up",
    ),
    Interplay(
        "draft_confidence_threshold, skip_draft_when_k0, vllm-ascend's dynamic_spec_config",
        SHADOW,
        "vLLM or another plugin sets the number of drafts",
        "test_start_up",
    ),
    Interplay(
        "sparse MLA (DeepSeek-V3.2) before vLLM 0.27",
        SHADOW,
        "the indexer fails on rows of different lengths (vllm#46074); told by the source",
        "test_start_up",
    ),
    Interplay(
        "max_num_batched_tokens that leaves running requests out of a step",
        SUPPORTED,
        "drafts that the worker has forgotten by then are dropped, not verified as -1 (vllm#46899)",
        "test_upstream_reports: 16 tokens a step",
    ),
    Interplay(
        "a request longer than the drafter's max_model_len",
        SUPPORTED,
        "vLLM drafts for nobody in such a batch (vllm#52762): K = 0 for its steps, no labels, and "
        "drafts again once the request has ended",
        "test_upstream_reports",
    ),
    Interplay(
        "hybrid and state-space models",
        SUPPORTED,
        "K = 0 and prefix caching included; executed on a CPU whose operators the tests mend",
        "test_families: Qwen3-Next with MTP, Falcon-H1",
    ),
    Interplay(
        "MLA with asynchronous scheduling",
        SHADOW,
        "on attention backends that decode rows of one length: requests with different K would "
        "read stale KV; FLASH_ATTN_MLA and FLASHINFER_MLA take them, and so do all backends with "
        "--no-async-scheduling",
        "test_families: a backend of that kind, steered and not; test_start_up",
    ),
    Interplay(
        "KV connector",
        SUPPORTED,
        "steers on the decode side",
        "test_kv_connector: prefill and decode instance, files between them",
    ),
    Interplay(
        "prefill instance (kv_role kv_producer)", INERT, "one token each", "test_kv_connector"
    ),
    Interplay(
        "rejection_sample_method other than standard",
        SHADOW,
        "lossy or synthetic acceptance is nothing to learn from",
        "test_start_up",
    ),
    Interplay(
        "enable_adaptive_verification",
        SHADOW,
        "vLLM trims already; with `take_over` the plugin switches it off and steers",
        "test_start_up",
    ),
    Interplay(
        "num_speculative_tokens_per_batch_size",
        SUPPORTED,
        "your table is what fail-open, shadow and mode off run",
        "test_context_and_outcome",
    ),
    Interplay("--scheduler-cls", "refused", "one line at start-up", "test_start_up"),
    Interplay(
        "several API servers",
        SUPPORTED,
        "endpoint and figures work on each",
        "test_http_controls",
    ),
    Interplay(
        "restart, rolling upgrade",
        SUPPORTED,
        "starts anew, or with `state_directory` from what the same model, drafter, hardware, "
        "versions and settings have taught",
        "test_saved_state",
    ),
)


def markdown_table() -> str:
    """The table for docs/vllm.md."""
    lines = ["| with | | rule |", "| --- | --- | --- |"]
    lines += [f"| {row.feature} | {row.support} | {row.rule} |" for row in INTERPLAY]
    return "\n".join(lines)
