"""What becomes of speculation beside SGLang's other features; see `adaptive_spec.engines.rules`.

PATCHES.md has the longer story of each row.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from adaptive_spec.engines.rules import INERT, SHADOW, SUPPORTED, Rule, when

NGRAM_NAME = "ADAPTIVE_NGRAM"
"""Our registered algorithm, for ``--speculative-algorithm``."""

_UNIFORM = "one K per batch and step, out of SGLang's candidates"
_CAPABILITY = "adapter/test_capability.py"
_WITH_FIXED_K = (
    ("enable_two_batch_overlap", "two-batch overlap"),
    ("enable_pdmux", "pdmux"),
    ("enable_multi_layer_eagle", "multi-layer EAGLE"),
)
"""Arguments with which K may not change; SGLang checks it for EAGLE only."""


RANKS_APART = ("SGLANG_ENABLE_DP_SPEC_PREFILL_COORDINATION", "SGLANG_SCHEDULER_SKIP_ALL_GATHER")
"""Variables with which replicas of attention DP draft in different steps."""
_YES = ("1", "true", "yes", "y")


class Setup(NamedTuple):
    """A server's set-up, as a rule's reason reads it.

    Attributes:
        arguments: SGLang's ServerArgs.
        scheduler: SGLang's Scheduler; None while it is not built.
        ladder: candidate K; empty if the worker has no adaptive parameters.
        told: why the worker could not be given any, if that is known.
    """

    arguments: Any
    scheduler: Any = None
    ladder: tuple[int, ...] = ()
    told: str = ""

    @property
    def name(self) -> str:
        """The speculative algorithm; empty while the scheduler is not built."""
        algorithm = getattr(self.scheduler, "spec_algorithm", "")
        return str(getattr(algorithm, "name", algorithm))

    def algorithm(self, question: str) -> bool:
        """Ask SGLang's SpeculativeAlgorithm a question that not every version knows."""
        answer = getattr(getattr(self.scheduler, "spec_algorithm", None), question, None)
        return bool(answer()) if callable(answer) else False

    @property
    def without_parameters(self) -> bool:
        """Built, and K cannot be set."""
        return self.scheduler is not None and not self.ladder

    @property
    def disaggregated(self) -> str:
        """``prefill`` or ``decode`` of an instance that does one of them only."""
        return str(getattr(self.arguments, "disaggregation_mode", None) or "null")


def attention_dp(arguments: Any) -> bool:
    """Return whether ranks are replicas of attention DP, which step together."""
    ranks = int(getattr(arguments, "attn_dp_size", 1) or 1)
    return ranks > 1 or bool(getattr(arguments, "enable_dp_attention", False))


def _fixed_beside(setup: Setup) -> str:
    if setup.ladder or setup.algorithm("is_eagle"):
        return ""
    found = (text for key, text in _WITH_FIXED_K if getattr(setup.arguments, key, False))
    return next((f"not with {text}" for text in found), "")


def _replicas_apart(setup: Setup) -> str:
    arguments = setup.arguments
    if not attention_dp(arguments):
        return ""
    algorithm = str(getattr(arguments, "speculative_algorithm", "") or "")
    if algorithm not in ("EAGLE", "EAGLE3", "NEXTN"):
        return f"not with {algorithm} and attention DP"
    if setup.disaggregated != "null":
        return "not with attention DP on an instance that only prefills or decodes"
    if getattr(arguments, "elastic_ep_backend", None):
        return "not with attention DP and elastic experts"
    apart = (name for name in RANKS_APART if os.environ.get(name, "0").lower() in _YES)
    return next((f"not with attention DP and {name}" for name in apart), "")


def _fixed_algorithm(setup: Setup) -> str:
    eagle = setup.algorithm("is_eagle") and not setup.algorithm("is_frozen_kv_mtp")
    if not setup.without_parameters or eagle or setup.algorithm("is_ngram"):
        return ""
    return f"{setup.name} has a fixed K in SGLang"


