"""Baseline: AdaSpec (SpecServe): drafts until predicted goodput falls, then cuts to a graph size.

Source: Huang et al., 2503.05096 (SoCC 2025), and its code (cerebellumking/AdaSpec,
vllm/spec_decode/draft_model_runner.py and top1_proposer.py). Granularity: one draft depth per
batch, then K per request. Signals: probability of each drafted token, context, a cost table.

    goodput(k) = (B + sum_i sum_{j <= k} a_ij) / T(B, context, k),   a_ij = product of q(x_il)

q(x) is the drafter's probability of the token it drafted, c the mean of those so far (0.6 at
first).

* Draft if goodput(1), with c for a_i1, is above goodput(0).
* Before each further pass, predict a_i,k+1 = c a_ik; stop if that lowers goodput.
* After each pass, stop if the real probabilities lowered goodput; the pass is kept. Passes that did
  not lower it are averaged into c.
* Verification: N = B + drafts is cut to the next smaller captured size (a power of two up to 32,
  then multiples of 32) by dropping drafts of the requests with the smallest a_i at their last
  draft; the cut stands if goodput does not fall.
* `tpot_limit_seconds`: a k with T above the limit is infeasible. The released code comments this
  line out (limit 0.04 s), so no limit is the default.

Faults kept:

* A draft's probability stands for its acceptance probability.
* q of the sampled token decides over that token, which biases sampled output; use greedy drafts.
* N at a captured size is cut to the size below; a request picked for cutting loses all its drafts
  before the next one loses any.

Where the engine exposes no probabilities, c is the acceptance rate so far and stands for all (a_ij
= c^j); nothing is then cut. `Capability.token_buckets` are the captured sizes where given. Times
come from the option `profile`, or from extra steps at each new load. If not even one draft pays,
upstream skips the drafter (`cold`); by default its state is kept here, because requests alive at
that time would never be drafted for again.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy import Provenance
from adaptive_spec.policy_helpers import StatelessPolicy, nearest_allowed, off_mode
from adaptive_spec.sim.baselines.parts.start_up_profile import StartUpProfile
from adaptive_spec.sim.engine.early_stop import DraftPass, DraftVerdict
from adaptive_spec.step import (
    FinishedStep,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
)

_UNANSWERED = 3
"""Plans to draft without a call after a pass, after which the engine counts as one without calls.
"""

Positive = Annotated[float, msgspec.Meta(gt=0)]


class AdaSpecOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of `adaspec`."""

    profile: str | None = None
    """File with a cost profile; without one, each load is profiled when it first occurs."""
    initial_confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.6
    tpot_limit_seconds: Positive | None = None
    """Longest step with drafts, the SLO (seconds); absent: no limit, as released."""
    cut: bool = True
    """Cut the verification to a captured size."""
    cold: bool = False
    """Skip the drafter at K = 0 where the engine can."""


