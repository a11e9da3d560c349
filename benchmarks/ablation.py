"""What each mechanism of `goodput` is worth: runs with and without it, and `docs/ablation.md`.

python benchmarks/ablation.py --out out/ablation.json [--only NAME] [--seeds 3] [--write FILE.md]

What the output file has already is not run again. The switches are in `benchmarks/ablation`: they
replace methods of the policy while it runs, so that nothing in the product is there to be measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

if not __package__:  # run as a file
    # In place of this folder, where `ablation` would be found under a second name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.kernels import select_kernel
from adaptive_spec.sim.data_folder import ENVIRONMENT_VARIABLE, data_folder
from benchmarks.ablation import acceptance_switches, planning_switches
from benchmarks.ablation.document import document, line
from benchmarks.ablation.measure import Store, measure
from benchmarks.ablation.switch import Switch

MIXED = planning_switches.MIXED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="runs, JSON; taken up again")
    parser.add_argument("--only", action="append", help="name of a mechanism; may be repeated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="write the page here")
    parser.add_argument("--progress", type=Path, help="add a line here after each mechanism")
    parser.add_argument("--no-run", action="store_true", help="only write the page")
    parser.add_argument("--data", type=Path, help="folder of public traces")
    arguments = parser.parse_args()
    every = [*acceptance_switches.SWITCHES, *planning_switches.SWITCHES]
    unknown = set(arguments.only or ()) - {each.name for each in every}
    if unknown:
        raise SystemExit(f"no mechanism {min(unknown)!r}: {', '.join(s.name for s in every)}")
    chosen = [each for each in every if not arguments.only or each.name in arguments.only]
    os.environ[ENVIRONMENT_VARIABLE] = str(data_folder(arguments.data).resolve())
    select_kernel("auto")
    store = Store()
    if arguments.out.exists():
        store = msgspec.json.decode(arguments.out.read_bytes(), type=Store)

    def done(switch: Switch) -> None:
        store.save(arguments.out)
        found = line(switch, store, MIXED)
        print(found, flush=True)
        if arguments.progress:
            with arguments.progress.open("a", encoding="utf-8") as file:
                file.write(found + "\n")

    if not arguments.no_run:
        measure(chosen, MIXED, arguments.seeds, store, done)
    if arguments.write:
        arguments.write.write_text(document(every, store, MIXED), encoding="utf-8")


if __name__ == "__main__":
    main()
