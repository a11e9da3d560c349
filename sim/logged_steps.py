"""Recorded steps as the values a policy sees."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from adaptive_spec.controller.steps_in_flight import finished_step
from adaptive_spec.errors import DataError
from adaptive_spec.per_request import RequestSlots
from adaptive_spec.policy import Policy
from adaptive_spec.sim.step_trace import RecordedStep, Signal, Source, find_trace
from adaptive_spec.step import (
    Capability,
    FloatArray,
    IntArray,
    SpecPlan,
    StepContext,
    StepOutcome,
)


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """One step: its context and its outcome.

    Attributes:
        context: as a policy sees it, slots given anew.
        outcome: what ran.
        ended: slots whose last step this is.
        record: the step as it was written.
    """

    context: StepContext
    outcome: StepOutcome
    ended: IntArray
    record: RecordedStep


class LoggedTrace:
    """A recorded trace, read anew each time its steps are asked for.

    Args:
        source: of the steps.

    Raises DataError naming the place, and the step where one is wrong.
    """

    def __init__(self, source: Source) -> None:
        self._trace = find_trace(source)
        self.directory = self._trace.name
        self.length = 0
        """Steps in which a request decodes."""
        self._last_step: dict[int, int] = {}
        for at, record in enumerate(self._records()):
            self._last_step.update(dict.fromkeys(record.requests, at))
            self.length = at + 1
        if not self.length:
            raise DataError(
                f"{self.directory}: no steps in which a request decodes in any steps-*.jsonl"
            )

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self._last_step)

    def steps(self) -> Iterator[LoggedStep]:
        """The steps in which a request decodes, in order."""
        slots = RequestSlots()
        capability: Capability | None = None
        total = 1 << 40
        number, shift = -1, 0
        for at, record in enumerate(self._records()):
            capability = record.capability or capability
            if record.kv_total_tokens is not None:
                total = record.kv_total_tokens
            if capability is None:
                raise DataError(
                    f"{self.directory}: its first line says nothing of the engine's limits "
                    "(`capability`): keep segments whole"
                )
            names = [str(number) for number in record.requests]
            rows = np.array([slots.assign(name) for name in names], dtype=np.int64)
            leaving = [str(n) for n in record.requests if self._last_step[n] == at]
            ended = np.array([slots.get(name) for name in leaving], dtype=np.int64)
            # The server's own numbers, by which a policy looks for trials in some steps; ascending
            # even where the recording process was started anew.
            shift = max(shift, number + 1 - record.step)
            number = record.step + shift
            context = self._context(record, number, rows, capability, total)
            outcome = record.outcome(context.step, context.slots)
            yield LoggedStep(context, outcome, ended, record)
            for name in leaving:
                slots.release(name)

    def _records(self) -> Iterator[RecordedStep]:
        for step in self._trace.steps():
            if step.ids and all(step.ids):
                yield step

    def _context(
        self,
        record: RecordedStep,
        number: int,
        slots: IntArray,
        capability: Capability,
        kv_total_tokens: int,
    ) -> StepContext:
        available, possible, engine_k = record.available, record.possible, record.engine_k
        contexts = record.contexts
        if available is None or possible is None or contexts is None or engine_k is None:
            raise DataError(
                f"{self.directory}, step {record.step}: no column `available`, `possible`, "
                "`contexts` or `engine_k`: the trace is from an older version; record it anew"
            )
        batch = len(slots)
        return StepContext(
            step=number,
            capability=capability,
            request_ids=record.ids,
            slots=slots,
            context_tokens=_integers(contexts),
            draft_available=_integers(available),
            draft_possible=_integers(possible),
            engine_k=engine_k,
            tpot_target=_numbers(record.tpot_target, math.inf, (batch,)),
            task=np.full(batch, -1) if record.task is None else _integers(record.task),
            temperature=_numbers(record.temperature, 0.0, (batch,)),
            confidence=self._matrix(record, record.confidence),
            entropy=self._matrix(record, record.entropy),
            waiting=record.waiting,
            prefill_tokens=record.prefill_tokens,
            kv_free_tokens=record.kv_free_tokens,
            kv_total_tokens=kv_total_tokens,
            shared_seconds=record.shared_seconds,
            opted_out=None if record.opted_out is None else np.array(record.opted_out),
            now=record.now,
        )

    def _matrix(self, record: RecordedStep, rows: Signal | None) -> FloatArray | None:
        if rows is None:
            return None
        if len(set(map(len, rows))) > 1:
            raise DataError(
                f"{self.directory}, step {record.step}: rows of a draft signal differ in length"
            )
        return np.array(rows, dtype=np.float64)


def _integers(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _numbers(values: Any, missing: float, shape: tuple[int, ...]) -> FloatArray:
    if values is None:
        return np.full(shape, missing)
    numbers = np.array(values, dtype=np.float64)  # None becomes nan
    return np.where(np.isnan(numbers), missing, numbers)


def learn_step(policy: Policy, plan: SpecPlan, step: LoggedStep) -> None:
    """Let a policy learn from a recorded step, for which it has made this plan."""
    policy.observe(finished_step(step.context, plan, step.outcome))
    if step.ended.size:
        policy.forget(step.ended)