def _not_adaptive(setup: Setup) -> str:
    if not setup.without_parameters:
        return ""
    from sglang.srt.speculative.adaptive_spec_params import adaptive_unsupported_reason

    refused = adaptive_unsupported_reason(setup.arguments)
    if refused:
        return f"SGLang has disabled --speculative-adaptive: {refused}"
    return f"{setup.name} needs --speculative-adaptive"


def _above_launch(setup: Setup) -> str:
    launched = getattr(setup.arguments, "speculative_num_steps", None)
    algorithm = setup.scheduler.spec_algorithm
    sized = hasattr(algorithm, "resolve_max_speculative_num_draft_tokens")
    if setup.algorithm("is_ngram") or sized or launched is None:
        return ""
    highest = setup.ladder[-1]
    above = highest > int(launched)
    return f"candidate K = {highest} above --speculative-num-steps {launched}" if above else ""


def _lora_beside_trees(setup: Setup) -> bool:
    topk = getattr(setup.arguments, "speculative_eagle_topk", None) or 1
    lora = (getattr(setup.arguments, name, None) for name in ("enable_lora", "lora_paths"))
    return topk > 1 and any(lora) and not setup.algorithm("is_ngram")


def _one_width(setup: Setup) -> str:
    refused = getattr(getattr(setup.scheduler, "draft_worker", None), "one_width", "")
    return f"NGRAM with graphs of one width ({refused})" if refused else ""


