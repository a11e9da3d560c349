"""Errors of the scripted engine against the real one, as `against` has measured them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..engines import SGLANG, VLLM, Name
from ..figures import markdown
from ..processes import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "judge_against_real.json"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """An arm at a load on a device: tokens per second over the whole load, and steps."""

    method: str
    device: str
    clients: str
    arm: str
    real: float
    scripted: float
    real_steps: int
    scripted_steps: int
    ahead: bool = False
    engine: Name = VLLM

    @property
    def error(self) -> float:
        """Relative error of the scripted engine."""
        return self.scripted / self.real - 1.0


def published(path: Path = RESULTS) -> list[Comparison]:
    """Read the committed comparisons."""
    return msgspec.json.decode(path.read_bytes(), type=list[Comparison])


def publish(found: Sequence[Comparison], path: Path) -> None:
    """Write them, a line for each."""
    path.write_bytes(b"[\n" + b",\n".join(map(msgspec.json.encode, found)) + b"\n]\n")


def table(found: Sequence[Comparison]) -> str:
    """A row for each drafter, engine and kind of load: the largest error in per cent by arm."""
    arms = list(dict.fromkeys(each.arm for each in found))
    heads = ["drafter", "lengths", "runs", *arms]
    lines = list[list[str]]()
    cells = dict[tuple[str, ...], list[Comparison]]()
    for each in found:
        title = each.method.replace("_", " ") + ", async" * each.ahead
        title += ", SGLang" * (each.engine == SGLANG)
        lengths = "uneven" if "uneven" in each.clients else "equal"
        cells.setdefault((title, lengths), []).append(each)
    for (title, lengths), those in cells.items():
        errors = [[each.error for each in those if each.arm == arm] for arm in arms]
        shown = [f"{100 * max(each, key=abs):+.2f} %" if each else "" for each in errors]
        lines.append([title, lengths, str(len(those)), *shown])
    return markdown(heads, lines)
