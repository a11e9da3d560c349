"""What becomes of speculation beside vLLM's other features; see `adaptive_spec.engines.rules`.

PATCHES.md has the longer story of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_spec.adapters.vllm import facts, graph_ladder, own_scheduler
from adaptive_spec.adapters.vllm.attention import mixed_lengths_refusal
from adaptive_spec.adapters.vllm.compat import has_several_mtp_modules
from adaptive_spec.engines.rules import INERT, SHADOW, SUPPORTED, TRIMMING, Rule, when

# Other methods of V1 assert the configured number; those of V2 draft that many and drop the rest.
DEPTH_FOLLOWS = {
    "V1": frozenset({"draft_model", "eagle", "eagle3", "mtp", "ngram"}),
    "V2": frozenset({"eagle", "eagle3", "mtp"}),
}
"""Methods that draft as many tokens as the scheduler asks for, by model runner."""

# The runner masks drafts beyond the scheduler's number for every method.
RUN_ON_V2 = frozenset({"dflash", "draft_model", "dspark", "eagle", "eagle3", "mtp"}) | {
    "ngram",
    "ngram_gpu",
}
"""Executed methods of model runner V2."""

_OTHER_SETTINGS = ("draft_confidence_threshold", "skip_draft_when_k0")
"""Settings of a `SpeculativeConfig` by which vLLM itself ends or skips drafting."""

_TABLES, _OF_BATCHES = "num_speculative_tokens_per_", "num_speculative_tokens_per_batch_size"
"""vLLM's tables of K, and the one that is handed back where we do not decide."""

_OTHER_PLUGINS = ("dynamic_spec_config",)
"""Keys of `additional_config` by which other plugins set K (vllm-ascend)."""

_STEERING = (
    "__init__",
    "schedule",
    "_update_after_schedule",
    "update_draft_token_ids",
    "update_from_output",
)
"""Methods of vLLM's schedulers that a controller of K replaces; chained-flow replaces one."""


class Setup(NamedTuple):
    """A resolved configuration, as a rule's reason reads it.

    Attributes:
        config: vLLM's `VllmConfig`.
        method: speculation method; empty while it is not known that there is one.
        runner: ``V1`` or ``V2`` model runner.
        missing: features of use here that this vLLM's source lacks -> what is missing.
        expected: take the graphs that the workers are expected to capture.
    """

    config: Any
    method: str = ""
    runner: str = ""
    missing: Mapping[str, str] = {}
    expected: bool = False


in_pipeline: Callable[[Setup], str] = when(
    # Steps of other requests are under way, and the worker remembers one depth for all.
    lambda setup: setup.config.parallel_config.pipeline_parallel_size > 1,
    "pipeline parallelism",
)
on_expert_ranks: Callable[[Setup], str] = when(
    # Each rank of a dense model is an engine of its own, which finds 1 here once it has started.
    lambda setup: (
        setup.config.parallel_config.data_parallel_size > 1 and setup.config.model_config.is_moe
    ),
    "data parallelism of a mixture of experts",
)
wrong_output: Callable[[Setup], str] = when(
    lambda setup: in_pipeline(setup) and not setup.config.scheduler_config.async_scheduling,
    "pipeline parallelism with synchronous scheduling (vllm#52071)",
)
"""vLLM's own output is wrong with speculation."""


def _does_not_decode(setup: Setup) -> str:
    model = setup.config.model_config
    if model.runner_type == "pooling":
        return "a pooling model does not decode"
    return "a diffusion model has no draft tokens to choose" if model.is_diffusion else ""


def _fixed_number(setup: Setup) -> str:
    if setup.method not in DEPTH_FOLLOWS[setup.runner]:
        return f"{setup.method} on model runner {setup.runner}"
    return "parallel drafting" if setup.config.speculative_config.parallel_drafting else ""


def _lacks_depth(setup: Setup) -> str:
    if facts.ALONE in setup.missing:
        return "another controller of the draft length in this vLLM"
    return "model runner V2 of this vLLM" if facts.V2_DEPTH in setup.missing else ""


def _draft_loop(setup: Setup) -> str:
    speculation = setup.config.speculative_config
    # V1 repeats the first module.
    if setup.runner == "V2" and has_several_mtp_modules(speculation):
        return "several MTP modules"
    if setup.runner == "V1" and speculation.use_step3p5_mtp():
        return "the draft loop of step3p5, which drafts one token where none is wanted"
    return ""


