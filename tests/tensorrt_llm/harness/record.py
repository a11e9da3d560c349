"""What crossed the seam of the controllers, and the check of its labels."""

import threading
from collections import defaultdict
from typing import Any

from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import SpecPlan, StepContext, StepOutcome


class Seam:
    """What crossed the seam of one controller."""

    def __init__(self) -> None:
        self.planned: dict[int, tuple[StepContext, SpecPlan]] = {}
        self.outcomes: dict[int, StepOutcome] = {}

    def steps(self) -> list[tuple[StepContext, SpecPlan, StepOutcome | None]]:
        """What `check_adapter` takes."""
        return [(c, p, self.outcomes.get(step)) for step, (c, p) in self.planned.items()]


class Record(Seam):
    """Of all controllers from now on; of one rank's with `of`.

    Args:
        replace: how to replace an attribute, such as a monkeypatch's `setattr`.
    """

    def __init__(self, replace: Any = setattr) -> None:
        super().__init__()
        self._of_thread: defaultdict[int, Seam] = defaultdict(Seam)
        own_plan, own_observe = Controller.plan, Controller.observe

        def plan(controller: Controller, context: StepContext) -> SpecPlan:
            made = own_plan(controller, context)
            for seam in (self, self._of_thread[threading.get_ident()]):
                seam.planned[context.step] = (context, made)
            return made

        def observe(controller: Controller, outcome: StepOutcome) -> None:
            for seam in (self, self._of_thread[threading.get_ident()]):
                seam.outcomes[outcome.step] = outcome
            own_observe(controller, outcome)

        replace(Controller, "plan", plan)
        replace(Controller, "observe", observe)

    def of(self, executor: Any) -> Seam:
        """What crossed on one rank."""
        return self._of_thread[executor.worker_thread.ident]


def check_labels(record: Seam, truth: list[dict[str, tuple[int, int]]]) -> int:
    """Check that every label is about drafts that were really made; return how many there are.

    Args:
        record: of a run on one rank.
        truth: of its model engine, one entry per forward pass.
    """
    count = 0
    for step, outcome in record.outcomes.items():
        context, _ = record.planned[step]
        row_of = {int(slot): row for row, slot in enumerate(context.slots)}
        for slot, verified, accepted in zip(
            outcome.slots.tolist(),
            outcome.verified.tolist(),
            outcome.accepted.tolist(),
            strict=True,
        ):
            name = context.request_ids[row_of[slot]]
            real, really_accepted = truth[step - 1][name]
            assert verified <= real, f"step {step}, request {name}: filler counted as drafts"
            assert accepted == min(really_accepted, verified), (
                f"step {step}, request {name}: {accepted} of {verified} accepted, "
                f"really {really_accepted} of {real}"
            )
            count += 1
    return count
