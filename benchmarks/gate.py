"""Hold a sweep's results against those of an earlier one: does a change of a policy lose a cell?

    adaptive-spec sweep benchmarks/house_cells.yaml --output out/house
    python benchmarks/gate.py out/house benchmarks/results/house_cells.json      # status 1: it does
    python benchmarks/gate.py out/house benchmarks/results/house_cells.json --renew

A score is throughput in closed loops and 1 / mean TPOT where requests arrive by themselves.
Allowed, each as a mean over the seeds: the mean of a group within .3 % of the earlier run, and no
cell more than .5 % below it. Where a fixed K scores otherwise, the simulator has changed, and
nothing can be said of the policy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev

import msgspec

from adaptive_spec.sim.sweep.config import Group
from adaptive_spec.sim.sweep.results import Row, group_rows, read_results

GROUP_BOUND, CELL_BOUND = 0.3, 0.5
Scores = dict[str, dict[str, dict[str, list[float]]]]
"""By policy, group and cell, each seed's."""


def score(row: Row) -> float:
    """Return tokens per second, or 1 / mean TPOT [1 / ms] where requests arrive by themselves."""
    if row.closed:
        return row.result.throughput_tok_s
    if row.result.tpot_ms.mean is None:
        raise SystemExit(f"{row.cell.text}: no request has ended, so that it has no score")
    return 1.0 / row.result.tpot_ms.mean


def scores(folder: Path) -> Scores:
    """Read the scores of a finished sweep."""
    results = read_results(folder)
    if results.failures:
        raise SystemExit(f"{results.failures[0].cell.text}: {results.failures[0].error}")
    found: Scores = {}
    for group, chosen in (results.config.groups or {"all": Group()}).items():
        for row in group_rows(results, chosen):
            if row.result.fail_opens:
                raise SystemExit(f"{row.cell.text}: {row.result.fail_opens} fail-opens")
            cell = row.cell
            text = " / ".join((cell.acceptance, cell.hardware, cell.engine, cell.load))
            cells = found.setdefault(row.result.policy, {}).setdefault(group, {})
            cells.setdefault(text, []).append(score(row))
    return found


def compare(before: Scores, after: Scores) -> bool:
    """Print the change by group and what is beyond the bounds; return whether nothing is lost."""
    lost: list[str] = []
    every: list[float] = []
    print(f"{'group':26}{'mean':>8}{'lowest':>8}{'highest':>9}")
    for policy, groups in before.items():
        for group, cells in groups.items():
            changes = []
            for cell, old in cells.items():
                new = after.get(policy, {}).get(group, {}).get(cell, [])
                if len(new) != len(old):
                    raise SystemExit(f"the later run lacks {policy}: {group}: {cell}")
                if policy.startswith("static"):
                    if new != old:
                        raise SystemExit(f"{cell}: the simulator has changed: {policy}")
                    continue
                each = [100.0 * (b / a - 1.0) for a, b in zip(old, new, strict=True)]
                changes.append(mean(each))
                if mean(each) < -CELL_BOUND:
                    spread = stdev(each) if len(each) > 1 else 0.0
                    lost.append(f"{mean(each):+.2f} (spread {spread:.2f}): {group}: {cell}")
            if changes:
                row = mean(changes), min(changes), max(changes)
                print(f"{group:26}{row[0]:+8.2f}{row[1]:+8.2f}{row[2]:+9.2f}")
                every += changes
                if abs(mean(changes)) > GROUP_BOUND:
                    lost.append(f"{mean(changes):+.2f}: mean of {group}")
    print(f"{'all':26}{mean(every):+8.2f}{min(every):+8.2f}{max(every):+9.2f}")
    print("\n".join(["", "beyond the bounds:", *lost] if lost else ["", "within the bounds"]))
    # A group that has gained is told, and is no loss.
    return not any(line.startswith("-") for line in lost)


def main() -> int:
    """Parse, compare or renew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the sweep")
    parser.add_argument("earlier", type=Path, help="scores of the earlier run")
    parser.add_argument("--renew", action="store_true", help="write the scores there")
    given = parser.parse_args()
    found = scores(given.folder)
    if given.renew:
        given.earlier.write_bytes(msgspec.json.encode(found) + b"\n")
        return 0
    return 0 if compare(msgspec.json.decode(given.earlier.read_bytes(), type=Scores), found) else 1


if __name__ == "__main__":
    sys.exit(main())