def _captured_for_kmax(setup: Setup) -> str:
    from vllm.config import CUDAGraphMode

    config = setup.config
    mode = config.compilation_config.cudagraph_mode.decode_mode()
    if setup.runner != "V2" or mode != CUDAGraphMode.FULL:
        return ""
    ladder = graph_ladder.captured(config) is not None
    ladder |= setup.expected and graph_ladder.can_capture(config)
    return "" if ladder else "a draft loop captured for Kmax only"


def _not_executed(setup: Setup) -> str:
    if setup.runner == "V2" and setup.method not in RUN_ON_V2:
        return f"{setup.method} on model runner V2 (VLLM_USE_V2_MODEL_RUNNER=0 selects V1)"
    return ""


_LOSSLESS = ("standard", "block")
"""Methods of rejection sampling that keep the target's distribution, whatever K is."""


def _rejection(setup: Setup) -> str:
    method = setup.config.speculative_config.rejection_sample_method
    return "" if method in _LOSSLESS else f"rejection_sample_method={method}"


def _other_controllers(setup: Setup) -> str:
    """Features of vLLM and of other plugins that set the number of drafts themselves."""
    speculation, added = setup.config.speculative_config, setup.config.additional_config
    found = [name for name in _OTHER_SETTINGS if getattr(speculation, name, None)]
    # One by context length is proposed (vllm#54801); whatever it is called, it would multiply.
    found += [
        name
        for name, value in sorted(vars(speculation).items())
        if name.startswith(_TABLES) and name != _OF_BATCHES and value
    ]
    if isinstance(added, Mapping):
        found += [name for name in _OTHER_PLUGINS if added.get(name)]
    return ", ".join(f"{name} already sets the number of drafts" for name in found)


def _replaced(setup: Setup) -> str:
    """Methods of vLLM's schedulers whose code is not vLLM's."""
    import vllm
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    folder = str(Path(vllm.__file__).parent)
    found = []
    for scheduler in (Scheduler, AsyncScheduler):
        for name in _STEERING:
            code = getattr(vars(scheduler).get(name), "__code__", None)
            if code is not None and not code.co_filename.startswith(folder):
                found.append(f"{scheduler.__name__}.{name} was replaced by another plugin")
    base = own_scheduler.base_of(setup.config.scheduler_config.scheduler_cls)
    if base is not None:
        found += [
            f"{name} calls no method of vLLM's" for name in own_scheduler.replaced(base, _STEERING)
        ]
    return ", ".join(found)


_SAME_TOKENS = "test_greedy_identity: same tokens as without speculation"

