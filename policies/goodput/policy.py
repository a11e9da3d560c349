"""`goodput`: verify what maximises expected tokens per second, learned online.

How a step is planned is `adaptive_spec.policies.goodput.planned_policy`. Here: hazards learned
online (`adaptive_spec.acceptance.model`), a watch for changes in them
(`adaptive_spec.acceptance.change_detection`), and what the drafter's confidence is used for: drafts
are admitted by it, at prices the planner has set
(`adaptive_spec.policies.goodput.confidence_admission`).

Apart from that, everything a decision uses comes from finished rounds, so outputs keep their
distribution however drafts are sampled.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.acceptance.change_detection import ChangeDetector
from adaptive_spec.acceptance.model import AcceptanceModel
from adaptive_spec.errors import PolicyError
from adaptive_spec.planning.exploration_plans import Explored
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.policies.goodput.confidence_admission import LiveAdmission
from adaptive_spec.policies.goodput.options import GoodputOptions
from adaptive_spec.policies.goodput.planned_policy import PlannedPolicy
from adaptive_spec.policies.goodput.step_memory import StepMemory
from adaptive_spec.step import (
    Capability,
    DraftPass,
    DraftVerdict,
    FloatArray,
    IntArray,
    Level,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

_LOOK_PERIOD = 16
"""Steps between looks at the drafter's confidence, where history and prices say not to draft."""


class GoodputPolicy(PlannedPolicy[FloatArray | None]):
    """Maximises expected tokens per second of each step.

    Of a context it takes up what the drafter showed for the drafts at hand, [Kmax, B] or None.
    """

    name: ClassVar[str] = "goodput"
    summary: ClassVar[str] = "most expected tokens per second, learned online (default)"
    Options: ClassVar[type[msgspec.Struct]] = GoodputOptions
    reads_entropy: ClassVar[bool] = False
    _saved_as: ClassVar[str] = "acceptance"

    def __init__(self, options: GoodputOptions, *, seed: int = 0) -> None:
        super().__init__(
            options,
            None,
            seed,
            graph_choice=options.graph_choice,
            by_worth=options.token_worth,
        )
        self._options = options
        self._memory = StepMemory()

    def _make_hazards(self, capability: Capability) -> AcceptanceModel:
        self._acceptance = AcceptanceModel(
            capability.max_draft_tokens,
            prior_hazard=self._options.prior_hazard,
            discount=self._options.discount,
            request_effects=self._options.request_effects,
        )
        self._change = ChangeDetector()
        self._live = LiveAdmission(self._acceptance)
        self._live_level = capability.level is not Level.UNIFORM
        return self._acceptance

    def _check_hazards(self, saved: Any) -> None:
        try:
            kmax = len(saved["position_effect"])
        except (KeyError, TypeError) as error:
            raise PolicyError(f"acceptance state does not fit: {error!r}") from error
        AcceptanceModel(kmax).restore(saved)

    # ------------------------------------------------------------------- decide

    def _see(self, context: StepContext) -> FloatArray | None:
        if not self._cost.ready:
            return None
        model = self._acceptance
        model.classes.see(context.slots, context.temperature)
        signal: FloatArray | None = None
        if context.confidence is not None and self._options.confidence:
            self._live.late = False
            signal = model.signal(context.slots, context.confidence)
            signal = self._live.shown(context.slots, signal)
            model.see(context.slots, signal)
        self._memory.keep(context, signal)
        return signal

    def _expect(self, context: StepContext, seen: FloatArray | None) -> Outlook:
        survival = self._acceptance.survival(context.slots, context.task)
        trimmed = self._live_level and self._live.useful
        return self._outlook(
            context,
            survival,
            option_value=self._live.option_value(survival) if trimmed else None,
        )

    def _plan_on(self, outlook: Outlook, seen: FloatArray | None) -> SpecPlan:
        """What the planner wants, what confidence admits of it, and now and then one more."""
        context, best = outlook.context, outlook.best
        verify, depth, reason = best.verify, best.draft_depth, "planned"
        tokens = expected_depth = None
        stops = False
        if self._live.useful and self._live_level:
            if not depth and context.step % _LOOK_PERIOD == 0:
                # Where nothing is drafted nothing is shown, and nothing could be admitted again.
                depth = self._exploring.probe_depth
            if depth:
                stops, reason = context.capability.stops_drafting, "admitted by confidence"
                if seen is not None:
                    self._memory.keep(context, seen, best.goodput)
                    verify, tokens = self._live.admit(outlook, seen, drafted_by_it=stops)
        if stops:
            depth = context.capability.max_draft_tokens
            expected_depth = round(self._live.mean_depth)
        if self._live.useful or seen is not None:
            self._live.set_prices(outlook)
        self._last_depth = depth
        if stops:
            self._exploring.extend_while_drafting(context)
            explored = Explored(verify, depth)
        else:
            explored = self._exploring.extended(
                outlook, verify, depth, self._acceptance.observations
            )
        return outlook.plan(
            explored.verify,
            explored.depth,
            Mode.ON,
            "exploring one deeper" if explored.extended else reason,
            explored.propensity,
            tokens=tokens,
            expected_depth=expected_depth,
        )

    def after_draft_pass(self, draft: DraftPass) -> DraftVerdict:
        """Keep this position, and go on to the next? By confidence, at the planner's prices."""
        unused = self._capability is None or not self._options.confidence
        if unused or self._exploring.measuring or self._modes.mode is not Mode.ON:
            return DraftVerdict(draft.drafting, draft.drafting)
        extend = None
        if draft.position == 0:
            extend = self._exploring.draw_extended(len(draft.slots))
        return self._live.after_pass(draft, extend)

    # -------------------------------------------------------------------- learn

    def _learn(self, outcome: StepOutcome) -> None:
        task: IntArray | None = None
        signal: FloatArray | None = None
        planned = self._memory.take(outcome.step, outcome.slots)
        if planned is not None:
            task, signal = planned.task, planned.signal
            self._learn_prices(outcome, planned.goodput)
        model = self._acceptance
        late = outcome.confidence
        if signal is None and late is not None and self._options.confidence:
            self._live.late = True
            signal = model.signal(outcome.slots, late)
            model.see(outcome.slots, signal)
        model.learn(outcome.slots, outcome.verified, outcome.accepted, task, signal)
        if not self._options.change_detection:
            return
        learned = model.history
        if self._change.observe(learned.surprise, learned.expected_variance, learned.observed):
            model.widen()

    def hazard_quality(self) -> dict[str, dict[str, Any]]:
        """How well acceptance is predicted; see `adaptive_spec.acceptance.calibration`."""
        return {} if self._capability is None else self._acceptance.quality.snapshot()

    def _learn_prices(self, outcome: StepOutcome, planned_goodput: float) -> None:
        seconds = outcome.seconds - self._cost.prefill_seconds(outcome.prefill_tokens)
        if planned_goodput > 0.0 and seconds > 0.0:
            goodput = float(outcome.emitted.sum()) / seconds
            self._live.reached(goodput, planned_goodput, outcome.draft_depth)
