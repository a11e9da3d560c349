"""What cannot be evaluated is refused with one line that says what to do."""

import json
from pathlib import Path

import pytest

from adaptive_spec.errors import DataError, PolicyError
from adaptive_spec.policy import build_policy
from adaptive_spec.policy_helpers import StatelessPolicy
from adaptive_spec.sim.off_policy.evaluation import evaluate
from adaptive_spec.sim.off_policy.logged_steps import LoggedTrace
from adaptive_spec.sim.policy_choice import parse_policy
from tests.sim.off_policy.worlds import Drawn, mixed_server, record

EVENLY = {2: 0.5, 4: 0.5}
STATIC = [parse_policy("static:k=2")]


def traced(folder: Path, steps: int = 150, **options: object) -> Path:
    logger = Drawn(1, EVENLY, EVENLY, by_request=True, **options)
    return record(mixed_server, logger, 1, folder, steps, output=40)


def changed(folder: Path, **columns: object) -> Path:
    """The trace with columns replaced in every step; None removes one."""
    [segment] = folder.iterdir()
    records = [json.loads(line) for line in segment.read_text().splitlines()]
    for line in records:
        for name, value in columns.items():
            line[name] = value
            if value is None:
                del line[name]
    segment.write_text("".join(json.dumps(line) + "\n" for line in records))
    return folder


def test_a_trace_without_propensities(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no propensities in \d+ steps: .* record with one that"):
        evaluate(traced(tmp_path, recorded=False), STATIC)


def test_a_trace_of_a_policy_that_does_not_randomise(tmp_path: Path) -> None:
    record(mixed_server, build_policy("static", {"k": 3}), 1, tmp_path, 150, output=40)
    with pytest.raises(DataError, match="did not randomise K"):
        evaluate(tmp_path, STATIC)


def test_a_trace_that_is_too_short(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"record about [\d,]+ more steps, or in mode `shadow`"):
        evaluate(traced(tmp_path, steps=80), STATIC)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"available": None}, "`available`.*record it anew"),
        ({"capability": None}, "capability"),
        ({"k": [1]}, r"step \d+: .*1 k for"),
        ({"propensity": "high"}, "propensity"),
        ({"mode": "other"}, "mode"),
    ],
)
def test_a_damaged_trace(tmp_path: Path, columns: dict, message: str) -> None:
    trace = changed(traced(tmp_path, steps=5), **columns) if "capability" not in columns else None
    if trace is None:
        trace = traced(tmp_path, steps=5)
        [segment] = trace.iterdir()
        first, rest = segment.read_text().split("\n", 1)
        line = json.loads(first)
        del line["capability"]
        segment.write_text(json.dumps(line) + "\n" + rest)
    with pytest.raises(DataError, match=message):
        list(LoggedTrace(trace).steps())


def test_confidences_of_different_numbers_of_positions(tmp_path: Path) -> None:
    [segment] = traced(tmp_path, steps=5).iterdir()
    records = [json.loads(line) for line in segment.read_text().splitlines()]
    for line in records:
        line["confidence"] = [[0.5] * (1 + row % 2) for row in range(len(line["ids"]))]
    segment.write_text("".join(json.dumps(line) + "\n" for line in records))
    with pytest.raises(DataError, match=r"step \d+: rows of a draft signal differ in length"):
        list(LoggedTrace(tmp_path).steps())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory or file"):
        LoggedTrace(tmp_path / "none")
    with pytest.raises(DataError, match="without steps"):
        LoggedTrace(tmp_path)


class TooMany(StatelessPolicy):
    name = summary = "too_many"
    Options = build_policy("off").Options

    def __init__(self, options: object, *, seed: int = 0) -> None:
        self._inner = build_policy("static", {"k": 6})

    def plan(self, context):
        plan = self._inner.plan(context)
        plan.verify[:] = 99
        return plan


def test_a_policy_whose_plan_cannot_run(tmp_path: Path) -> None:
    choice = parse_policy(f"{__name__}:TooMany")
    with pytest.raises(PolicyError, match=r"step 1 of the trace: plan\.verify leaves"):
        evaluate(traced(tmp_path), [choice])