RULES: tuple[Rule[Setup], ...] = (
    Rule("abort", SUPPORTED, "the request is forgotten where vLLM frees it", _SAME_TOKENS),
    Rule(
        "preemption",
        SUPPORTED,
        "late results are no labels; K shrinks first where drafts alone would preempt",
        "test_greedy_identity, test_tight_memory",
    ),
    Rule("n > 1", SUPPORTED, "each sample is a request of its own", _SAME_TOKENS),
    Rule(
        "chunked prefill",
        SUPPORTED,
        "drafts are trimmed before the budget is given out, so that prompts get what is freed",
        _SAME_TOKENS,
    ),
    Rule(
        "structured output",
        SUPPORTED,
        "drafts that the grammar rejects are neither verified nor labels; those vLLM would verify "
        "without asking the grammar, after a pause with asynchronous scheduling, are left out; "
        "acceptance is learned apart, as for a task label",
        "test_greedy_identity, test_interplay: pauses",
    ),
    Rule(
        "thinking_token_budget",
        SUPPORTED,
        "on runner V1 with one thinking section; with several, or a budget of 0, vLLM's own text "
        "depends on the number of drafts there, with the plugin and without it; V2 gives one text",
        "test_upstream_reports: one section; a finding: several; test_v2_model_runner",
    ),
    Rule("logprobs", SUPPORTED, "unchanged", "test_greedy_identity: the same values"),
    Rule(
        "prefix caching",
        SUPPORTED,
        "unchanged; blocks written while OFF-cold have no draft half, requests that reused any "
        "cached block since are counted",
        "test_greedy_identity, test_off_cold",
    ),
    Rule(
        "max_num_batched_tokens",
        SUPPORTED,
        "K is trimmed before vLLM schedules",
        "test_greedy_identity: 96 tokens a step",
    ),
    Rule(
        "LoRA",
        SUPPORTED,
        "acceptance is learned per adapter, as for a task label: the 128 combinations of adapter, "
        "label and structured output used last have their own",
        "test_interplay: two adapters, ngram; test_context_and_outcome: their numbers",
    ),
    Rule(
        "min_p, logit_bias",
        "vLLM refuses",
        "vLLM rejects such requests whenever speculation is configured, also at K = 0",
        "",
    ),
    Rule(
        "prompt embeddings",
        "as vLLM",
        "with n-gram they work; with draft_model and EAGLE vLLM 0.32 itself ends at the first such "
        "request on runner V1, with the plugin and without it",
        "",
    ),
    Rule(
        "streaming input (resumable requests)",
        "as vLLM",
        "synchronous turns that end by a stop token inside accepted drafts: vLLM's own text "
        "depends on K there (docs/losslessness.md)",
        "",
    ),
    Rule(
        "beam search",
        INERT,
        "vLLM runs it as requests of one token each: nothing is left to draft for",
        "test_engine_behaviour: requests of one token",
    ),
    Rule(
        "no speculation configured",
        INERT,
        "one line says so",
        "test_start_up",
        when(
            lambda setup: setup.config.speculative_config is None,
            "no speculation is configured: add --speculative-config",
        ),
    ),
    Rule("pooling, diffusion", INERT, "one line says so", "", _does_not_decode),
    Rule(
        "sleep mode, pause, reload of weights",
        SUPPORTED,
        "steps across a pause give no time sample; after `set_weight_version`, `reload_weights` "
        "and `finish_weight_update` the policy starts over, after a LoRA adapter loaded in place "
        "it does not",
        "test_interplay: pause, and each of these calls; sleep levels 1 and 2 need a GPU",
    ),
    Rule(
        "a drafter that makes a fixed number of drafts",
        TRIMMING,
        "V1: suffix, medusa, ngram_gpu; V2: draft_model, dflash, dspark, n-gram; all with one pass "
        "for all drafts (parallel_drafting)",
        "test_start_up",
        _fixed_number,
    ),
    Rule(
        "several MTP modules on model runner V2, step3p5",
        TRIMMING,
        "their draft loops run Kmax passes whatever is asked for",
        "test_start_up",
        _draft_loop,
    ),
    Rule(
        "a vLLM that sets the draft length elsewhere",
        TRIMMING,
        "told by the source: another controller, or a runner that does not ask the scheduler",
        "test_start_up",
        _lacks_depth,
    ),
    Rule(
        "data parallelism, dense model",
        SUPPORTED,
        "each rank is an engine that decides alone; the switch reaches all of them",
        "test_parallelism: two ranks on a CPU, in full graphs, too",
    ),
    Rule(
        "data parallelism, mixture of experts",
        TRIMMING,
        "idle ranks draft Kmax, so that depth stays Kmax for all; each rank trims alone, on a GPU "
        "with K per request where all ranks have captured varlen graphs",
        "test_parallelism: two ranks on a CPU, with collectives that the test adds",
        on_expert_ranks,
    ),
    Rule(
        "tensor parallelism",
        SUPPORTED,
        "decisions reach all ranks in vLLM's own message",
        "test_parallelism: two ranks on a CPU",
    ),
    Rule(
        "pipeline parallelism",
        TRIMMING,
        "a plan covers the requests whose turn it is; steps of others are under way, so that depth "
        "stays Kmax; vLLM does not start it on a CPU, only the taking of turns was executed",
        "test_start_up, test_context_and_outcome; test_v2_model_runner: requests take turns",
        in_pipeline,
    ),
    Rule(
        "pipeline parallelism with --no-async-scheduling",
        SHADOW,
        "vLLM's output is wrong there with speculation (vllm#52071)",
        "test_start_up",
        wrong_output,
    ),
    Rule(
        "a draft loop captured for Kmax only (model runner V2)",
        TRIMMING,
        "where no ladder of depths fits into the captured sizes",
        "test_start_up, test_graph_ladder",
        _captured_for_kmax,
    ),
    Rule(
        "suffix and other methods on V2 that were not executed",
        SHADOW,
        "VLLM_USE_V2_MODEL_RUNNER=0 selects V1",
        "test_start_up",
        _not_executed,
    ),
    Rule(
        "a recurrent state that K = 0 would read stale",
        SHADOW,
        "hybrid and state-space models on a vLLM whose source lacks the remedy",
        "test_start_up",
        when(
            lambda setup: facts.RECURRENT in setup.missing,
            "hybrid or state-space model, whose state K = 0 would read stale",
        ),
    ),
    Rule(
        "draft_confidence_threshold, skip_draft_when_k0, other num_speculative_tokens_per_*, "
        "vllm-ascend's dynamic_spec_config",
        SHADOW,
        "vLLM or another plugin sets the number of drafts",
        "test_start_up",
        _other_controllers,
    ),
    Rule(
        "another plugin or a --scheduler-cls that replaces methods of vLLM's scheduler",
        SHADOW,
        "two would set K; told by the methods' code",
        "test_start_up",
        _replaced,
    ),
    Rule(
        "sparse MLA (DeepSeek-V3.2) before vLLM 0.27",
        SHADOW,
        "the indexer fails on rows of different lengths (vllm#46074); told by the source",
        "test_start_up",
        when(
            lambda setup: facts.SPARSE_MLA in setup.missing,
            "sparse MLA, whose indexer fails on different K in one batch",
        ),
    ),
    Rule(
        "max_num_batched_tokens that leaves running requests out of a step",
        SUPPORTED,
        "drafts that the worker has forgotten by then are dropped, not verified as -1 (vllm#46899)",
        "test_upstream_reports: 16 tokens a step",
    ),
    Rule(
        "a request longer than the drafter's max_model_len",
        SUPPORTED,
        "vLLM drafts for nobody in such a batch (vllm#52762): K = 0 for its steps, no labels, and "
        "drafts again once the request has ended",
        "test_upstream_reports",
    ),
    Rule(
        "hybrid and state-space models",
        SUPPORTED,
        "K = 0 and prefix caching included; executed on a CPU whose operators the tests mend",
        "test_families: Qwen3-Next with MTP, Falcon-H1",
    ),
    Rule(
        "MLA with asynchronous scheduling",
        SHADOW,
        "on attention backends that decode rows of one length: requests with different K would "
        "read stale KV; FLASH_ATTN_MLA and FLASHINFER_MLA take them, and so do all backends with "
        "--no-async-scheduling",
        "test_families: a backend of that kind, steered and not; test_start_up",
        lambda setup: mixed_lengths_refusal(setup.config),
    ),
    Rule(
        "KV connector",
        SUPPORTED,
        "steers on the decode side",
        "test_kv_connector: prefill and decode instance, files between them",
    ),
    Rule(
        "prefill instance (kv_role kv_producer)",
        INERT,
        "one token each",
        "test_kv_connector",
        when(
            lambda setup: getattr(setup.config.kv_transfer_config, "kv_role", "") == "kv_producer",
            "a prefill instance (kv_role=kv_producer) generates one token per request",
        ),
    ),
    Rule(
        "rejection_sample_method block",
        SUPPORTED,
        "how often the first drafts are accepted does not depend on K there",
        "test_v2_block_verification: the law of the enumeration in test_v2_block_verification",
    ),
    Rule(
        "other values of rejection_sample_method",
        SHADOW,
        "lossy or synthetic acceptance is nothing to learn from",
        "test_start_up",
        _rejection,
    ),
    Rule(
        "enable_adaptive_verification",
        SHADOW,
        "vLLM trims on the device and tells nobody how far: acceptance is recorded too low; "
        "with `take_over` the plugin switches it off and steers",
        "test_start_up",
        when(
            lambda setup: getattr(
                setup.config.speculative_config, "enable_adaptive_verification", False
            ),
            "enable_adaptive_verification already trims",
        ),
    ),
    Rule(
        "num_speculative_tokens_per_batch_size",
        SUPPORTED,
        "your table is what fail-open, shadow and mode off run; vLLM drops it with data "
        "parallelism",
        "test_context_and_outcome",
    ),
    Rule(
        "--scheduler-cls",
        SUPPORTED,
        "ours is built on a subclass of vLLM's, such as NVIDIA Dynamo's; another class is refused",
        "test_start_up",
    ),
    Rule(
        "several API servers",
        SUPPORTED,
        "endpoint and figures work on each",
        "test_http_controls",
    ),
    Rule(
        "restart, rolling upgrade",
        SUPPORTED,
        "starts anew, or with `state_directory` from what the same model, drafter, hardware, "
        "versions and settings have taught",
        "test_saved_state",
    ),
)
