from __future__ import annotations

from pathlib import Path

import pytest
from fake_steps import step

from demo.act_one import Phase
from demo.errors import DemoError


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
