"""Policies for tests of SGLang, loaded by dotted path; they write down what they saw and did.

The scheduler's process is ended by a signal, so nothing is buffered. The file is named by the
variable RECORD.
"""

import json
import os
from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.step import FinishedStep, Mode, SpecPlan, StepContext


class RecordedPolicy(StatelessPolicy):
    """Base: one K for the batch, by `choose`; any K may follow it, unless `ask` says otherwise.

    Raises in every method while a request's name begins with `fails`.
    """

    name: ClassVar[str] = "recorded"
    summary: ClassVar[str] = "for tests"

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """None."""

    def __init__(self, options: Any = None, *, seed: int = 0) -> None:
        self.options = options
        self._random = np.random.default_rng(seed)
        path = os.environ.get("RECORD")
        self._record = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if path else None
        self._names: dict[int, str] = {}
        self._fails = False

    def choose(self, context: StepContext) -> int:
        """K for this step."""
        raise NotImplementedError

    def ask(self, context: StepContext) -> int:
        """Drafts to have at hand in the step after this one."""
        return context.capability.max_draft_tokens

    def plan(self, context: StepContext) -> SpecPlan:
        """Write down the context and the K chosen."""
        self._fails = any(name.startswith("fails") for name in context.request_ids)
        self._check()
        k = self.choose(context)
        self._names.update(zip(context.slots.tolist(), context.request_ids, strict=True))
        self._write(
            "plan",
            step=context.step,
            k=k,
            engine_k=context.engine_k,
            ids=list(context.request_ids),
            available=context.draft_available.tolist(),
            possible=context.draft_possible.tolist(),
            task=context.task.tolist(),
            waiting=context.waiting,
            kv_free=context.kv_free_tokens,
            confidence=None if context.confidence is None else _known(context.confidence),
        )
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=self.ask(context),
            mode=Mode.ON,
            reason=self.name,
        )

    def observe(self, step: FinishedStep) -> None:
        """Write down what was verified and accepted."""
        self._check()
        outcome = step.outcome
        self._write(
            "outcome",
            step=outcome.step,
            # Unknown if the step was not planned here: the switch was off.
            ids=[self._names.get(slot, "") for slot in outcome.slots.tolist()],
            verified=outcome.verified.tolist(),
            accepted=outcome.accepted.tolist(),
            emitted=outcome.emitted.tolist(),
            batch=outcome.batch_size,
            depth=outcome.draft_depth,
        )

    def forget(self, slots: Any) -> None:
        """Nothing to forget."""
        self._check()

    def _check(self) -> None:
        if self._fails:
            raise RuntimeError("planned failure")

    def _write(self, kind: str, **values: Any) -> None:
        if self._record is not None:
            os.write(self._record, (json.dumps({"kind": kind} | values) + "\n").encode())


def _known(values: np.ndarray[Any, Any]) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]


class CyclePolicy(RecordedPolicy):
    """Another K at every step: 2, 0, 1, 3, 2, 0, ..."""

    name: ClassVar[str] = "cycle"

    def choose(self, context: StepContext) -> int:
        """The next of the cycle."""
        return self._at(context, context.step)

    def ask(self, context: StepContext) -> int:
        """What the step after this one will choose."""
        return self._at(context, context.step + 1)

    def _at(self, context: StepContext, step: int) -> int:
        ladder = context.capability.uniform_values
        order = [*reversed(ladder[::2]), *ladder[1::2]]
        return order[step % len(order)]


class TreePolicy(CyclePolicy):
    """The same; and the KV slots that SGLang reserves for a request's step."""

    name: ClassVar[str] = "tree"

    def choose(self, context: StepContext) -> int:
        """The next of the cycle."""
        from sglang.srt.mem_cache.allocation_sizing import get_alloc_len_per_decode

        self._write("reserve", slots=get_alloc_len_per_decode())
        return super().choose(context)


class LargestPolicy(RecordedPolicy):
    """As much as the request may use, so that whatever limits K shows."""

    name: ClassVar[str] = "largest"

    def choose(self, context: StepContext) -> int:
        """The largest K that any request may use."""
        ladder = context.capability.uniform_values
        most = int(context.draft_available.max(initial=0))
        return max(k for k in ladder if k <= most) if most >= ladder[0] else ladder[0]


class NoisyClockPolicy(RecordedPolicy):
    """K by the process's own clock, which is another on every rank."""

    name: ClassVar[str] = "noisy-clock"

    def choose(self, context: StepContext) -> int:
        """By the last digits of the time and of the process's number."""
        ladder = context.capability.uniform_values
        return ladder[(int(context.now * 1e6) + os.getpid()) % len(ladder)]
