"""Values exchanged between an engine, the controller and a policy.

Three values describe one engine step, each with arrays over the batch:

* `StepContext`: the state before the step (adapter -> policy);
* `SpecPlan`: the drafts to verify now and the next draft depth (policy -> adapter);
* `StepOutcome`: the drafts that were verified and accepted (adapter -> controller), one or two
  steps later where the engine schedules ahead.

`FinishedStep` joins all three, row by row (controller -> policy).

Units: seconds, tokens. Shapes: `[B]` is one entry per decoding request of the step. Arrays are
C-contiguous int64 or float64. B may be 0 (a step of prompts only): the plan's draft depth then
holds for the requests whose prompt ends in that step.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]


class Level(enum.IntEnum):
    """Granularity of control that an engine offers."""

    UNIFORM = 0
    """L0: one K for the whole batch, from the ladder."""
    VERIFY = 1
    """L1: fixed draft depth, free K_i per request."""
    FULL = 2
    """L2: free draft depth per step and free K_i per request."""


class Mode(enum.StrEnum):
    """State of speculation in a step."""

    ON = "on"
    SHADOW = "shadow"
    """The engine's own K runs; the decision is only recorded."""
    OFF_WARM = "off_warm"
    """K = 0; the drafter still runs the pass that keeps its state in step."""
    OFF_COLD = "off_cold"
    """K = 0 and no drafter pass."""
    ENGINE = "engine"
    """Fail-open: the engine's own K, because the decision could not be used."""