RULES: tuple[Rule[Setup], ...] = (
    Rule("EAGLE, EAGLE3 (NEXTN)", SUPPORTED, f"--speculative-adaptive: {_UNIFORM}", "engine/"),
    Rule("STANDALONE", SUPPORTED, f"{_UNIFORM}, up to the launch K", "engine/"),
    Rule(
        "token trees: EAGLE, EAGLE3, STANDALONE with --speculative-eagle-topk above 1",
        SUPPORTED,
        "one depth per batch and step up to the launch's, with that depth's nodes; top-k stays",
        "adapter/test_arms.py, engine/test_trees.py",
    ),
    Rule(
        "NGRAM",
        SUPPORTED,
        f"as {NGRAM_NAME}: {_UNIFORM}, each with graphs of its own; with the synchronous schedule",
        "adapter/test_ngram_worker.py, engine/",
    ),
    Rule(
        "tensor parallelism",
        SUPPORTED,
        "rank 0 decides, and all ranks run its K",
        "adapter/test_ranks.py; each algorithm with two ranks in engine/",
    ),
    Rule(
        "decode instance",
        SUPPORTED,
        "prompts that come without the drafter's KV (sglang#17212) accept less, which is learned; "
        "the start line says so",
        _CAPABILITY,
    ),
    Rule("DP replicas", SUPPORTED, "each has a controller of its own"),
    Rule(
        "attention DP: EAGLE, EAGLE3 (NEXTN), trees too",
        SUPPORTED,
        "each replica plans for its own requests, and the K of the one with the most runs on all, "
        "agreed by an all-reduce in each step; without --speculative-adaptive, which SGLang "
        "refuses there",
        f"{_CAPABILITY}, adapter/test_two_processes.py, engine/test_attention_dp.py",
    ),
    Rule(
        "LoRA",
        "SGLang refuses",
        f"with STANDALONE and with registered algorithms, so with {NGRAM_NAME}; EAGLE takes it "
        "since 0.5.23, but not with --speculative-adaptive",
    ),
    Rule(
        "no speculation configured",
        INERT,
        "one line says so",
        _CAPABILITY,
        when(
            lambda setup: setup.algorithm("is_none"),
            "no speculation is configured: add --speculative-algorithm",
        ),
    ),
    Rule(
        "DSPARK",
        INERT,
        "its planner sets verify lengths on the device, and its worker asks nobody for K "
        "(speculative/dspark_components/dspark_planner.py)",
        _CAPABILITY,
        when(
            lambda setup: setup.algorithm("is_dspark"),
            "DSPARK plans its own verify lengths and is left alone",
        ),
    ),
    Rule(
        "prefill instance",
        INERT,
        "one token for each request",
        _CAPABILITY,
        when(
            lambda setup: setup.scheduler is not None and setup.disaggregated == "prefill",
            "a prefill instance generates one token per request",
        ),
    ),
    Rule(
        "trees that SGLang could not build, or whose depths have no nodes of their own",
        INERT,
        "one line says so; ADAPTIVE_SPEC_SGLANG_TREES lists others",
        "adapter/test_arms.py",
        lambda setup: setup.told if setup.without_parameters else "",
    ),
    Rule(
        "LoRA beside token trees",
        INERT,
        "a change of depth would leave the metadata of LoRA's graphs behind "
        "(arg_groups/lora_hook.py)",
        _CAPABILITY,
        when(_lora_beside_trees, "not with LoRA and --speculative-eagle-topk above 1"),
    ),
    Rule(
        "two-batch overlap, pdmux, multi-layer EAGLE",
        INERT,
        "SGLang itself refuses --speculative-adaptive: a change would drop the wrapped backend or "
        "leave pdmux's behind, and the multi-layer worker has no states "
        "(speculative/adaptive_spec_params.py)",
        _CAPABILITY,
        _fixed_beside,
    ),
    Rule(
        "attention DP with other algorithms, on prefill or decode instances, with elastic experts, "
        f"or with {' or '.join(RANKS_APART)}",
        INERT,
        "replicas may draft in different steps (scheduler_components/dp_attn.py), which no engine "
        "of ours has run",
        _CAPABILITY,
        _replicas_apart,
    ),
    Rule(
        "pipeline parallelism",
        INERT,
        "stages slice results by the launch's K: SGLang itself refuses SGLANG_ENABLE_PP_SPEC with "
        "--speculative-adaptive (arg_groups/validation_hook.py)",
        _CAPABILITY,
        when(
            lambda setup: int(getattr(setup.arguments, "pp_size", 1) or 1) > 1,
            "not with pipeline parallelism",
        ),
    ),
    Rule(
        f"{NGRAM_NAME} whose buffers cannot be made",
        INERT,
        "it runs as NGRAM",
        _CAPABILITY,
        when(
            lambda setup: setup.without_parameters and setup.name == NGRAM_NAME,
            "its buffers could not be made",
        ),
    ),
    Rule(
        "NGRAM under its own name",
        INERT,
        f"--speculative-algorithm {NGRAM_NAME} steers it",
        _CAPABILITY,
        when(
            lambda setup: setup.without_parameters and setup.algorithm("is_ngram"),
            f"NGRAM has a fixed K in SGLang: use --speculative-algorithm {NGRAM_NAME}",
        ),
    ),
    Rule(
        "DFLASH, UNO, frozen-KV MTP",
        INERT,
        "their workers build no state for another K; the last one says so itself "
        "(speculative/frozen_kv_mtp_worker_v2.py)",
        _CAPABILITY,
        _fixed_algorithm,
    ),
    Rule(
        "EAGLE without --speculative-adaptive at top-k 1",
        INERT,
        "one line says so, with SGLang's own reason",
        "adapter/test_start_up.py",
        _not_adaptive,
    ),
    Rule(
        "a candidate above --speculative-num-steps",
        SHADOW,
        "where SGLang sizes buffers for the launch K (sglang#30549, #35275); told by the source",
        _CAPABILITY,
        _above_launch,
    ),
    Rule(
        "NGRAM where SGLang cannot capture the graphs of another width",
        SHADOW,
        "its log says why; --disable-cuda-graph lets K change",
        "adapter/test_ngram_worker.py",
        _one_width,
    ),
)
