"""The policies of `sglang_sim.py`: SGLang's own schedule, and ours as the adapter runs it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from adaptive_spec.adapters.sglang.steps import wanted_k
from adaptive_spec.adapters.sglang.switch_limit import SwitchLimit
from adaptive_spec.errors import DataError
from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.policy import State
from adaptive_spec.policy_helpers import nearest_allowed
from adaptive_spec.step import FinishedStep, IntArray, Mode, SpecPlan, StepContext

FILE = "sglang/srt/speculative/adaptive_spec_params.py"
LADDER = (0, 1, 3, 5, 7)
LAUNCH_K = 3


class NoOptions(msgspec.Struct, frozen=True):
    """No options."""


class SGLangSchedule:
    """SGLang's parameters object as a policy: its K for the batch, its own learning."""

    name: ClassVar[str] = "sglang"
    summary: ClassVar[str] = "SGLang's --speculative-adaptive"
    Options: ClassVar[type[msgspec.Struct]] = NoOptions

    def __init__(self, params: Any) -> None:
        self._params = params

    def plan(self, context: StepContext) -> SpecPlan:
        """K of the slot of this batch size."""
        k = self._params.get_steps_for_batch(context.batch_size)
        return SpecPlan(
            step=context.step,
            verify=np.minimum(context.draft_available, k),
            draft_depth=k,
            mode=Mode.ON,
            reason="schedule",
        )

    def observe(self, step: FinishedStep) -> None:
        """Feed the slot of this batch size."""
        outcome = step.outcome
        self._params.on_verify_complete(outcome.accepted.tolist(), outcome.batch_size)

    def forget(self, slots: IntArray) -> None:
        """It knows no requests."""

    def state(self) -> State:
        """Nothing is kept over a restart."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing is kept over a restart."""


class Restricted(GoodputPolicy):
    """`goodput` between what the adapter tells it and what it puts after it.

    K is cut to what may run, changes of it are limited, and OFF keeps the drafter in step: SGLang
    has no K = 0 without a drafter pass that leaves the drafter usable.

    The adapter tells the policy that what its last plan asked for is at hand, and SGLang drafts
    what the adapter settles on at the beginning of the step. The simulator drafts at the end of the
    step before: to the depth that will be settled on if the policy stays with its plan.
    """

    def __init__(self, runnable: Callable[[int], tuple[int, ...]], dwell: int, seed: int) -> None:
        super().__init__(GoodputOptions(), seed=seed)
        self._runnable = runnable
        self._limit = SwitchLimit(dwell)
        self._asked = LAUNCH_K

    def plan(self, context: StepContext) -> SpecPlan:
        """The policy's plan, cut to what may run with this many requests."""
        allowed = self._runnable(context.batch_size)
        possible = np.minimum(context.draft_possible, allowed[-1])
        plan = super().plan(
            msgspec.structs.replace(
                context,
                capability=msgspec.structs.replace(context.capability, cold_off=False),
                draft_available=np.minimum(possible, self._asked),
                draft_possible=possible,
            )
        )
        self._asked = plan.draft_depth
        k = self._limit.settle(nearest_allowed(wanted_k(plan), allowed), allowed)
        return msgspec.structs.replace(
            plan,
            verify=np.minimum(context.draft_available, k),
            draft_depth=self._limit.foresee(nearest_allowed(plan.draft_depth, allowed), allowed),
        )


def sglang_classes(folder: Path | None) -> dict[str, Any]:
    """SGLang's module without its imports of SGLang. Raises DataError if there is none."""
    if folder is not None:
        file = folder / FILE
    else:
        spec = importlib.util.find_spec("sglang")
        places = list(spec.submodule_search_locations or []) if spec else []
        file = Path(places[0]).parent / FILE if places else Path(FILE)
    try:
        tree = ast.parse(file.read_text())
    except OSError as error:
        raise DataError(
            f"{file}: {error.strerror}; install sglang, or unpack its wheel: --sglang FOLDER"
        ) from error
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang"))
    ]
    module: dict[str, Any] = {"__name__": "sglang", "log_info_on_rank0": lambda *_: None}
    exec(compile(tree, str(file), "exec"), module)
    return module