class Kind(enum.StrEnum):
    """Why a step runs as it does, for status, metrics and page."""

    PLANNED = "planned"
    """As is expected to be best."""
    MEASURING = "measuring"
    """To learn: a step time, the acceptance of a deeper draft, whether drafts pay again."""
    OFF = "off"
    ENGINE = "engine"
    """With the engine's own K."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """Control options of an engine, fixed for the life of a server.

    Attributes:
        level: granularity of control.
        max_draft_tokens: Kmax, the K the engine was configured with (>= 1).
        ladder: K values that may run at level UNIFORM, ascending. Empty means 0..Kmax.
        token_buckets: captured batch-token sizes, ascending. A batch of N verified tokens runs
            as the smallest bucket >= N; beyond the last one it runs unpadded. Empty: no padding.
        depth_follows: the drafter drafts to the planned depth. False where it always drafts Kmax,
            so that only verification can be trimmed; never true at level VERIFY.
        off_pass: K = 0 still runs one drafter pass (OFF-warm). False for drafters without a
            model, such as n-gram.
        sampled_drafts: drafts are sampled from the drafter's distribution, so that verification
            uses their probability. False where each draft is the drafter's likeliest token, or a
            copied token, and is verified as such. If true, policies for greedy drafts only are
            refused.
        cold_off: the engine can also skip the OFF-warm pass, or all passes of a drafter whose depth
            is fixed (OFF-cold). A drafter with a state cannot resume requests that were alive at
            that time.
        ragged_penalty: extra verify time of a batch whose K differ, relative to a uniform batch,
            which runs a faster graph; what is assumed until steps have been timed. 0: both kinds
            of batches run alike.
        tree_nodes: where drafts are trees and K is their depth: tokens of a request, the root among
            them, that are verified at each K of `uniform_values`, ascending. Acceptance at position
            j is that one of the nodes at depth j is right. Empty: chains, K + 1 tokens.
    """

    level: Level
    max_draft_tokens: int
    ladder: tuple[int, ...] = ()
    token_buckets: tuple[int, ...] = ()
    depth_follows: bool = True
    off_pass: bool = True
    sampled_drafts: bool = False
    cold_off: bool = False
    ragged_penalty: float = 0.0
    tree_nodes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_draft_tokens < 1:
            raise ValueError(f"max_draft_tokens must be >= 1, got {self.max_draft_tokens}")
        if any(not 0 <= k <= self.max_draft_tokens for k in self.ladder):
            raise ValueError(f"ladder {self.ladder} leaves 0..{self.max_draft_tokens}")
        if list(self.ladder) != sorted(set(self.ladder)):
            raise ValueError(f"ladder {self.ladder} must ascend without repeats")
        if list(self.token_buckets) != sorted(set(self.token_buckets)):
            raise ValueError("token_buckets must ascend without repeats")
        # A trace may name any Kmax: no list is as long before it is bounded.
        nodes, ks = self.tree_nodes, self.ladder or range(self.max_draft_tokens + 1)
        if nodes and (
            len(nodes) != len(ks)
            or list(nodes) != sorted(set(nodes))
            or any(each < k + 1 for each, k in zip(nodes, ks, strict=True))
        ):
            raise ValueError(f"tree_nodes {nodes} must ascend, one above each K of {ks}")

    @property
    def steers_depth(self) -> bool:
        """Return whether the draft depth D of a plan has an effect."""
        return self.depth_follows and self.level is not Level.VERIFY

    @property
    def uniform_values(self) -> tuple[int, ...]:
        """K values that a uniform plan may take, ascending."""
        return self.ladder or tuple(range(self.max_draft_tokens + 1))


class StepContext(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """State of the engine before a step.

    Attributes:
        step: number of the step, ascending.
        capability: control options of the engine.
        request_ids: [B] the engine's own names, for records only.
        slots: [B] small integers that identify the requests; see `RequestSlots`.
        context_tokens: [B] tokens in the KV cache.
        draft_available: [B] drafts ready for this verification, 0..Kmax, after every limit of the
            engine (grammar, max tokens, model length, drafted tokens) and the request's cap or
            opt-out.
        draft_possible: [B] drafts that the next step could use, 0..Kmax, under the limits of the
            engine; 0 for a request that has opted out. A smaller cap of one request than of others
            is left out, so that it does not make drafting shallower for them.
        engine_k: K that the engine itself would use for this batch (its static K or its own table).
        tpot_target: [B] requested seconds per output token; inf without a target.
        task: [B] number of the request's task label, -1 without one.
        temperature: [B] sampling temperature of the target.
        confidence: [B, Kmax] maximum probability of the draft distribution at each drafted position
            (nan where unknown); None without such a signal.
        entropy: [B, Kmax] entropy of the draft distribution in nats; nan and None as above.
        waiting: requests in the queue.
        prefill_tokens: prompt tokens that share this step.
        prompt_possible: drafts that the requests whose prompts may run in this step can use at most
            once these have ended, 0..Kmax; None where the engine does not say.
        kv_free_tokens: free tokens of the KV pool.
        kv_total_tokens: size of the KV pool in tokens.
        kv_draft_limit: [B] drafts for which the engine finds KV blocks in this step without
            preempting a request; None where the engine gives no such limit and `kv_free_tokens`
            applies.
        lookup_available: [B] drafts copied from earlier text (n-gram or suffix look-up) that may be
            verified instead of the drafter's, 0..Kmax, under the same limits; None where the engine
            has one source of drafts.
        lookup_match: [B] tokens of context that the copied drafts' source agrees with; 0 without
            drafts, None as above.
        shared_seconds: seconds of other work that a step costs whatever its K, as where requests
            that end in it are followed by prompts in a step of their own; no part of the step's
            duration.
        opted_out: [B] the client wants no speculation for this request; None where nobody does.
        now: monotonic clock of the deciding process, seconds.
    """

    step: int
    capability: Capability
    request_ids: Sequence[str]
    slots: IntArray
    context_tokens: IntArray
    draft_available: IntArray
    draft_possible: IntArray
    engine_k: int
    tpot_target: FloatArray
    task: IntArray
    temperature: FloatArray
    confidence: FloatArray | None = None
    entropy: FloatArray | None = None
    waiting: int = 0
    prefill_tokens: int = 0
    prompt_possible: int | None = None
    kv_free_tokens: int = 1 << 40
    kv_total_tokens: int = 1 << 40
    kv_draft_limit: IntArray | None = None
    lookup_available: IntArray | None = None
    lookup_match: IntArray | None = None
    shared_seconds: float = 0.0
    opted_out: BoolArray | None = None
    now: float = 0.0

    @property
    def batch_size(self) -> int:
        """B, the number of decoding requests in this step."""
        return len(self.slots)

    @property
    def taking_part(self) -> BoolArray | None:
        """[B] requests that a plan is made for: those that have not opted out.

        None where these are all, and where everybody has opted out.
        """
        if self.opted_out is None or not self.opted_out.any() or self.opted_out.all():
            return None
        return ~self.opted_out


class SpecPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Decision for one step.

    Attributes:
        step: the step that the plan is for.
        verify: [B] K_i, drafts of each request to verify in this step; <= draft_available, or
            <= lookup_available where `from_lookup`.
        draft_depth: D, draft depth at the end of this step, for the next one.
        mode: state of speculation.
        reason: reason of this K in a few words, for people.
        measures: the step is to learn something, not to be the best.
        propensity: [B] probability with which a randomised policy chose these K_i (1 where it did
            not randomise), for off-policy evaluation.
        predicted_tokens: tokens that this step is expected to emit; nan if not predicted.
        predicted_seconds: expected duration of the step; nan if not predicted.
        from_lookup: [B] requests that verify the drafts that were looked up, in place of the
            drafter's; None: nobody.
        notes: arrays [B, ...] that the policy gets back in `FinishedStep.plan`, with the rows of
            the requests that are still alive. Only the policy reads them.
        memo: any other value that the policy gets back; None without one.
    """

    step: int
    verify: IntArray
    draft_depth: int
    mode: Mode
    reason: str
    measures: bool = False
    propensity: FloatArray | None = None
    predicted_tokens: float = float("nan")
    predicted_seconds: float = float("nan")
    from_lookup: BoolArray | None = None
    notes: tuple[NDArray[Any], ...] = ()
    memo: Any = None

    @property
    def acts(self) -> bool:
        """Return whether the plan changes the engine's behaviour (neither fail-open nor shadow)."""
        return self.mode is not Mode.ENGINE and self.mode is not Mode.SHADOW

    @property
    def kind(self) -> Kind:
        """Why the step runs as it does."""
        if self.measures:
            return Kind.MEASURING
        if not self.acts:
            return Kind.ENGINE
        return Kind.PLANNED if self.mode is Mode.ON else Kind.OFF


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Measured results of a step, as reported by the engine.

    Attributes:
        step: the step that the results belong to.
        slots: [B] decoding requests that were alive when the results arrived.
        verified: [B] verified drafts, without grammar-invalid ones and padding.
        accepted: [B] accepted drafts, 0..verified.
        emitted: [B] emitted tokens (accepted + 1, less tokens cut off by a stop).
        batch_size: requests that decoded in the step, finished ones included.
        batch_tokens: N, verified tokens of the step, with bonus positions, without prompt tokens.
        context_tokens: sum of context lengths of the decoding requests.
        prefill_tokens: prompt tokens that ran in the same step.
        draft_depth: D that the drafter ran at the end of the step.
        ragged: K differed between the requests.
        seconds: duration of the step; nan without a clean measurement.
        now: monotonic clock of the deciding process when results arrived, seconds.
        confidence: [B, Kmax] confidence of the verified drafts where it arrived too late for the
            step's `StepContext`; None where the context has it or it is unknown.
        entropy: [B, Kmax] entropy of the draft distributions in nats, likewise.
        lookup_agreed: [B] leading drafts of the look-up, verified or not, that are what the step
            emitted; None where the engine has one source of drafts.
        prompt_batches: requests, prompt tokens and seconds of each batch of prompts alone that
            ended since the step before; for records only.
    """

    step: int
    slots: IntArray
    verified: IntArray
    accepted: IntArray
    emitted: IntArray
    batch_size: int
    batch_tokens: int
    context_tokens: int
    prefill_tokens: int
    draft_depth: int
    ragged: bool
    seconds: float
    now: float = 0.0
    confidence: FloatArray | None = None
    entropy: FloatArray | None = None
    lookup_agreed: IntArray | None = None
    prompt_batches: tuple[tuple[int, int, float], ...] = ()


class FinishedStep(msgspec.Struct, frozen=True, eq=False):
    """A step whose results have arrived: context, plan and outcome.

    All arrays [B, ...] of the three values have the same rows: the requests that were alive when
    the results arrived. `context.batch_size` may therefore be below `outcome.batch_size`, which
    counts all decoded requests.

    Attributes:
        context: the context that the policy saw.
        plan: the policy's own plan for this step; another plan may have run (shadow mode, an engine
            that clips). Mode ENGINE, without notes and memo, where the policy made no usable plan.
            Without notes and memo where another policy made the plan.
        outcome: the measured results.
    """

    context: StepContext
    plan: SpecPlan
    outcome: StepOutcome
