"""The values that cross the seam between an engine, the controller and a policy.

Three values describe one engine step, each with arrays over the batch:

* `StepContext`: what is known before the step (adapter -> policy);
* `SpecPlan`: what to verify now and how deep to draft next (policy -> adapter);
* `StepOutcome`: what really ran and what was accepted (adapter -> controller), one or two
  steps later where the engine schedules ahead.

`FinishedStep` is all three together, row by row (controller -> policy).

A policy that ends drafting early sees each pass of the drafter as a `DraftPass` and answers with a
`DraftVerdict`.

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
    """How finely an engine can be steered."""

    UNIFORM = 0
    """L0: one K for the whole batch, out of the ladder."""
    VERIFY = 1
    """L1: draft depth is fixed, the verified K_i is free per request."""
    FULL = 2
    """L2: draft depth per step and verified K_i per request are both free."""


class Mode(enum.StrEnum):
    """What speculation does in a step."""

    ON = "on"
    SHADOW = "shadow"
    """The engine's own K runs; the decision is only recorded."""
    OFF_WARM = "off_warm"
    """K = 0, the drafter still runs the pass that keeps its state in step."""
    OFF_COLD = "off_cold"
    """K = 0 and no drafter pass."""
    ENGINE = "engine"
    """Fail-open: the engine's own K, because our decision could not be used."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine allows. Fixed for the life of a server.

    Attributes:
        level: granularity of control.
        max_draft_tokens: Kmax, the K the engine was configured with (>= 1).
        ladder: the K values that may run at level UNIFORM, ascending. Empty means 0..Kmax.
        token_buckets: captured batch-token sizes, ascending. A batch of N verified tokens runs
            as the smallest bucket >= N; beyond the last one it runs unpadded. Empty: no padding.
        depth_follows: the drafter drafts as deep as it is told. False where it always drafts Kmax,
            so that only verification can be trimmed; never true at level VERIFY.
        stops_drafting: the engine asks after each pass of the drafter whether to go on
            (`adaptive_spec.policy.DraftStopper`), so that D is the most it may run.
        off_pass: K = 0 still runs one drafter pass (OFF-warm). False for drafters without a
            model, such as n-gram.
        sampled_drafts: drafts are drawn from the drafter's distribution, so that verification
            uses their probability. False where each is the drafter's likeliest token, or a copied
            one, and is verified as such. Policies for greedy drafts only are refused if true.
        cold_off: the engine can leave that pass out as well (OFF-cold). Requests alive at that
            time are not drafted for any more if the drafter has a state. Not where the depth is
            fixed: what its passes cost can't be told there from steps that all have them.
        ragged_penalty: relative extra verify time of a batch whose K differ from each other,
            where a uniform batch runs a faster graph. 0 where it makes no difference.
    """

    level: Level
    max_draft_tokens: int
    ladder: tuple[int, ...] = ()
    token_buckets: tuple[int, ...] = ()
    depth_follows: bool = True
    stops_drafting: bool = False
    off_pass: bool = True
    sampled_drafts: bool = False
    cold_off: bool = False
    ragged_penalty: float = 0.0

    def __post_init__(self) -> None:
        if self.max_draft_tokens < 1:
            raise ValueError(f"max_draft_tokens must be >= 1, got {self.max_draft_tokens}")
        if self.stops_drafting and self.level is not Level.FULL:
            raise ValueError("stops_drafting needs level FULL: elsewhere K does not follow it")
        if any(not 0 <= k <= self.max_draft_tokens for k in self.ladder):
            raise ValueError(f"ladder {self.ladder} leaves 0..{self.max_draft_tokens}")
        if list(self.ladder) != sorted(set(self.ladder)):
            raise ValueError(f"ladder {self.ladder} must ascend without repeats")
        if list(self.token_buckets) != sorted(set(self.token_buckets)):
            raise ValueError("token_buckets must ascend without repeats")

    @property
    def steers_depth(self) -> bool:
        """The draft depth D of a plan has an effect."""
        return self.depth_follows and self.level is not Level.VERIFY

    @property
    def uniform_values(self) -> tuple[int, ...]:
        """The K values a uniform plan may take, ascending."""
        return self.ladder or tuple(range(self.max_draft_tokens + 1))


