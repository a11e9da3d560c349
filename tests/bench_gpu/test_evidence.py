"""From results to ratios, bars and a page."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.judge.gpu.bars import bars
from benchmarks.judge.gpu.bench import Results
from benchmarks.judge.gpu.page import main
from benchmarks.judge.gpu.stages import ragged_penalty, settings_for
from benchmarks.judge.gpu.summary import summarise


def cell(rate: float) -> dict[str, Any]:
    return {
        "tokens_per_s": rate,
        "steps": 9,
        "step_ms": [1.0, 2.0, 3.0],
        "mean_k": 1.5,
        "drafted": 30,
        "graphs_by_k": {"2": {"FULL": 9}},
    }


def steps_in_graphs(
    ks: tuple[int, ...] = (0, 2, 5),
    batch: int = 3,
    graphs: dict[str, int] | None = None,
    ms: float = 8.0,
) -> list[dict[str, Any]]:
    each = {"batch": batch, "depth": None, "ragged": False, "graphs": graphs or {"FULL": 8}}
    return [each | {"k": k, "ms": ms} for k in ks]


def results(**changes: Any) -> dict[str, Any]:
    """A run in which all bars are met."""
    found: dict[str, Any] = {"about": {"gpu": "H100", "method": "eagle"}}
    rates = {
        "none": (100.0, 110.0),
        "k2": (140.0, 150.0),
        "k5": (120.0, 130.0),
        "table-constant": (None, 120.0),
        "goodput warm": (141.0, 151.0),
    }
    for arm, values in rates.items():
        for repeat, rate in enumerate(values):
            if rate is not None:
                found[f"sweep/eagle/t0.8/16/{arm}/{repeat}"] = cell(rate)
    for arm, rate in (("off", 109.5), ("fixed5", 129.0)):
        found[f"sweep/eagle/t0.8/16/{arm}/1"] = cell(rate)
    found["capture/eagle-ours"] = {"seconds": 25, "gib": 1.0}
    found["capture/eagle-ladder"] = {"seconds": 40, "gib": 2.0}
    for engine, graphs in (("ours", "varlen"), ("ladder", "uniform")):
        found[f"engine/eagle-{engine}"] = {"capture_sizes": [1, 24, 48]}
        found[f"graphs/eagle/{graphs}/3"] = steps_in_graphs()
        # More tokens than were captured: no full graph is wanted.
        found[f"graphs/eagle/{graphs}/64"] = steps_in_graphs((5,), 64, {"NONE": 8})
    lossless = {"answers": 80, "identical": 77, "largest_gap_nats": 0.06}
    found["identity/eagle"] = {"drawn K": lossless, "drawn K per request": lossless}
    return {**found, **changes}


def written(tmp_path: Path, found: dict[str, Any]) -> dict[str, Any]:
    kept = Results(tmp_path / "results.jsonl")
    for key, value in found.items():
        kept.add(key, value)
    return summarise(tmp_path)


def unmet(summary: dict[str, Any]) -> list[str]:
    return [bar.question for bar in bars(summary, "eagle") if not bar.met]


def test_a_good_run_meets_every_bar(tmp_path: Path) -> None:
    assert unmet(written(tmp_path, results())) == []


RIGHT = {"answers": 8, "identical": 8, "largest_gap_nats": 0.0}
WRONG = RIGHT | {"largest_gap_nats": 2.0}
SHORTCOMINGS: list[tuple[dict[str, Any], str]] = [
    ({f"sweep/eagle/t0.8/16/goodput warm/{r}": cell(130.0) for r in (0, 1)}, "best static"),
    (
        {f"sweep/eagle/t0.8/16/none/{r}": cell(160.0) for r in (0, 1)}
        | {"sweep/eagle/t0.8/16/off/1": cell(160.0)},
        "over no speculation",
    ),
    ({"sweep/eagle/t0.8/16/table-constant/1": cell(152.0)}, "tuned schedule"),
    ({"sweep/eagle/t0.8/16/off/1": cell(97.0)}, "switched off"),
    ({"sweep/eagle/t0.8/16/fixed5/1": cell(126.0)}, "at a fixed K"),
    ({"capture/eagle-ours": {"seconds": 101, "gib": 2.0}}, "capture of varlen"),
    (
        {"graphs/eagle/varlen/3": steps_in_graphs(graphs={"FULL": 7, "PIECEWISE": 1})},
        "steps of any K in a full graph",
    ),
    (
        {"graphs/eagle/uniform/3": steps_in_graphs(graphs={"FULL": 7, "PIECEWISE": 1})},
        "steps of every rung in a full graph",
    ),
    ({"graphs/eagle/varlen/3": steps_in_graphs(ms=9.0)}, "varlen over uniform graphs"),
    ({"identity/eagle": {"drawn K": WRONG, "drawn K per request": RIGHT}}, "every step"),
    ({"identity/eagle": {"drawn K": RIGHT, "drawn K per request": WRONG}}, "every request"),
]


@pytest.mark.parametrize(("changes", "question"), SHORTCOMINGS)
def test_each_shortcoming_is_found(tmp_path: Path, changes: dict[str, Any], question: str) -> None:
    (found,) = unmet(written(tmp_path, results(**changes)))
    assert question in found


def test_the_page_names_the_gpu_and_every_arm(tmp_path: Path) -> None:
    written(tmp_path, results())
    assert main([str(tmp_path)]) == 0
    page = (tmp_path / "gpu.md").read_text()
    assert "**H100**" in page
    for arm in ("none", "k2", "k5", "table-constant", "goodput warm", "off"):
        assert f"| 16 | {arm} |" in page
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept == msgspec.to_builtins(summarise(tmp_path))


def test_the_ragged_penalty_compares_steps_of_the_same_depth() -> None:
    def row(ms: float, *, ragged: bool, depth: int | None, batch: int = 8) -> dict[str, Any]:
        return {"batch": batch, "prompt": 64, "k": 2, "depth": depth, "ragged": ragged, "ms": ms}

    rows = [
        row(10.0, ragged=False, depth=None),
        row(11.0, ragged=False, depth=3),
        row(13.2, ragged=True, depth=3),
        row(50.0, ragged=True, depth=3, batch=1),
    ]
    assert ragged_penalty(rows) == pytest.approx(0.2)
    assert ragged_penalty(rows[:2]) is None


def test_every_ragged_step_has_a_uniform_one_beside_it() -> None:
    settings = settings_for((0, 1, 2, 3, 5), 5)
    uniform = {
        (each.k, each.k if each.depth is None else each.depth)
        for each in settings
        if not each.ragged
    }
    ragged = {(each.k, each.depth) for each in settings if each.ragged}
    assert ragged
    assert ragged <= uniform
