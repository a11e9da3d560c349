"""benchmarks/tensorrt_llm_gpu.py, as far as it goes without a GPU: arguments and arithmetic."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tensorrt_llm_gpu.py"
LADDER = (1, 2, 4)


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("tensorrt_llm_gpu", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def arms(script: Any, **changes: dict[str, Any]) -> dict[str, Any]:
    """A run in which everything is as wanted."""
    steps = [(k, 8 * k, 4 * k) for _ in range(12) for k in (4, 2, 1, 2, 4)]
    found = {}
    for name in script.ARMS:
        values: dict[str, Any] = {
            "name": name,
            "outputs": [[1, 2, 3], [4, 5, 6]],
            "tokens_per_second": {1: [100.0, 101.0], 8: [500.0, 510.0]},
            "steps": steps if name in script.OURS else [],
        }
        values.update(changes.get(name, {}))
        found[name] = script.Arm(**values)
    return found


def unmet(script: Any, found: dict[str, Any]) -> list[str]:
    return [v.question for v in script.verdicts(found, LADDER) if v.met is False]


def test_a_good_run_meets_everything(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = script.verdicts(arms(script), LADDER)
    assert len(rows) == 7
    assert all(row.met for row in rows)
    assert script.print_table(rows)
    assert "NOT MET" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drawn": {"steps": [(4, 8, 4)] * 40}}, "every K of the ladder runs"),
        ({"adaptive": {"fail_opens": {"hook before raised ValueError": 3}}}, "faults"),
        ({"drawn": {"outputs": [[1, 2, 3], [4, 5, 7]]}}, "greedy output of drawn"),
        (
            {
                "drawn": {
                    "steps": [(k, 8, 6 if i < 20 else 4) for i in range(40) for k in (1, 2, 4)]
                }
            },
            "acceptance at Kmax",
        ),
        (
            {"schedule": {"tokens_per_second": {1: [100.0, 101.0], 8: [600.0, 606.0]}}},
            "tokens/s at load 8",
        ),
    ],
)
def test_each_shortcoming_is_found(
    script: Any, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], said: str
) -> None:
    found = arms(script, **changes)
    assert [question for question in unmet(script, found) if said in question]
    assert len(unmet(script, found)) == 1
    assert not script.print_table(script.verdicts(found, LADDER))
    assert "NOT MET" in capsys.readouterr().out


def test_parity_is_measured_against_upstreams_own(script: Any) -> None:
    """Other kernels round otherwise: static K may differ from no speculation, too."""
    other = {"outputs": [[1, 2, 3], [4, 5, 7]]}
    assert unmet(script, arms(script, static=other, drawn=other, adaptive=other)) == []


def test_scatter_of_the_repeats_is_allowed_for(script: Any) -> None:
    noisy = {"tokens_per_second": {1: [100.0, 101.0], 8: [450.0, 520.0]}}
    assert unmet(script, arms(script, schedule=noisy, adaptive=noisy)) == []


def test_missing_arms_are_not_judged(script: Any) -> None:
    found = arms(script)
    del found["drawn"], found["none"]
    rows = script.verdicts(found, LADDER)
    assert {row.met for row in rows} == {True, None}
    assert script.verdicts({}, LADDER)


def test_without_tensorrt_llm_it_says_so(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--model", "x", "--draft-model", "y"]) == 2
    assert "not installed in this environment: nothing was checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [[], ["--model", "x"], ["--model", "x", "--draft-model", "y", "--loads", "0"]]
)
def test_wrong_arguments_are_refused(
    script: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.parse(arguments)
    assert "error:" in capsys.readouterr().err


def test_the_ladder_follows_kmax(script: Any) -> None:
    given = ["--model", "x", "--draft-model", "y", "--kmax"]
    assert script.parse([*given, "6"]).ladder == (1, 2, 3, 6)
    assert script.parse([*given, "2"]).ladder == (1, 2)


def test_upstreams_table_ascends_and_ends_at_the_largest_load(script: Any) -> None:
    assert script.schedule(4, 32) == {4: 4, 16: 2, 32: 1}
    assert script.schedule(4, 16) == {4: 4, 16: 2}
    assert script.schedule(4, 8) == {4: 4, 8: 2}
    assert script.schedule(1, 2) == {2: 1}


def test_traces_and_status_of_an_arm_are_read(script: Any, tmp_path: Path) -> None:
    traces = tmp_path / "drawn.traces"
    traces.mkdir()
    lines = (
        '{"mode": "on", "depth": 2, "k": [2, 1], "accepted": [1, 1]}',
        '{"mode": "engine", "depth": 4, "k": [4], "accepted": [0]}',
        '{"mode": "on", "dep',
    )
    (traces / "steps-1-0.jsonl").write_text("\n".join(lines))
    (tmp_path / "drawn.status.json").write_text('{"fail_opens": {"plan took": 1}}')
    arm = script.Arm("drawn", [], {})
    script.read_ours(arm, tmp_path)
    assert arm.steps == [(2, 3, 2)]
    assert arm.fail_opens == {"plan took": 1}