class StepContext(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is known before a step.

    Attributes:
        step: number of the step, ascending.
        capability: what the engine allows.
        request_ids: [B] the engine's own names, for records only.
        slots: [B] small integers that identify the requests; see `RequestSlots`.
        context_tokens: [B] tokens in the KV cache.
        draft_available: [B] drafts at hand for this verification, 0..Kmax, after every limit of
            the engine (grammar, max tokens, model length, what was drafted) and the cap or opt-out
            that came with the request.
        draft_possible: [B] drafts that could still be used by the step after this one, 0..Kmax,
            under the same limits and caps.
        engine_k: K the engine itself would use for this batch (its static K or its own table).
        tpot_target: [B] seconds per output token asked for; inf if none.
        task: [B] number of the request's task label, -1 without one.
        temperature: [B] sampling temperature of the target.
        confidence: [B, Kmax] maximum probability of the draft distribution at each drafted
            position (nan where unknown), or None without such a signal.
        entropy: [B, Kmax] entropy of that distribution in nats, likewise.
        waiting: requests in the queue.
        prefill_tokens: prompt tokens that share this step.
        kv_free_tokens: free tokens of the KV pool.
        kv_total_tokens: size of the KV pool in tokens.
        kv_draft_limit: [B] drafts for which the engine finds KV blocks in this step without
            preempting a request, where it can say so block by block; None: go by `kv_free_tokens`.
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
    kv_free_tokens: int = 1 << 40
    kv_total_tokens: int = 1 << 40
    kv_draft_limit: IntArray | None = None
    now: float = 0.0

    @property
    def batch_size(self) -> int:
        """B, the number of decoding requests in this step."""
        return len(self.slots)


class SpecPlan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A decision for one step.

    Attributes:
        step: the step it was made for.
        verify: [B] K_i, drafts of each request to verify in this step; <= draft_available.
        draft_depth: D, how deep to draft at the end of this step, for the next one.
        mode: what speculation does.
        reason: a few words for people: why this K.
        propensity: [B] probability with which the randomised policy chose these K_i
            (1 where it did not randomise), for off-policy evaluation.
        predicted_tokens: tokens this step is expected to emit; nan if not predicted.
        predicted_seconds: expected duration of the step; nan if not predicted.
        notes: arrays [B, ...] that the policy wants back in `FinishedStep.plan`, with the rows of
            the requests that are still alive. Nobody else reads them.
        memo: any other value that the policy wants back; None if nothing.
    """

    step: int
    verify: IntArray
    draft_depth: int
    mode: Mode
    reason: str
    propensity: FloatArray | None = None
    predicted_tokens: float = float("nan")
    predicted_seconds: float = float("nan")
    notes: tuple[NDArray[Any], ...] = ()
    memo: Any = None


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What really ran in a step, as far as the engine says.

    Attributes:
        step: the step it belongs to.
        slots: [B] the decoding requests that were alive when results arrived.
        verified: [B] drafts really verified, without grammar-invalid ones and padding.
        accepted: [B] accepted drafts, 0..verified.
        emitted: [B] tokens emitted (accepted + 1, less what a stop cut off).
        batch_size: requests that decoded in the step, finished ones included.
        batch_tokens: N, verified tokens of the step, bonus positions included, prompt
            tokens excluded.
        context_tokens: sum of context lengths of the decoding requests.
        prefill_tokens: prompt tokens that ran in the same step.
        draft_depth: D that the drafter ran at the end of the step.
        ragged: K differed between the requests.
        seconds: duration of the step; nan if it could not be measured cleanly.
        now: monotonic clock of the deciding process when results arrived, seconds.
        confidence: [B, Kmax] confidence of the verified drafts, where it came too late for the
            step's `StepContext`; None where it was there, or isn't known.
        entropy: [B, Kmax] entropy of the draft distributions in nats, likewise.
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


class FinishedStep(msgspec.Struct, frozen=True, eq=False):
    """A step whose results have arrived: what was known, what was planned, what came of it.

    All arrays [B, ...] of the three values have the same rows, those of the requests that were
    alive when the results arrived. So `context.batch_size` may be below `outcome.batch_size`,
    which counts all that decoded.

    Attributes:
        context: as the policy saw it.
        plan: the policy's own plan for this step, which may not be what ran (shadow mode, an engine
            that clips). The engine's own K, mode ENGINE, without notes or memo, where the policy
            made no usable plan. Without notes and memo, too, where another policy made it.
        outcome: what ran.
    """

    context: StepContext
    plan: SpecPlan
    outcome: StepOutcome


class DraftPass(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One pass of the drafter, while it runs: what is known before its token decides anything.

    Attributes:
        step: the step at whose end the drafter runs.
        position: j, from 0: the draft position this pass is for.
        slots: [B] the requests.
        drafting: [B] those that are still being drafted for.
        confidence: [B, j + 1] maximum probability of the draft distribution at each position so
            far (nan where unknown).
        entropy: [B, j + 1] entropy of that distribution in nats.
    """

    step: int
    position: int
    slots: IntArray
    drafting: BoolArray
    confidence: FloatArray
    entropy: FloatArray


class DraftVerdict(msgspec.Struct, frozen=True, eq=False):
    """What follows from a pass.

    Attributes:
        admitted: [B] the draft of this position is kept, to be verified.
        drafting: [B] the request is drafted for in the next pass; implies `admitted`.
    """

    admitted: BoolArray
    drafting: BoolArray
