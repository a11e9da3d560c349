"""What the members of an ensemble share: posterior, step times, and looking where nobody looks.

All plans are scored with one posterior of acceptance and one cost model. Members explore only for
themselves, and only while they lead; so the ensemble times K that a load has not run, tries one
draft more, and looks again while its leader does not speculate.
"""

from __future__ import annotations

import msgspec
import numpy as np

from adaptive_spec.acceptance.model import AcceptanceModel
from adaptive_spec.cost.model import CostModel
from adaptive_spec.cost.profile import CostProfile
from adaptive_spec.planning.cost_probes import CostProbes
from adaptive_spec.planning.exploration import FRACTION, FRACTION_OF_NONE, Explorer
from adaptive_spec.planning.planner import Admission, best_admission
from adaptive_spec.planning.step_forecast import Outlook
from adaptive_spec.policies.ensemble.looking_again import LookingAgain
from adaptive_spec.step import (
    Capability,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

OFF = (Mode.OFF_WARM, Mode.OFF_COLD)
_MEASURED_EVERY = 4
"""Steps; `CostProbes` asks for a new K only in these."""


class Shared:
    """The shared models and the exploration on their behalf.

    Args:
        capability: of the engine.
        profile: to start the cost model from.
        seed: of the exploration.
    """

    def __init__(self, capability: Capability, profile: CostProfile | None, seed: int) -> None:
        self.acceptance = AcceptanceModel(capability.max_draft_tokens)
        self.cost = CostModel(capability, profile)
        self.looking = LookingAgain()
        self._cost_probes = CostProbes(self.cost)
        self._explorer = Explorer(capability, seed)
        self._extend_next = False

    def outlook(self, context: StepContext) -> Outlook:
        """What the shared posterior and cost model expect."""
        survival = self.acceptance.survival(context.slots, context.task)
        # Prompts are left out: their time is due whatever K is.
        verify_seconds = self.cost.verify_seconds(
            context.batch_size, int(context.context_tokens.sum()), 0
        )
        draft_seconds = self.cost.draft_seconds(context.batch_size)
        best = Admission(np.zeros(context.batch_size, dtype=np.int64), 0, 0.0, 0.0)
        if context.step % _MEASURED_EVERY == 0 and self.cost.missing_depths(context.batch_size):
            best = best_admission(
                survival,
                None,
                context.draft_possible,
                context.draft_possible,
                verify_seconds,
                draft_seconds,
                context.capability,
            )
        prefill = self.cost.prefill_seconds(context.prefill_tokens)
        return Outlook(context, survival, None, verify_seconds, draft_seconds, prefill, best)

    def timed(
        self, plan: SpecPlan, context: StepContext, outlook: Outlook | None
    ) -> SpecPlan | None:
        """Run a K that this load has not been timed with; two steps, as in `goodput`."""
        verify = self._cost_probes.to_verify(context)
        if verify is not None:
            reason = f"measuring K = {int(verify.max(initial=0))}"
        else:
            depth = self._cost_probes.to_draft(context, outlook)
            if depth is None:
                return None
            verify, reason = plan.verify, f"drafting {depth} to measure it"
            plan = msgspec.structs.replace(plan, draft_depth=depth)
        mode = Mode.ON if plan.draft_depth or verify.any() else plan.mode
        return msgspec.structs.replace(
            plan, verify=verify, mode=mode, propensity=None, reason=reason
        )

    def explored(self, plan: SpecPlan, context: StepContext) -> SpecPlan:
        """The plan with one draft more, now and then, where nobody else would."""
        explorer = self._explorer
        if self.looking.looking:
            verify, propensity = explorer.extend(
                np.zeros_like(plan.verify), context.draft_available, FRACTION_OF_NONE
            )
            depth = explorer.deeper(0)
            return msgspec.structs.replace(
                plan,
                verify=verify,
                draft_depth=depth,
                mode=Mode.OFF_WARM,
                propensity=propensity,
                reason="looking again",
            )
        if plan.mode in OFF or context.capability.stops_drafting:
            self._extend_next = False
            return plan
        if self._extend_next and plan.propensity is None:
            verify, propensity = explorer.extend(plan.verify, context.draft_available, FRACTION)
            plan = msgspec.structs.replace(
                plan, verify=verify, propensity=propensity, reason="exploring one deeper"
            )
        depth = plan.draft_depth
        self._extend_next = explorer.due(
            context.step, depth, self.acceptance.observations, nobody=not plan.verify.any()
        )
        if self._extend_next:
            plan = msgspec.structs.replace(plan, draft_depth=explorer.deeper(depth))
        return plan

    def look(self, *, off: bool, member_looks: bool, step_seconds: float, now: float) -> None:
        """Begin or end a look, see `LookingAgain.step`."""
        before = self.looking.looking
        looking = self.looking.step(
            off=off, member_looks=member_looks, step_seconds=step_seconds, now=now
        )
        if looking and not before:
            self.acceptance.widen()

    def signal(self, context: StepContext) -> FloatArray | None:
        """[Kmax, B] what the drafter showed for the drafts at hand."""
        model = self.acceptance
        model.classes.see(context.slots, context.temperature)
        if context.confidence is None:
            return None
        signal: FloatArray = model.signal(context.slots, context.confidence)
        model.see(context.slots, signal)
        return signal

    def learn(
        self,
        outcome: StepOutcome,
        task: IntArray | None,
        signal: FloatArray | None,
        *,
        cold: bool,
    ) -> None:
        """Take up a finished step; `cold`: the drafter's own pass was left out."""
        self.acceptance.learn(outcome.slots, outcome.verified, outcome.accepted, task, signal)
        self.cost.learn(outcome, cold=cold)