class AdaSpecPolicy(StatelessPolicy):
    """Policy that drafts while predicted goodput rises, and verifies up to a captured size.

    Attributes:
        total, drafts: sum of the confidences of the drafts so far, and how many they were.
    """

    name: ClassVar[str] = "adaspec"
    summary: ClassVar[str] = "drafts while goodput by draft probability rises (AdaSpec, SpecServe)"
    Options: ClassVar[type[msgspec.Struct]] = AdaSpecOptions
    provenance: ClassVar[Provenance] = Provenance(
        source="2503.05096; cerebellumking/AdaSpec, vllm/spec_decode/draft_model_runner.py",
        granularity=Level.FULL,
        faults="draft probability stands for acceptance; cuts below a captured size",
        greedy_drafts_only=True,
    )

    def __init__(self, options: AdaSpecOptions, *, seed: int = 0) -> None:
        del seed
        self._options = options
        self._times = StartUpProfile(options.profile)
        self.total = 0.0
        self.drafts = 0
        self._uses_confidence = False
        self._unanswered = 0
        self._depth: int | None = None
        self._context_tokens = 0
        self._seconds: FloatArray = np.zeros(0)
        self._batch_of_seconds = 0
        self._goodput = 0.0
        self._profiling = False

    # -------------------------------------------------------------------- plan

    def plan(self, context: StepContext) -> SpecPlan:
        """Cut the available drafts, and decide whether and how deep to draft."""
        capability = context.capability
        self._times.start(capability)
        at_hand = context.engine_k if self._depth is None else self._depth
        measure = self._times.unmeasured(context)
        self._profiling = measure is not None
        if measure is not None:
            return self._plan_of(context, at_hand, measure, "profiling")
        if context.batch_size == 0 or not self._times.ready:
            self._seconds = np.zeros(0)
            return self._plan_of(context, at_hand, context.engine_k, "nothing known")
        self._uses_confidence = context.confidence is not None
        self._predict(context)
        if not capability.steers_depth:
            kept = self._depth_by_probabilities(context)
            verify = self._cut(context, np.minimum(context.draft_available, kept))
            return self._plan_of(context, kept, kept, f"goodput falls after {kept}", verify)
        depth = self._depth_to_draft(context)
        verify = self._cut(context, np.minimum(context.draft_available, at_hand))
        return self._plan_of(context, at_hand, depth, f"drafting up to {depth}", verify)

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Keep each pass; go on while real and then predicted goodput rises."""
        self._unanswered = 0
        go_on = DraftVerdict(draft.drafting, draft.drafting)
        batch = len(draft.slots)
        if self._profiling or self._seconds.size == 0 or batch == 0:
            return go_on
        if batch != self._batch_of_seconds:  # a request was preempted since the plan
            self._time(batch, self._context_tokens)
        survival = self._survival(draft.confidence)
        done = draft.position + 1
        if self._pays(survival, draft.confidence[:, -1], done):
            return go_on
        return DraftVerdict(draft.drafting, np.zeros(batch, dtype=np.bool_))

    def _pays(self, survival: FloatArray, newest: FloatArray, done: int) -> bool:
        """Whether to go on after pass `done`.

        Args:
            survival: [B, done] a_ij.
            newest: [B] probabilities of the newest drafts.
            done: passes so far.
        """
        goodput = self._goodput_of(done, float(survival.sum()))
        fell = goodput < self._goodput
        self._goodput = goodput
        if fell:
            return False
        known = newest[np.isfinite(newest)]
        self.total += float(known.sum())
        self.drafts += known.size
        if done >= len(self._seconds) - 1:
            return False
        value = float(survival.sum() + survival[:, -1].sum() * self._confidence)
        return not self._goodput_of(done + 1, value) < goodput

    def _depth_to_draft(self, context: StepContext) -> int:
        """Return the most passes to run: 0, or Kmax where the engine calls after each pass."""
        kmax = context.capability.max_draft_tokens
        first = context.batch_size * self._confidence
        if not self._goodput_of(1, first) > self._goodput:
            return 0
        if self._uses_confidence and self._unanswered <= _UNANSWERED:
            self._unanswered += 1
            return kmax
        survival = self._confidence ** np.arange(1, kmax + 1)
        values = context.batch_size * np.cumsum(survival)
        allowed = [k for k in context.capability.uniform_values if k > 0]
        best, highest = 0, 0.0
        for k in allowed:
            goodput = self._goodput_of(k, float(values[k - 1]))
            if goodput < highest:
                break
            best, highest = k, goodput
        return best

    def _depth_by_probabilities(self, context: StepContext) -> int:
        """Apply the same stop to complete drafts: return the number to verify."""
        if context.confidence is None:
            return self._depth_to_draft(context)
        batch = context.batch_size
        if not self._goodput_of(1, batch * self._confidence) > self._goodput:
            return 0
        survival = self._survival(context.confidence)
        done = 1
        while self._pays(survival[:, :done], context.confidence[:, done - 1], done):
            done += 1
        return done

    def _cut(self, context: StepContext, verify: IntArray) -> IntArray:
        """Return [B] K_i cut to the next smaller captured size, if goodput does not fall."""
        drafts = int(verify.sum())
        uniform = context.capability.level is Level.UNIFORM
        if not self._options.cut or context.confidence is None or uniform or drafts == 0:
            return verify
        batch, depth = context.batch_size, int(verify.max())
        excess = batch + drafts - self._size_below(context, batch + drafts)
        survival = self._survival(context.confidence)
        last = np.where(verify > 0, survival[np.arange(batch), verify - 1], np.inf)
        order = np.argsort(last, kind="stable")
        before = np.cumsum(verify[order]) - verify[order]
        cut = verify.copy()
        cut[order] -= np.clip(excess - before, 0, verify[order])
        position = np.arange(survival.shape[1])
        whole = float(np.where(position < verify[:, None], survival, 0.0).sum())
        less = float(np.where(position < cut[:, None], survival, 0.0).sum())
        if self._ragged_goodput(context, cut, depth, less) >= self._ragged_goodput(
            context, verify, depth, whole
        ):
            return cut
        return verify

    # ------------------------------------------------------------------- learn

    def observe(self, step: FinishedStep) -> None:
        """Learn step times, and the acceptance rate where the engine exposes no probabilities."""
        outcome = step.outcome
        self._times.learn(outcome)
        if not self._uses_confidence:
            self.total += float(outcome.accepted.sum())
            self.drafts += int((outcome.accepted + (outcome.accepted < outcome.verified)).sum())

    # --------------------------------------------------------------- internals

    @property
    def _confidence(self) -> float:
        """c, the mean probability of the drafts so far."""
        return self.total / self.drafts if self.drafts else self._options.initial_confidence

    def _survival(self, confidence: FloatArray) -> FloatArray:
        """Return [B, j] a_ij; c replaces unknown probabilities."""
        known = np.where(np.isfinite(confidence), confidence, self._confidence)
        return np.asarray(np.cumprod(known, axis=1), dtype=np.float64)

    def _predict(self, context: StepContext) -> None:
        """Predict the step times of this batch, and goodput without speculation."""
        self._time(context.batch_size, int(context.context_tokens.sum()))
        self._goodput = self._goodput_of(0, 0.0)

    def _time(self, batch: int, context_tokens: int) -> None:
        self._batch_of_seconds, self._context_tokens = batch, context_tokens
        self._seconds = self._times.round_seconds(
            batch, context_tokens, off_without_drafter=self._options.cold
        )

    def _goodput_of(self, k: int, value: float) -> float:
        """Return tokens per second with k drafts each and `value` accepted; -1 if infeasible."""
        seconds = float(self._seconds[k])
        limit = self._options.tpot_limit_seconds
        if k and limit is not None and seconds > limit:
            return -1.0
        return (self._batch_of_seconds + value) / seconds

    def _ragged_goodput(
        self, context: StepContext, verify: IntArray, depth: int, value: float
    ) -> float:
        seconds = self._times.ragged_seconds(
            context.batch_size, self._context_tokens, int(verify.sum()), depth
        )
        return (context.batch_size + value) / seconds

    def _size_below(self, context: StepContext, tokens: int) -> int:
        """Return the largest captured size below N, but not below B."""
        buckets = [size for size in context.capability.token_buckets if size < tokens]
        if buckets:
            size = buckets[-1]
        elif tokens <= 32:
            size = 1 << max((tokens - 1).bit_length() - 1, 0)
        else:
            size = (tokens - 1) // 32 * 32
        return max(size, context.batch_size)

    def _plan_of(
        self,
        context: StepContext,
        now: int,
        following: int,
        reason: str,
        verify: IntArray | None = None,
    ) -> SpecPlan:
        """Plan to verify `verify`, or `now` for all, and to draft `following`."""
        capability = context.capability
        following = nearest_allowed(following, capability.uniform_values)
        if capability.level is Level.UNIFORM and context.batch_size:
            most = min(now, int(context.draft_available.max()))
            verify = np.minimum(
                context.draft_available, nearest_allowed(most, capability.uniform_values)
            )
        if verify is None:
            verify = np.minimum(context.draft_available, now)
        self._depth = following
        on = following > 0 or bool(verify.any())
        cold = self._options.cold and not self._profiling
        off = off_mode(capability) if cold else Mode.OFF_WARM
        return SpecPlan(
            step=context.step,
            verify=verify,
            draft_depth=following,
            mode=Mode.ON if on else off,
            reason=reason,
        )
