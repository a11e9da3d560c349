"""Every shipped policy keeps the contract; broken ones are told apart."""

from typing import Any

import msgspec
import numpy as np
import pytest

from adaptive_spec import Capability, Level, SpecPlan, check_policy
from adaptive_spec.policy import Policy, available_policies, build_policy
from adaptive_spec.step import FinishedStep, StepContext
from adaptive_spec.testing.fake_engine import FakeEngine
from tests.losslessness.exact.shipped import LIVE
from tests.refused import refused

OPTIONS: dict[str, dict[str, Any]] = {
    "batch_table": {"table": [[1, 2, 4], [3, 8, 1]]},
    "trtllm_schedule": {"schedule": [[3, 4], [8, 1]]},
}
OURS = set(available_policies())
EVERY_POLICY = [
    name if name in OURS else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(available_policies(baselines=True))
]


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_every_installed_policy_keeps_the_contract(name: str) -> None:
    report = check_policy(
        lambda seed: build_policy(name, OPTIONS.get(name), seed=seed, baselines=True)
    )
    assert not report.exempt
    # The check would be empty if these didn't follow the signal in its steps.
    assert (report.decided_by_signal > 0) == (name in LIVE)


@pytest.mark.parametrize("name", EVERY_POLICY)
@pytest.mark.parametrize("ladder", [(0, 2, 5), (1, 4, 5), (5,)], ids=str)
def test_every_installed_policy_keeps_to_a_sparse_ladder(
    name: str, ladder: tuple[int, ...]
) -> None:
    engine = Capability(level=Level.UNIFORM, max_draft_tokens=5, ladder=ladder)
    policy = build_policy(name, OPTIONS.get(name), baselines=True)
    assert FakeEngine(engine, signal=True).run(policy, 40)


def broken(change: str) -> Policy:
    policy: Any = build_policy("static", {"k": 2})

    class Broken(type(policy)):
        def plan(self, context: StepContext) -> SpecPlan:
            plan = super().plan(context)
            if change == "too many":
                return msgspec.structs.replace(plan, verify=plan.verify + 1)
            if change == "unseeded":
                lower = np.maximum(plan.verify - np.random.default_rng().integers(0, 2), 0)
                return msgspec.structs.replace(plan, verify=lower)
            if change == "by name" and context.request_ids:
                keep = int(context.request_ids[0].startswith("request"))
                return msgspec.structs.replace(plan, verify=plan.verify * keep)
            if change == "no requests":
                plan.verify.max()
            if change == "nothing possible":
                1 / int(context.draft_possible.any() or context.batch_size == 0)
            if change == "unknown signal" and context.confidence is not None:
                int(np.nanmean(context.confidence))
            if change == "remembers requests":
                self.known = getattr(self, "known", set()) | set(context.request_ids)
            if change == "waits for every outcome":
                self.open = [*getattr(self, "open", []), context.step]
            return plan

        def observe(self, step: FinishedStep) -> None:
            outcome = step.outcome
            if change == "unplanned outcome":
                self.last = outcome.verified[np.argmax(outcome.verified)]
            if change == "waits for every outcome":
                assert self.open.pop(0) == outcome.step

        def state(self) -> dict[str, Any]:
            if change == "nan state":
                return {"x": float("nan")}
            if change == "growing":
                self.seen = getattr(self, "seen", 0) + 1
                return {"x": [0] * 1000 * self.seen**2}
            return {}

        def restore(self, state: dict[str, Any]) -> None:
            pass

    return Broken(msgspec.convert({"k": 2}, policy.Options))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("too many", "leaves 0..draft_available"),
        ("unseeded", "same seed"),
        ("by name", "request names"),
        ("no requests", "plan raised ValueError"),
        ("nothing possible", "plan raised ZeroDivisionError"),
        ("unknown signal", "plan raised ValueError"),
        ("unplanned outcome", "observe raised ValueError"),
        ("waits for every outcome", "observe raised"),
        ("nan state", "JSON without NaN"),
        ("growing", "bytes longer"),
        ("remembers requests", "values more"),
    ],
)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_a_policy_that_breaks_the_contract_is_found_out(change: str, said: str) -> None:
    with refused(AssertionError, match=said):
        check_policy(lambda seed: broken(change), levels=[Level.FULL])
