import json
from pathlib import Path

import pytest
from fake_steps import cell

from benchmarks.judge.figures import Spread
from demo.arms import parse_arm
from demo.figures import rows, same_texts, verdicts
from demo.report import caption, page, rejections, save

ARMS = [parse_arm(name) for name in ("none", "k2", "goodput")]


def test_ratios_are_paired_by_repeat() -> None:
    cells = []
    # The machine is twice as slow in the second repeat: ratios don't notice.
    for repeat, slow in enumerate((1.0, 2.0, 1.0)):
        cells += [
            cell("none", 10.0 * slow, repeat),
            cell("k2", 8.0 * slow, repeat, drafted=70, accepted=60),
            cell("goodput", 5.0 * slow, repeat, drafted=80, accepted=55),
        ]
    none, static, ours = rows(ARMS, [4], cells)
    assert none.tokens_per_second == Spread(10.0, 5.0, 10.0, 3)
    assert none.over_no_speculation is None
    assert static.over_no_speculation == Spread(1.25, 1.25, 1.25, 3)
    assert static.ours_over_this.middle == pytest.approx(1.6)
    assert (ours.over_no_speculation.low, ours.over_no_speculation.high) == pytest.approx(
        (2.0, 2.0)
    )
    assert ours.mean_k == pytest.approx(2.0)
    assert ours.acceptance == pytest.approx(55 / 80, abs=1e-4)
    assert verdicts([none, static, ours]) == [
        "concurrency 4: adaptive-spec is ahead of the best of the others, static K = 2: "
        "1.60 (1.60–1.60)"
    ]


def test_a_speed_up_above_accepted_plus_one_is_rejected_and_said() -> None:
    cells = [
        *(cell("none", 10.0, repeat) for repeat in range(3)),
        *(cell("k2", 10.0, repeat, drafted=190, accepted=16) for repeat in range(3)),
        cell("goodput", 9.0, 0, drafted=190, accepted=16),
        cell("goodput", 8.0, 1, drafted=190, accepted=16),  # 1.25 > 1 + 16 / 79
        cell("goodput", 9.5, 2, drafted=190, accepted=16),
    ]
    table = rows(ARMS, [4], cells)
    assert table[-1].rejected_repeats == (1,)
    assert table[-1].tokens_per_second is not None
    assert table[-1].tokens_per_second.high == pytest.approx(100 / 9, abs=1e-4)
    assert len(rejections(table)) == 1
    assert "repeat 2 left out" in rejections(table)[0]
    assert rejections(table)[0] in page(table, "", cells)


def test_answers_are_held_against_those_without_speculation() -> None:
    said, other = ("a1", "b2", "c3"), ("a1", "b2", "xx")
    cells = [cell(arm, 10.0, 0, texts=said) for arm in ("none", "k2", "goodput")]
    cells += [cell("k2", 9.0, 1, texts=other), cell("none", 9.0, 1, texts=said)]
    (line,) = same_texts(cells)
    assert line.startswith("8 of 9 answers are")
    assert line in page(rows(ARMS, [4], cells), "", cells)
    assert same_texts([cell("goodput", 9.0, texts=said)]) == []


@pytest.mark.parametrize(
    ("seconds", "word"), [((9, 9.5), "ahead of"), ((9, 11), "level with"), ((11, 12), "behind")]
)
def test_verdicts(seconds: tuple[float, float], word: str) -> None:
    cells = [cell("none", 10.0, repeat) for repeat in range(2)]
    cells += [
        cell("goodput", taken, repeat, drafted=95, accepted=50)
        for repeat, taken in enumerate(seconds)
    ]
    (line,) = verdicts(rows([ARMS[0], ARMS[2]], [4], cells))
    assert f"is {word} the best of the others" in line


def test_saved_files(tmp_path: Path) -> None:
    cells = [cell("none", 10.0), cell("goodput", 8.0, drafted=100, accepted=60)]
    table = rows([ARMS[0], ARMS[2]], [4], cells)
    text = caption(3, 60.0, 0.1)
    shown, results = save(tmp_path, table, text, cells, {"seconds": {"act one": 60.0}})
    lines = shown.read_text().splitlines()
    assert lines[0].count("|") == lines[2].count("|") == lines[3].count("|")
    assert text.startswith("Load: ")
    assert "median (minimum–maximum) of 3 repeats" in text
    assert caption(3, 60.0, 1.0).startswith("Other processes used 1.0 cores meanwhile")
    saved = json.loads(results.read_text())
    assert saved["table"][1]["over_no_speculation"]["middle"] == pytest.approx(1.25)
    assert saved["cells"][0]["arm"] == "none"
    assert saved["seconds"] == {"act one": 60.0}
