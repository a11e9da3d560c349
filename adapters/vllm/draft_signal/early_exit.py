"""Ending the drafter's loop early: after each of its passes the controller is asked.

The scheduler's half. It exists where the drafter runs in the scheduler's process and thread
(`Capability.stops_drafting`; the conditions are in `capability`), and is found there by the
engine's `instance_id`. The drafter's half is `draft_loop`.

Asked are the requests that were decoding when the step was planned, in the order of its context. A
request whose prompt ends in the step is drafted for in every pass that runs, as in the simulator;
it holds up none. A request is not drafted beyond what it can still use.

What the drafter shows of a request that is no longer drafted for is seen by nobody: not by the
policy while the passes of others run on, nor with the drafts. If asking fails, the loop runs to
its end, and what had been given up until then stays given up: so it is decided in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE
from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import BoolArray, DraftPass, FloatArray, IntArray, StepContext

_OF_ENGINE: WeakValueDictionary[str, EarlyExit] = WeakValueDictionary()


def of_engine(instance_id: str) -> EarlyExit | None:
    """The one of this engine's scheduler; None where drafting is not ended early."""
    return _OF_ENGINE.get(instance_id)


class DraftingStep(Protocol):
    """A planned step, as far as its drafting goes."""

    @property
    def context(self) -> StepContext:
        """What it was planned from."""
        ...

    passes: int | None
    """Draft passes that ran, where the loop was asked about; else None."""


class EarlyExit:
    """One per scheduler.

    Attributes:
        able: nothing of ours has failed yet.
        gave_up: in the last round that was asked about, a request was given less than the planned
            depth and its limits allow.
    """

    def __init__(self, scheduler: Any, controller: Controller) -> None:
        self.able = True
        self.gave_up = False
        self._controller = controller
        self._scheduler = scheduler
        self._instance_id = str(scheduler.vllm_config.instance_id)
        self._step: DraftingStep | None = None
        self._round: DraftRound | None = None
        _OF_ENGINE[self._instance_id] = self

    def withdraw(self) -> None:
        """The scheduler shuts down."""
        if _OF_ENGINE.get(self._instance_id) is self:
            del _OF_ENGINE[self._instance_id]

    def expect(self, step: DraftingStep | None) -> None:
        """The step that runs next, if its drafting may be ended early; else None."""
        self._step, self._round = step, None

    def begin(self, names: Sequence[str], depth: int) -> DraftRound | None:
        """Drafting begins: who asks after each pass; None if nobody is to.

        Args:
            names: [R] requests in the order of the drafter's batch.
            depth: the most passes.
        """
        step, self._step, self.gave_up = self._step, None, False
        if step is None or depth < 1 or not self.able or not self._controller.stops_drafting:
            return None
        row_of = {name: row for row, name in enumerate(names)}
        found = [(place, row_of.get(name)) for place, name in enumerate(step.context.request_ids)]
        pairs = [(place, row) for place, row in found if row is not None]
        # The controller knows of one round only. Of an earlier one it has to go on verifying all
        # that is left.
        if not pairs or self._left_over():
            return None
        here, rows = np.array(pairs, dtype=np.int64).T
        self._round = DraftRound(self._controller, step, here, rows, depth)
        return self._round

    def trim(self, drafts: Any) -> None:
        """Drafts arrive: leave what was kept of each request's. `drafts`: vLLM's DraftTokenIds."""
        made, self._round = self._round, None
        if made is None:
            if not self._left_over():
                self._controller.drafted_whole()
            return
        rows = drafts.draft_token_ids
        if rows and len(rows[0]) != made.passes:  # passes ran of which nothing was shown
            made.abandon()
        self.gave_up = made.gave_up
        if made.passes < made.depth:
            counters = self._controller.counters
            counters.event("draft_rounds_ended_early")
            counters.event("draft_passes_saved", made.depth - made.passes)
        kept = made.kept()
        drafts.draft_token_ids = [
            tokens[: kept.get(name, len(tokens))]
            for name, tokens in zip(drafts.req_ids, rows, strict=True)
        ]
        signals = getattr(drafts, ATTRIBUTE, None)
        if signals is None:
            return
        for row, name in enumerate(signals.request_ids):
            if name in kept:
                signals.confidence[row, kept[name] :] = np.nan
                signals.entropy[row, kept[name] :] = np.nan

    def failed(self, error: Exception) -> None:
        """Asking has failed on the drafter's side: counted, said once, and ended."""
        if not self.able:
            return
        self.able = False
        try:
            self._controller.fault(f"early exit raised {type(error).__name__}: {error}")
        except Exception:  # not even the report may reach the engine
            return

    def _left_over(self) -> bool:
        """A request was not scheduled, and keeps drafts of an earlier round.

        Of those that were scheduled vLLM has taken the drafts, and new ones are not there yet.
        """
        return any(request.spec_token_ids for request in self._scheduler.running)


class DraftRound:
    """The passes of one round.

    Attributes:
        depth: the most passes.
        passes: that ran.
    """

    def __init__(
        self, controller: Controller, step: DraftingStep, here: IntArray, rows: IntArray, depth: int
    ) -> None:
        """`here`: [B] places in the step's context; `rows`: [B] rows of the drafter's batch."""
        context = step.context
        self.depth = depth
        self.passes = 0
        self._controller = controller
        self._step = step
        self._rows = rows
        self._names = [context.request_ids[place] for place in here.tolist()]
        self._slots: IntArray = context.slots[here]
        self._room: IntArray = np.minimum(context.draft_possible[here], depth)
        self._drafting: BoolArray = self._room > 0
        self._anyone = bool(self._drafting.any())
        self._kept: IntArray = np.zeros(len(rows), dtype=np.int64)
        self._shown: FloatArray = np.full((2, len(rows), depth), np.nan)

    @property
    def gave_up(self) -> bool:
        """A request was given less than it could have had."""
        return bool((self._kept < self._room).any())

    def goes_on(self, certainty: FloatArray) -> bool:
        """A pass has run: does another one?

        Args:
            certainty: [2, R] maximum probability and entropy (nats) by row of the drafter's batch.
        """
        position, drafting = self.passes, self._drafting
        self._shown[:, :, position] = np.where(drafting, certainty[:, self._rows], np.nan)
        self.passes = self._step.passes = position + 1
        if not self._anyone:
            return False
        verdict = self._controller.after_draft_pass(
            DraftPass(
                step=self._step.context.step,
                position=position,
                slots=self._slots,
                drafting=drafting,
                # Views: later passes write beyond them.
                confidence=self._shown[0, :, : position + 1],
                entropy=self._shown[1, :, : position + 1],
            )
        )
        self._kept += verdict.admitted
        self._drafting = verdict.drafting & (self._room > position + 1)
        self._anyone = bool(self._drafting.any())
        return self._anyone

    def abandon(self) -> None:
        """Nobody asks any more in this round: the loop runs to its end."""
        self._kept = np.where(self._drafting, self._room, self._kept)
        self.passes, self._step.passes = self.depth, None

    def kept(self) -> dict[str, int]:
        """Drafts kept, by request."""
        return dict(zip(self._names, self._kept.tolist(), strict=True))
