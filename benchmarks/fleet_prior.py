"""A replica that starts with what four others have learned, on the judge's modelled clock.

    python -m benchmarks.fleet_prior run --out rows.jsonl     # in vLLM's environment
    python -m benchmarks.fleet_prior table rows.jsonl

Four replicas serve a cell's load with other seeds, a fifth of their requests with other text, and
leave their objects in a folder. A replica then serves the load again and again: cold, once more
with what it has learned (warm), from the folder (fleet), and from a folder of four replicas whose
whole traffic was other text (wrong: accepted rarely, or nearly always). Each run is compared by its
first 300 steps: the time that the warm run needs for as many tokens, over its own. The folders are
the same for all seeds of the replica that starts.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec

from adaptive_spec.sim.line_file import LineFile

from .judge.arms import Arm
from .judge.cells import Cell, load_cells
from .judge.device import device
from .judge.engines import VLLM, Engine, EngineKind
from .judge.figures import markdown
from .judge.processes import begin_anew
from .judge.rows import COLD_STEPS, curve_of
from .judge.run import noise_of, seeds_of
from .judge.start import environment, start
from .judge.traffic import Traffic, jobs, serve

CELLS = (
    "h100-moe eagle llama:both 16",
    "l40s-8b eagle llama:both 16",
    "h100-8b eagle hazard:0.9+hazard:0.2 16",
    "a100-8b ngram llama:code 16",
    "h100-8b eagle llama:both 48 noise 0.05",
    "h100-8b draft_model record:good_t0.8 1",
    "h100-8b eagle hazard:0.15 64",
    "l40s-8b eagle llama:both 64",
    "a100-8b eagle hazard:0.9+hazard:0.2 64",
    "h100-8b ngram llama:code 1",
)
"""Not those that the merge was made on, but for the first."""
OTHER = "hazard:0.3"
"""Text of a fifth of the others' requests."""
WRONG = {"rare": "hazard:0.2", "frequent": "hazard:0.9"}
REPLICAS = 4
ARM = Arm("goodput", "adaptive-spec", policy="goodput")


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run: tokens and seconds of its steps."""

    cell: str
    seed: int
    part: str
    curve: list[tuple[int, float]]


def answer(engine: Engine, cell: Cell, traffic: Traffic, seed: int) -> list[tuple[int, float]]:
    """Serve a load with the arm in use; return tokens and seconds after every tenth step."""
    recorder = engine.recorder
    recorder.noise = noise_of(cell, seed)
    serve(engine, traffic, jobs(traffic, cell.method, cell.kmax, seed))
    on = engine.priced(ARM, device(cell.device))
    charge, noise = on.charge(cell.method), noise_of(cell, seed)
    steps = recorder.pop_steps()
    return curve_of(steps, [noise.seconds(charge.seconds(work)) for work in steps])


def with_text(traffic: Traffic, records: tuple[str, ...]) -> Traffic:
    """Return the load with other text."""
    pieces = tuple(msgspec.structs.replace(each, records=()) for each in traffic.pieces)
    return msgspec.structs.replace(traffic, records=records, pieces=pieces)


def fleet(engine: Engine, cell: Cell, folder: Path, records: tuple[str, ...]) -> None:
    """Let the others serve, and leave what they have learned; a folder of a run before is kept."""
    if folder.exists():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
        for replica in range(1, REPLICAS + 1):
            own, alone = 1000 * replica, Path(parent) / f"{replica}"
            arm = replace(ARM, seed=own, fleet=str(alone))
            engine.use(arm, device(cell.device), cell.kv_tokens)
            answer(engine, cell, with_text(cell.traffic, records), own)
            engine.use(ARM, device(cell.device), cell.kv_tokens)  # the replica ends
        together = Path(parent) / "together"
        together.mkdir()
        for path in Path(parent).glob("?/*.json"):
            path.rename(together / path.name)
        together.rename(folder)


def runs(engine: Engine, cell: Cell, seed: int, objects: Path) -> Iterator[Ran]:
    """Serve a cell in all ways."""
    on, arm = device(cell.device), replace(ARM, seed=seed)
    own = cell.traffic.records or cell.traffic.pieces[0].records
    mostly = (own * 4)[:4]
    engine.use(arm, on, cell.kv_tokens)
    for part in ("cold", "warm"):
        curve = answer(engine, cell, cell.traffic, seed)
        yield Ran(cell=cell.name, seed=seed, part=part, curve=curve)
    for part, records in (
        ("fleet", (*mostly, OTHER)),
        *((f"wrong, {name}", (text,)) for name, text in WRONG.items()),
    ):
        place = objects / f"{cell.name} {part}".replace(" ", "_")
        fleet(engine, cell, place, records)
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(place, copy, dirs_exist_ok=True)
            engine.use(replace(arm, fleet=copy), on, cell.kv_tokens)
            curve = answer(engine, cell, cell.traffic, seed)
            engine.use(ARM, on, cell.kv_tokens)
        yield Ran(cell=cell.name, seed=seed, part=part, curve=curve)


def over_warm(ran: Ran, warm: Ran) -> float:
    """Return the warm run's time for the tokens of the first steps, over this run's."""
    tokens, seconds = ran.curve[min(COLD_STEPS // 10, len(ran.curve) - 1)]
    (low, begun), (high, ended) = next(
        (a, b) for a, b in zip(warm.curve, warm.curve[1:], strict=False) if b[0] >= tokens
    )
    return (begun + (ended - begun) * (tokens - low) / (high - low)) / seconds


def table(rows: list[Ran]) -> str:
    """Return the first steps of each part over those of the warm run."""
    found = {(each.cell, each.seed, each.part): each for each in rows}
    parts = [each for each in dict.fromkeys(row.part for row in rows) if each != "warm"]
    lines: list[list[str]] = []
    ratios: dict[str, list[float]] = {part: [] for part in parts}
    for cell in dict.fromkeys(row.cell for row in rows):
        line = [cell]
        for part in parts:
            some = [
                over_warm(each, found[cell, each.seed, "warm"])
                for each in rows
                if each.cell == cell and each.part == part
            ]
            ratios[part] += some
            line.append(f"{mean(some):.3f} ({min(some):.3f})")
        lines.append(line)
    lines.append(["**all**", *(f"{mean(some):.4f} ({min(some):.4f})" for some in ratios.values())])
    for name in parts:
        if name.startswith("wrong"):
            pairs = zip(ratios[name], ratios["cold"], strict=True)
            over = [ours / cold for ours, cold in pairs]
            lines.append([f"{name}, over cold", f"{mean(over):.4f} ({min(over):.4f})"])
    return markdown(["cell", *parts], lines)


def name_alike() -> None:
    """Let all engines have one model by name: its folder is another one in each process."""
    from adaptive_spec.adapters.vllm import hooks

    names: Any = hooks
    identity_of = names.identity_of
    names.identity_of = lambda *given: {**identity_of(*given), "model": "a", "drafter": "b"}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("rows", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("fleet_prior.jsonl"))
    parser.add_argument("--seeds", default="11-13")
    parser.add_argument("--cells", default=";".join(CELLS))
    parser.add_argument("--objects", type=Path, default=Path("fleet_prior_objects"))
    options = parser.parse_args()
    options.objects.mkdir(parents=True, exist_ok=True)
    if options.what == "table":
        print(table(list(LineFile(options.rows, Ran))))
        return
    begin_anew("benchmarks.fleet_prior", environment(VLLM))
    name_alike()
    known = {cell.name: cell for cell in load_cells()}
    engines: dict[EngineKind, Engine] = {}
    file = LineFile(options.out, Ran)
    for name in options.cells.split(";"):
        cell = known[name]
        engine = engines.get(cell.kind) or start(cell.kind)
        engines[cell.kind] = engine
        for seed in seeds_of(options.seeds):
            rows = list(runs(engine, cell, seed, options.objects))
            for ran in rows:
                file.append(ran)
            print(table(rows), flush=True)
    for engine in engines.values():
        engine.close()


if __name__ == "__main__":
    main()
