"""Packed records hold the steps of a trace that verified all drafts, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adaptive_spec import Capability, Level, StepContext
from adaptive_spec.policies.static import StaticOptions
from adaptive_spec.sim.acceptance.recorded import read_recorded_npz
from benchmarks.confidence_records import KMAX, TRIM_EVERY_STEPS, VerifyAllPolicy, conditions, pack


def traced(folder, *steps):
    folder.mkdir(parents=True)
    lines = [json.dumps({"schema": 1, "step": n, **step}) for n, step in enumerate(steps)]
    (folder / "steps-1-000000.jsonl").write_text("\n".join(lines) + "\n")


def row(ids, k, accepted, shown):
    return {
        "ids": ids,
        "k": k,
        "accepted": accepted,
        "confidence": [[each] * KMAX for each in shown],
        "entropy": [[each * 2] * KMAX for each in shown],
    }


def test_a_trace_is_packed_by_condition_with_the_kind_of_each_request(tmp_path):
    first, second = "good_t0.8:json:1-77aa", "good_t0.8:code:0-1b"
    traced(
        tmp_path / "traces" / "good-probabilistic",
        row([first, second], [6, 6], [2, 0], [0.5, 0.25]),
        row([first, second], [5, 6], [5, 1], [0.5, 0.75]),
        row([first, "poor_t0:log:3-ff"], [6, 6], [6, 3], [0.125, 1.0]),
    )
    pack(tmp_path / "traces", tmp_path / "packed")
    data = read_recorded_npz(tmp_path / "packed" / "good_t0.8.npz")
    assert data.labels == ("json", "code")
    assert data.lengths.tolist() == [3 + 7, 1 + 2]
    assert data.temperature == 0.8
    assert data.confidence[[0, 3, 10, 11]].tolist() == [
        [x] * KMAX for x in (0.5, 0.125, 0.25, 0.75)
    ]
    other = read_recorded_npz(tmp_path / "packed" / "poor_t0.npz")
    assert (other.labels, other.temperature) == (("log",), 0.0)


@pytest.mark.parametrize(
    ("draft_sampling", "names"),
    [
        ("probabilistic", ["good_t0.8"]),
        ("greedy", ["good_t0", "good-greedy-drafts_t0.8"]),
    ],
)
def test_temperature_0_is_recorded_once(draft_sampling, names):
    assert [each.name for each in conditions("good", draft_sampling)] == names


def context(step, available):
    batch = np.arange(len(available))
    return StepContext(
        step=step,
        capability=Capability(level=Level.FULL, max_draft_tokens=KMAX),
        request_ids=[str(number) for number in batch],
        slots=batch,
        context_tokens=batch + 64,
        draft_available=np.array(available),
        draft_possible=np.full(len(batch), KMAX),
        engine_k=KMAX,
        tpot_target=np.full(len(batch), np.inf),
        task=batch * 0 - 1,
        temperature=np.zeros(len(batch)),
    )


def test_all_drafts_are_verified_but_one_now_and_then():
    policy = VerifyAllPolicy(StaticOptions(k=KMAX), seed=0)
    trimmed = {}
    for step in range(1, 6 * TRIM_EVERY_STEPS):
        plan = policy.plan(context(step, [6, 6, 3]))
        assert plan.draft_depth == KMAX
        left_out = np.array([6, 6, 3]) - plan.verify
        if left_out.any():
            trimmed[step] = left_out.tolist()
    assert list(trimmed) == [TRIM_EVERY_STEPS * n for n in range(1, 6)]
    assert all(sorted(left_out) == [0, 0, 1] for left_out in trimmed.values())


def test_steps_without_requests_or_drafts_are_planned_as_they_are():
    policy = VerifyAllPolicy(StaticOptions(k=KMAX), seed=0)
    assert policy.plan(context(TRIM_EVERY_STEPS, [])).verify.tolist() == []
    assert policy.plan(context(2 * TRIM_EVERY_STEPS, [0])).verify.tolist() == [0]
