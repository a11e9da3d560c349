"""Makes `docs/ablation.md` of what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, stdev

from benchmarks.ablation.measure import Run, Store, text_of
from benchmarks.ablation.reasons import REASONS
from benchmarks.ablation.switch import Row, Switch

BOUND = 0.3
"""Points that a mechanism has to be worth where it is meant to help."""

_HEAD = """# What each mechanism of `goodput` is worth

Each mechanism is left out by itself, and the policy runs again on the cells it was made for and on
a few mixed ones. Both runs of a cell meet the same requests and the same luck. Made by

```sh
python benchmarks/ablation.py --out out/ablation.json --write docs/ablation.md
```

A gain is the score with the mechanism over the score without it, minus 1, in per cent; the score is
throughput in closed loops and 1 / mean TPOT where requests arrive by themselves. For latency
targets it is the share of requests that keep their target, in points. `±` is the standard error of
the mean, from the spread over seeds. `most` is the cell with the largest gain. The last figure is
what the mechanism adds to the median time of a decision at 64 clients with confidence: plan, three
or so draft passes and outcome together.

Leaving out one mechanism does not say what happens without two. Cells were fixed beforehand, but
for those added where a mechanism looked dispensable, to give it a chance: at AUC .5 and with
recorded noise for model selection; with passes that always run to the end for option value and
earlier confidence; one client and `rises` (the list `ALONE`) for slow average, credit and trial,
after leaving out several at a time had lost there. That turned the verdict on credit, which does
not act on any of the cells it was first given.

The rule: what is not worth {bound} where it was meant to help, or costs as much elsewhere, goes.
Where a verdict does not follow the rule alone (*), the reason stands below.

| mechanism | made for | gain there | most | mixed cells | decision | verdict |
| --- | --- | ---: | --- | ---: | ---: | --- |
"""


@dataclass(frozen=True)
class Gain:
    """Of one mechanism on some cells, in per cent or points: a value by seed for each."""

    by_cell: dict[str, list[float]]

    @property
    def mean(self) -> float:
        """Over all cells, each counting alike."""
        return mean(mean(each) for each in self.by_cell.values())

    @property
    def error(self) -> float:
        """Standard error of the mean, from the spread over seeds within each cell."""
        variances = [
            stdev(each) ** 2 / len(each) for each in self.by_cell.values() if len(each) > 1
        ]
        return math.sqrt(sum(variances)) / len(self.by_cell)

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.mean:+.2f} ± {self.error:.2f}"


def gain(
    switch: Switch, rows: Iterable[Row], store: Store, *, targets: bool | None = None
) -> Gain | None:
    """What the mechanism brings on these cells; None if it was not run there."""
    found: dict[str, list[float]] = {}
    wanted = switch.targets if targets is None else targets
    for row in rows:
        text = text_of(row)
        runs = store.without.get(switch.name, {}).get(text)
        if runs:
            # Some cells were run on more seeds than others.
            pairs = zip(store.whole[text], runs, strict=False)
            found[text] = [_gain(a, b, wanted, switch.added) for a, b in pairs]
    return Gain(found) if found else None


def verdict(switch: Switch, there: Gain, mixed: Gain | None) -> str:
    """`keep` or `cut`, by the rule or for the reason that is written down.

    A mechanism that changes nothing to the last bit has not been judged: its case did not come.
    """
    if switch.name in REASONS:
        return f"**{REASONS[switch.name][0]}** (*)"
    if not any(any(each) for each in there.by_cell.values()):
        return "open: does not act on these cells"
    costs = -mixed.mean if mixed is not None else 0.0
    return "keep" if there.mean >= BOUND and costs < BOUND else "**cut**"


def line(switch: Switch, store: Store, mixed_rows: tuple[Row, ...]) -> str:
    """A row of the table."""
    there = gain(switch, switch.cells, store)
    rest = [row for row in mixed_rows if row not in switch.cells]
    mixed = gain(switch, rest, store) if switch.spread else None
    assert there is not None
    best = max(there.by_cell, key=lambda cell: mean(there.by_cell[cell]))
    most = f"{mean(there.by_cell[best]):+.2f} {best}"
    shown = there.text
    if switch.targets:
        speed = gain(switch, switch.cells, store, targets=False)
        assert speed is not None
        shown += f" points within target; {speed.text} % throughput"
    added = store.decision_us.get(switch.name)
    took = "" if added is None else f"{added:+.0f} µs"
    between = mixed.text if mixed is not None else "does not act"
    return (
        f"| {switch.name} | {switch.purpose} | {shown} | {most} | {between} | "
        f"{took} | {verdict(switch, there, mixed)} |"
    )


def document(switches: list[Switch], store: Store, mixed: tuple[Row, ...]) -> str:
    """The page."""
    done = [switch for switch in switches if store.without.get(switch.name)]
    seeds = min(len(runs) for runs in store.whole.values())
    text = _HEAD.format(bound=BOUND)
    text += "\n".join(line(switch, store, mixed) for switch in done)
    text += f"\n\n{seeds} seeds. Mixed cells: {'; '.join(map(text_of, mixed))}.\n"
    reasons = [(name, REASONS[name]) for name in (s.name for s in done) if name in REASONS]
    if reasons:
        text += "\n## Against the rule, or beyond it\n\n"
        text += "\n".join(f"* **{name}**, {word}: {why}" for name, (word, why) in reasons)
        text += "\n"
    text += "\n## Every cell\n\n| mechanism | cell | gain by seed |\n| --- | --- | --- |\n"
    for switch in done:
        found = gain(switch, switch.cells, store)
        for cell, each in found.by_cell.items() if found else ():
            values = ", ".join(f"{value:+.2f}" for value in each)
            text += f"| {switch.name} | {cell} | {values} |\n"
    return text


def _gain(whole: Run, without: Run, targets: bool, added: bool) -> float:
    sign = -1.0 if added else 1.0
    if targets:
        assert whole.kept is not None
        assert without.kept is not None
        return sign * 100.0 * (whole.kept - without.kept)
    ratio = without.score / whole.score if added else whole.score / without.score
    return 100.0 * (ratio - 1.0)
