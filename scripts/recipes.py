"""Write docs/recipes.md: what the plugin would do under the commands of vLLM's own recipes.

    python scripts/recipes.py [--only TARGET... | --graphs]

`--graphs` reads the backends' statements anew and keeps the judgements that the table has, but for
those that could not be made. The same
table goes into the wheel (adapters/vllm/recipes.json), for `doctor --recipe` without a network.

Needs the environment `vllm`, and reads vLLM 0.33's wheel, downloaded once. No weights and no hub
are needed: scripts/recipes.yaml names each recipe's model class, method and K; the defaults of
vLLM's or Transformers' configuration class fill in the rest. vLLM makes its configuration of the
command, and `adaptive-spec doctor --recipe` judges it. Parallelism, quantisation and graphs of the
recipe are left out, since this machine is a CPU.

Some model classes import torchvision, which PyPI has for CUDA only. Put one in front of PYTHONPATH
(`pip install --no-deps --target FOLDER torchvision`) to judge these; without it they are named.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from engine_wheels import ARM, unpacked
from graph_builders import has_own_decode_path, replays_mixed

HERE = Path(__file__).resolve().parent
RECIPES = HERE / "recipes.yaml"
PAGE = HERE.parent / "docs/recipes.md"
TABLE = HERE.parent / "adapters/vllm/recipes.json"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
}
ONLY_ON_V2 = ("dspark",)
"""Methods of model runner V2, which a CPU runs in Triton's interpreter."""
UNKNOWN = "not judged"
GPUS = ("hopper", "blackwell")
OTHER_VERSION = "0.33.0"
K_PER_REQUEST = "K per request"
SHORT = {
    "K per request, and draft depth": "K, depth",
    "K per request; the draft depth stays Kmax": "K",
    K_PER_REQUEST: "K",
}
"""Words of the doctor as the page has them."""
MOST_CHARACTERS = 80
"""Of a cell: the reason of a recipe that could not be judged is longer."""
INTRODUCTION = """\
# Recipes

What `adaptive-spec` does under the speculative settings of vLLM's own
[recipes](https://github.com/vllm-project/recipes) (commit 8959cf6, 21 August 2026, and some newer
ones), judged by `python scripts/recipes.py` with vLLM {version} on a CPU. vLLM's own code makes the
configuration; names of models decide nothing. `adaptive-spec doctor --recipe "vllm serve ..."`
judges your command on your machine, where captured graphs and ranks can lower "K per request" to
one K per batch.

{summary}

**K**: K per request at a fixed draft depth; **K, depth**: K per request and draft depth. The
columns of GPUs say what full CUDA graphs leave of it there with vLLM's default settings: **K**
where the decode graphs of all attention backends replay batches whose K differ, else one K per
batch, and the backend that refuses. Which backends these are is by table
(`scripts/recipes.yaml`); what each replays is read in its metadata builder in vLLM's wheels
(`scripts/graph_builders.py`). Nothing was run on a GPU.

| recipe | method, K | what is steered | {columns} |
| --- | --- | --- | {rules} |
"""

Key = tuple[str, str, str]
"""Target, method, and the rest of the speculative configuration as JSON."""


