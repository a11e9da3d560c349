"""Writes docs/leaderboard.md from the results of the sweep. No figure in it is typed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adaptive_spec.policy import GRANULARITY, policy_class, provenance_of
from adaptive_spec.sim.report.leaderboard import Condition, Standing, conditions
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.results import SweepResults
from benchmarks.leaderboard.checks import OURS, Demand, plain_name, where

_MOST_COLUMNS = 6
_MARK = {True: "met", False: "**missed**", None: ""}

_HEAD = """# Leaderboard

`goodput` is compared with every other policy of this project, with the baselines of other systems,
with each static K and with no speculation, in the simulator. Demands come first, then the standings
by group, then what the baselines were given and where they come from.
[Findings](mechanisms.md) explains the misses, [validation](validation.md) how far to
trust the simulator. To make the page anew:

```sh
python benchmarks/leaderboard.py tune       # profiles and tuned values of baselines
adaptive-spec sweep benchmarks/leaderboard.yaml --output out/leaderboard
python benchmarks/leaderboard.py write out/leaderboard
adaptive-spec report out/leaderboard        # the same as a page, with every cell
```

These figures are of adaptive-spec {version}: {cells} cells, {runs:,} runs of policies, on public
and own acceptance data and published or computed step times.

The score is throughput in closed loops and 1 / mean TPOT where arrivals fix the throughput.
`/ best K` is the score over that of the best static K of the same cell, chosen in hindsight. All
policies of a cell meet the same requests and the same luck. The seeds of a cell are averaged before
anything else. Closed loops are measured after 2,000 tokens per client, about 1,000 steps. Kmax is
6.
"""

_RULES = """## What baselines are given

* Baselines that profile their engine at start-up get its cost profile
  (`benchmarks/leaderboard/profiles`); goodput, bandits and regression get none.
* `batch_table` and `trtllm_schedule` are tuned for each acceptance set, drafter and machine on runs
  of every static K at 1, 4, 16, 64 and 256 clients with another seed, the thresholds of
  TensorRT-LLM's gates for each drafter and machine over all acceptance sets
  (`benchmarks/leaderboard/tuned.json`).
* All policies run on an engine that can vary K by request and draft depth by step, also those that
  choose one K for the batch. All other options are the original's defaults, except `llama_p_min`
  (p_min 0.75, its default before it became 0) and drafts of at most 6.
* Baselines keep their faults; the table of sources names them.
"""

_GAPS = """## What is not covered

* The whole cross product: each group crosses a few axes (`benchmarks/leaderboard.yaml`).
* Token trees, other Kmax, memory pressure, and drafters other than EAGLE chains and n-gram look-up.
* Acceptance of larger models: the lists of Llama-3.1-8B run on all machines.
* Confidence of a large drafter: the synthetic one is calibrated, the recorded ones are of a small
  pair.
* Perfect foresight: `adaptive-spec sweep` with `foresight: true` shows it.
* Decision times on a quiet machine: they are medians while other work ran.
"""


def document(results: SweepResults, demands: Sequence[Demand]) -> str:
    """The whole file."""
    board = conditions(results)
    cells = len({row.cell for row in results.rows})
    runs = sum(row.kind == "policy" for row in results.rows)
    parts = [
        _HEAD.format(version=results.version, cells=cells, runs=runs),
        "## Demands\n\n" + _demands(demands),
        "## Standings\n",
        *(_group(condition) for condition in board),
        _RULES,
        "## Where they come from\n\n" + _sources(results.config),
        _GAPS,
    ]
    if results.failures:
        lines = [f"* {each.cell.text} / {each.policy}: {each.error}" for each in results.failures]
        parts.append("## Runs that failed\n\n" + "\n".join(lines) + "\n")
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _demands(demands: Sequence[Demand]) -> str:
    rows = [(each.wanted, each.found, _MARK[each.passed]) for each in demands]
    return _table(("demand on `goodput`", "found", ""), rows, left=3)


def _group(condition: Condition) -> str:
    text = f"### {condition.name}\n\n{_sentence(condition.about)} "
    text += f"{_count(condition.cells, 'cell')}, {_count(condition.seeds, 'seed')}.\n\n"
    wide = len(condition.columns) > _MOST_COLUMNS
    columns = () if wide else condition.columns
    changes = any(each.recoveries for each in condition.standings)
    head = ["policy", "/ best K", *columns, "worst", "/ no spec., worst"]
    head += ["recovered", "steps", "s", "s lost"] if changes else []
    head += ["switches / 1,000", "decision µs"]
    rows = [_line(each, changes=changes, wide=wide) for each in condition.standings]
    text += _table(head, rows)
    ours = next((each for each in condition.standings if each.policy == OURS), None)
    if ours is not None and ours.worst is not None:
        text += f"\nWorst cell of `{OURS}`: {ours.worst[0]:.3f} at {where(ours.worst[1])}.\n"
    if wide and ours is not None:
        pairs = zip(condition.columns, ours.by_column, strict=True)
        shown = ", ".join(f"{name} {_ratio(value)}" for name, value in pairs)
        text += f"`{OURS}` by load: {shown}.\n"
    return text


def _line(standing: Standing, *, changes: bool, wide: bool) -> tuple[str, ...]:
    name = f"**{standing.policy}**" if standing.policy == OURS else standing.policy
    cells = [name, _ratio(standing.of_best_static)]
    cells += [] if wide else [_ratio(value) for value in standing.by_column]
    cells.append(_ratio(standing.worst[0] if standing.worst else None))
    cells.append(_ratio(standing.worst_of_no_speculation))
    if changes:
        found = standing.recoveries
        if found is None:
            cells += ["", "", "", ""]
        else:
            cells.append(f"{found.recovered} of {found.changes}")
            cells += [_number(found.steps), _number(found.seconds), _number(found.lost_seconds)]
    cells += [_number(standing.switches), _number(standing.decision_p50_us)]
    return tuple(cells)


def _sources(config: SweepConfig) -> str:
    rows = []
    seen: set[str] = set()
    for entry in config.policy_entries():
        name = plain_name(entry.policy)
        if name in seen:
            continue
        seen.add(name)
        policy = policy_class(name, baselines=True)
        found = provenance_of(policy)
        faults = found.faults
        if found.greedy_drafts_only:
            faults = "; ".join(
                each for each in (faults, "lossless with greedy drafts only") if each
            )
        rows.append(
            (
                f"`{name}`",
                policy.summary,
                found.source or "this project",
                GRANULARITY[found.granularity],
                faults,
            )
        )
    return _table(("policy", "what", "source", "granularity", "faults kept"), rows, left=5)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    lines = [head, rule, *rows]
    return "\n".join("| " + " | ".join(_escaped(line)) + " |" for line in lines) + "\n"


def _escaped(cells: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in cells]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("." if text and not text.endswith(".") else "")


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
