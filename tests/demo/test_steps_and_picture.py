from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_steps import step

from demo.act_one import Phase
from demo.errors import DemoError
from demo.steps import by_kind, summary


def test_summary() -> None:
    steps = [
        step(1.0, [2, 0], [1, 0], seconds=0.3),
        step(2.0, [2, 4], [2, 1], reason="measuring K = 4", measures=True),
        step(3.0, [6], [0], seconds=None),
    ]
    found = summary(steps)
    assert found["steps"] == 2
    assert found["mean_k"] == pytest.approx(2.0)
    assert found["shares_of_k"] == [0.25, 0.0, 0.5, 0.0, 0.25, 0.0, 0.0]
    assert found["acceptance"] == pytest.approx(0.5)
    assert found["reasons"] == {"planned": 0.75, "measuring K = K": 0.25}
    assert found["learning_share"] == pytest.approx(0.25)
    assert found["predicted_steps"] == 2
    json.dumps(found)


def test_kinds_are_told_apart() -> None:
    kinds = by_kind([step(1.0, [2, 4], [0, 4]), step(2.0, [0], [0], ids=["strange"])])
    assert kinds["code"]["mean_k"] == pytest.approx(2.0)
    assert kinds["json"] == {
        "request_steps": 1,
        "mean_k": 4.0,
        "acceptance": 1.0,
        "tokens_per_step": 5.0,
    }
    assert kinds["other"]["request_steps"] == 1


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from demo.picture import draw

    steps = [step(0.5 * n, [n % 7, 2], [0, 1]) for n in range(1, 40) if not 10 < n < 16]
    phases = [Phase(1, began=0.0, ended=10.0), Phase(4, began=10.0, ended=20.0)]
    path = tmp_path / "picture.png"
    draw(steps, phases, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(DemoError, match="no step of act one"):
        draw([], phases, path)
