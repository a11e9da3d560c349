"""Two sources of drafts on real text: the cells of `real_text.yaml`, and their tables.

The commands are in `real_text.yaml`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean

import msgspec

from .arms import GOODPUT, NONE
from .cells import load_cells
from .processes import ROOT
from .results import RESULTS
from .rows import WARM, Row, RowFile

FILE = Path(__file__).with_name("real_text.yaml")
COMMITTED = RESULTS.with_name("real_text.json")
BOTH, HEAD, HISTORY, NGRAM, SUFFIX = "both", "head", "history", "ngram", "suffix"
SINGLE = (NGRAM, SUFFIX, HEAD)
TITLES = {NGRAM: "n-gram", SUFFIX: "suffix trees", HEAD: "trained head", BOTH: "two sources"}
MIXED = "all, mixed"
HOST_SECONDS = 15e-6
"""CPU time of a look-up in suffix trees (docs/mechanisms.md), one for each request of a step. The
device waits for it under synchronous scheduling."""


class Load(msgspec.Struct, frozen=True):
    """Tokens per second, warm, with each source of drafts, and without drafts (``none``).

    ``history`` is the head without its confidence. `waiting` has the rates of suffix trees and of
    two sources where the device waits for `HOST_SECONDS` a look-up.
    """

    group: str
    kind: str
    clients: int
    rates: dict[str, float]
    waiting: dict[str, float] = {}

    @property
    def better(self) -> str:
        """The single source with the highest rate."""
        return max(SINGLE, key=lambda source: self.rates[source])

    @property
    def gain(self) -> float:
        """Two sources over the better one."""
        return self.rates[BOTH] / self.rates[self.better]

    @property
    def gain_waiting(self) -> float:
        """The same where the device waits for look-ups."""
        return self.waiting[BOTH] / max((self.rates | self.waiting)[each] for each in SINGLE)


def gather(file: RowFile, seeds: Sequence[int]) -> list[Load]:
    """Gather the runs of all cells; loads that were not run with every source are left out."""
    found: dict[tuple[str, str, int], tuple[dict[str, float], dict[str, float]]] = {}
    for cell in load_cells(FILE):
        record = cell.traffic.records[0].removesuffix("+lookup")
        kind = record.split(":")[2] if record.count(":") == 2 else MIXED
        clients = cell.traffic.pieces[0].clients
        group = cell.group.replace("look-ups", "real text")
        rates, waiting = found.setdefault((group, kind, clients), ({}, {}))
        source = HEAD if cell.method == "eagle3" else SUFFIX if "+suffix" in record else NGRAM
        arms = {source: (GOODPUT, WARM)}
        if source == HEAD:
            arms |= {NONE: (NONE, ""), HISTORY: (HISTORY, WARM), BOTH: (BOTH, WARM)}
        for name, (arm, part) in arms.items():
            rows = [row for seed in seeds if (row := file.get(cell.name, arm, seed, part))]
            if rows:
                rates[name] = _rounded(row.score(cell.measure) for row in rows)
            if rows and name in (SUFFIX, BOTH):
                waiting[name] = _rounded(row.score(cell.measure, _waited(row)) for row in rows)
    needed = {*SINGLE, NONE, BOTH}
    return [Load(*at, *same) for at, same in found.items() if needed <= {*same[0]}]


def _rounded(rates: Iterable[float]) -> float:
    return float(f"{mean(rates):.6g}")


def _waited(row: Row) -> float:
    """Seconds of a run that the device waits for look-ups; the largest batch of each class."""
    return HOST_SECONDS * sum(int(size) * steps for size, (steps, _, _) in row.sizes.items())


def tables(loads: Sequence[Load]) -> dict[str, str]:
    """Return the tables of docs/mechanisms.md by section."""
    made = {}
    for group in dict.fromkeys(load.group for load in loads):
        same = [load for load in loads if load.group == group]
        name = group.removeprefix("later: ").replace(" ", "-")
        made[f"{name}-gain"] = _gain(same)
        if "greedy" not in group:  # greedy answers repeat themselves, which flatters every source
            made[f"{name}-sources"] = _sources(same)
            made[f"{name}-confidence"] = _confidence(same)
    return made


def _gain(loads: Sequence[Load]) -> str:
    clients = sorted({load.clients for load in loads})
    lines = [["two sources over the better one", *map(_clients, clients)]]
    lines.append(["---"] * len(lines[0]))
    greedy = "greedy" in loads[0].group  # such answers repeat themselves: the means tell enough
    for kind in () if greedy else dict.fromkeys(load.kind for load in loads):
        at = {load.clients: load for load in loads if load.kind == kind}
        cells = (at.get(n) for n in clients)
        lines.append([kind, *(f"{x.gain:.3f} ({TITLES[x.better]})" if x else "" for x in cells)])
    means = [_mean([load.gain for load in loads if load.clients == n]) for n in clients]
    worst = [min(load.gain for load in loads if load.clients == n) for n in clients]
    lines.append(["mean", *(f"{each:.3f}" for each in means)])
    lines.append(["worst", *(f"{each:.3f}" for each in worst)])
    waiting = [[load.gain_waiting for load in loads if load.clients == n] for n in clients]
    lines.append(["mean, worst; the device waits 15 us a look-up"])
    lines[-1] += [f"{_mean(each):.3f}, {min(each):.3f}" for each in waiting]
    return _text(lines)


def _sources(loads: Sequence[Load]) -> str:
    clients = sorted({load.clients for load in loads})
    lines = [["over no speculation, " + ", ".join(map(str, clients)) + " clients"]]
    lines[0] += [TITLES[source] for source in (*SINGLE, BOTH)]
    lines.append(["---"] * len(lines[0]))
    for title in ("mean of the kinds", MIXED):
        same = [load for load in loads if (load.kind == MIXED) == (title == MIXED)]
        if not same:
            continue
        cells = []
        for source in (*SINGLE, BOTH):
            at = [
                [x.rates[source] / x.rates[NONE] for x in same if x.clients == n] for n in clients
            ]
            cells.append(" ".join(f"{_mean(each):.2f}" if each else "-" for each in at))
        lines.append([title, *cells])
    return _text(lines)


def _confidence(loads: Sequence[Load]) -> str:
    clients = sorted({load.clients for load in loads})
    lines = [["the head with its confidence over without", *map(_clients, clients)]]
    lines.append(["---"] * len(lines[0]))
    found = [
        [x.rates[HEAD] / x.rates[HISTORY] for x in loads if x.clients == n and HISTORY in x.rates]
        for n in clients
    ]
    for title, of in (("mean of the kinds", _mean), ("worst", min), ("best", max)):
        lines.append([title, *(f"{of(each):.3f}" if each else "" for each in found)])
    return _text(lines)


def _clients(number: int) -> str:
    return "1 client" if number == 1 else f"{number} clients"


def _mean(ratios: Sequence[float]) -> float:
    return exp(mean(map(log, ratios)))


def _text(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def published() -> list[Load]:
    """Read the committed figures."""
    return msgspec.json.decode(COMMITTED.read_bytes(), type=list[Load])


def main() -> None:
    """Print the tables; with --results, write their figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "real_text")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    loads = gather(RowFile(given.out / "rows.jsonl"), range(1, given.seeds + 1))
    if given.results is not None:
        lines = b",\n".join(map(msgspec.json.encode, loads))
        (given.results / COMMITTED.name).write_bytes(b"[\n" + lines + b"\n]\n")
    for name, table in tables(loads).items():
        print(f"{name}\n{table}\n")


if __name__ == "__main__":
    main()