def main() -> None:
    """Judge each target with each method once, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="print these targets, write nothing")
    parser.add_argument("--graphs", action="store_true", help="judge no recipe again")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        _let_torchvision_load(Path(folder))
        _write(options)


def _write(options: argparse.Namespace) -> None:
    known = yaml.safe_load(RECIPES.read_text())
    judged = _kept(known) if options.graphs else {}
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_prepare_v2
    ) as runner_v2:
        for target, settings in known["recipes"].values():
            for method, k, *more in settings:
                key = _key(target, method, more)
                if key in judged or (options.only and target not in options.only):
                    continue
                asked = (known, target, method, k, more[0] if more else {})
                if method in ONLY_ON_V2:
                    judged[key] = runner_v2.submit(judge, *asked).result()
                else:
                    judged[key] = judge(*asked)
                print(*key, "->", judged[key], file=sys.stderr, flush=True)
    if options.only:
        return
    version, rows = table(known, judged)
    TABLE.write_text(json.dumps({"vllm": version, "recipes": rows}, indent=1) + "\n")
    PAGE.write_text(page(version, rows))


def _key(target: str, method: str, more: list[dict[str, Any]]) -> Key:
    return target, method, json.dumps(more[0] if more else {})


def _kept(known: dict[str, Any]) -> dict[Key, str]:
    """Judgements of the table that is there."""
    rows = json.loads(TABLE.read_text())["recipes"]
    found = {}
    for name, (target, settings) in known["recipes"].items():
        for (method, k, *more), row in zip(settings, rows.get(name, ()), strict=False):
            if (row["method"], row["k"]) == (method, k) and not row["steered"].startswith(UNKNOWN):
                found[_key(target, method, more)] = row["steered"]
    return found


OPERATORS = """\
import contextlib, torch
for name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):  # defined already
        torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
"""
"""Operators that PyPI's torchvision, built for CUDA, lacks beside a CPU's torch."""


def _let_torchvision_load(folder: Path) -> None:
    """Define them here, and in the processes in which vLLM inspects model classes."""
    (folder / "sitecustomize.py").write_text(OPERATORS)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(folder), os.environ.get("PYTHONPATH")])
    )
    exec(OPERATORS)


def _prepare_v2() -> None:
    sys.path.insert(0, str(HERE.parent / "tests/vllm/support"))
    import triton_interpreter

    triton_interpreter.prepare()


def judge(known: dict[str, Any], target: str, method: str, k: int, more: dict[str, Any]) -> str:
    """Return the steered parts, in the doctor's words, or why vLLM makes no configuration."""
    from adaptive_spec.adapters.vllm.recipe import judge as judge_command

    with tempfile.TemporaryDirectory() as folder:
        try:
            model = checkpoint(Path(folder) / "target", known["targets"][target])
            speculation: dict[str, Any] = {"method": method, "num_speculative_tokens": k} | more
            # It needs full graphs, which a CPU has not; that we stay out beside it is a rule.
            trims = speculation.pop("enable_adaptive_verification", False)
            drafter = known["drafters"].get(target if method == "mtp" else method)
            if drafter is not None:
                speculation["model"] = str(checkpoint(Path(folder) / "drafter", drafter))
            report = judge_command(
                f"vllm serve {model} --skip-tokenizer-init --max-model-len 4096 "
                f"--speculative-config '{json.dumps(speculation)}' "
                """--additional-config '{"adaptive_spec": {}}'"""
            )
        except Exception as error:  # whatever vLLM or a configuration class raises
            reason = str(error.__cause__ or error).replace("\n", " ")
            return f"{UNKNOWN}: {reason[:160]}"
    found = dict(report.rows)["steered"]
    return f"adaptive verification trims; with `take_over`: {found}" if trims else found


def checkpoint(folder: Path, model: dict[str, Any]) -> Path:
    """A folder with a configuration and no weights. Raises KeyError for a type nobody knows."""
    from transformers import CONFIG_MAPPING
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    kind = model["model_type"]
    if kind not in _CONFIG_REGISTRY and kind not in CONFIG_MAPPING:
        raise KeyError(f"{kind}: only the model's own repository has this configuration class")
    make = _CONFIG_REGISTRY[kind] if kind in _CONFIG_REGISTRY else CONFIG_MAPPING[kind]
    settings = make(**model.get("config", {})).to_dict()
    settings |= {"architectures": [model["architecture"]], "model_type": kind}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings, default=str))
    return folder


