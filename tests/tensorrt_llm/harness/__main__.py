"""Run the table on the installed TensorRT-LLM, GPU or not: `python -m harness`."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
ROOT = HERE.parents[1]
HEADINGS = (
    *("run", "requests", "output = greedy", "labels", "faults", "K that ran"),
    *("replayed / eager", "dummies", "acceptance: upstream's / true", "result"),
)


def main() -> int:
    """Print what was found; the exit status is 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    parser.add_argument("--tree", type=Path, help="folder with a package tensorrt_llm to use")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--json", type=Path, help="file to write the results to")
    arguments = parser.parse_args()
    if arguments.tree is not None:
        sys.path.insert(0, str(arguments.tree))
    if importlib.util.find_spec("tensorrt_llm") is None:
        print(f"TensorRT-LLM is not installed in {sys.prefix}: nothing to test")
        return 0
    sys.path.insert(0, str(ROOT))

    from adaptive_spec.adapters.tensorrt_llm import doctor
    from harness.cases import CASES

    report = doctor.describe()
    print(f"TensorRT-LLM {report.installed_version or 'of a folder'}: {report.detail}")
    paths = (arguments.tree, HERE, ROOT, os.environ.get("PYTHONPATH"))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if path),
        "OMP_NUM_THREADS": "1",
    }
    names = [case.name for case in CASES if arguments.only in case.name]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: run_apart(name, environment), names))
    print("\n".join(table(results)))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    unknown = sorted({name for result in results for name in result["unknown"]})
    if unknown:
        print(f"attributes that the harness does not know: {', '.join(unknown)}")
    return int(not report.supported or any(result["problems"] for result in results))


def run_apart(name: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run a case in its own process; return its result."""
    command = [sys.executable, "-m", "harness.cases", name]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        problem = "did not end within 300 s"
    except (IndexError, json.JSONDecodeError):
        problem = (done.stderr.strip().splitlines() or ["no result"])[-1]
    return {"name": name, "problems": [problem], "unknown": []}


def table(results: list[dict[str, Any]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "| --- " * len(HEADINGS) + "|"]
    for result in results:
        if "requests" not in result:
            cells = [result["name"], *[""] * 8, "; ".join(result["problems"])]
        else:
            wrong = result["wrong"]
            shares = (result["acceptance"], result["true_acceptance"])
            cells = [
                result["name"],
                str(result["requests"]),
                f"{wrong} wrong" if wrong else "all",
                str(result["labels"] or ""),
                ", ".join(result["faults"]) or "none",
                ", ".join(map(str, result["k"])),
                f"{result['replayed']} / {result['eager']}",
                str(result["dummies"]),
                " / ".join("" if share is None else f"{share:.0%}" for share in shares),
                "; ".join((*result["problems"], *filter(None, [result["note"]]))) or "as wanted",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