def in_full_graphs(known: dict[str, Any], target: str, package: Path) -> dict[str, str]:
    """Return how K per request fares in full graphs, by GPU; nothing where that is unknown."""
    settings = known["targets"][target]
    kind = settings.get("attention")
    found = {}
    for gpu in GPUS if kind else ():
        if has_own_decode_path(package, settings.get("folder")):
            found[gpu] = "one K: a decode path of the model's own"
            continue
        names = known["attention"][kind][gpu]
        refusing = [each for each in names if not replays_mixed(package, known["builders"][each])]
        found[gpu] = f"one K: {refusing[0]}" if refusing else K_PER_REQUEST
    return found


def table(
    known: dict[str, Any], judged: dict[Key, str]
) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """vLLM's version, and by recipe a row for each setting."""
    import vllm

    version = vllm.__version__.partition("+")[0]
    packages = {
        version: Path(vllm.__file__).parent,
        OTHER_VERSION: unpacked("vllm", OTHER_VERSION, ARM, compiled=False) / "vllm",
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, (target, settings) in sorted(
        known["recipes"].items(), key=lambda item: item[0].lower()
    ):
        graphs = {each: in_full_graphs(known, target, path) for each, path in packages.items()}
        for method, k, *more in settings:
            steered = judged[_key(target, method, more)]
            row = {"method": method, "k": k, "steered": steered}
            rows.setdefault(name, []).append(
                row | ({"graphs": graphs} if _is_steered(steered) else {})
            )
    return version, rows


def page(version: str, rows: dict[str, list[dict[str, Any]]]) -> str:
    """The page: a recipe counts as steered if one of its settings is."""
    states = Counter(_state([row["steered"] for row in some]) for some in rows.values())
    columns = [(each, gpu) for each in (version, OTHER_VERSION) for gpu in GPUS]
    alike: dict[tuple[str, ...], list[str]] = {}
    per_request = Counter[tuple[str, str]]()
    for name, some in rows.items():
        owner, _, model = name.partition("/")
        for column in columns:
            per_request[column] += any(_in_graphs(row, *column) == K_PER_REQUEST for row in some)
        for row in some:
            cells = [f"{row['method']}, {row['k']}", row["steered"]]
            cells += [_in_graphs(row, *column) for column in columns]
            alike.setdefault((owner, *map(_short, cells)), []).append(model)
    lines = [
        "| " + " | ".join((f"{owner}/" + ", ".join(models), *cells)) + " |"
        for (owner, *cells), models in alike.items()
    ]
    total = len(rows)
    counted = "; ".join(
        f"vLLM {each}: "
        + ", ".join(f"{per_request[each, gpu]} of {total} on {gpu.title()}" for gpu in GPUS)
        for each in (version, OTHER_VERSION)
    )
    summary = (
        f"Of {total} recipes {states['steered']} are steered ({states['steered'] / total:.0%}), "
        f"{states['watched']} are watched only, {states[UNKNOWN]} could not be judged here.\n"
        f"K per request in full graphs, {counted}."
    )
    named = " | ".join(f"{each.rpartition('.')[0]}, {gpu.title()}" for each, gpu in columns)
    rules = " | ".join("---" for _ in columns)
    introduction = INTRODUCTION.format(version=version, summary=summary, columns=named, rules=rules)
    return introduction + "\n".join(lines) + "\n"


def _in_graphs(row: dict[str, Any], version: str, gpu: str) -> str:
    return str(row.get("graphs", {}).get(version, {}).get(gpu, ""))


def _short(cell: str) -> str:
    for long, short in SHORT.items():
        cell = cell.replace(long, short)
    return cell.removeprefix("one K: ")[:MOST_CHARACTERS]


def _is_steered(answer: str) -> bool:
    return answer.startswith(("K per request", "one K"))


def _state(answers: list[str]) -> str:
    if any(map(_is_steered, answers)):
        return "steered"
    return UNKNOWN if all(answer.startswith(UNKNOWN) for answer in answers) else "watched"


if __name__ == "__main__":
    main()
