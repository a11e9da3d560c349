"""Write docs/recipes.md: what the plugin would do under the commands of vLLM's own recipes.

    python scripts/recipes.py [--only TARGET...]

Needs the environment `vllm`. No weights and no hub are needed: scripts/recipes.yaml names each
recipe's model class, method and K; the defaults of vLLM's or Transformers' configuration class fill
in the rest. vLLM makes its configuration of the command, and `adaptive-spec doctor --recipe` judges
it. Parallelism, quantisation and graphs of the recipe are left out, since this machine is a CPU.

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

HERE = Path(__file__).resolve().parent
RECIPES = HERE / "recipes.yaml"
PAGE = HERE.parent / "docs/recipes.md"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "CRITICAL",
}
ONLY_ON_V2 = ("dspark",)
"""Methods of model runner V2, which a CPU runs in Triton's interpreter."""
UNKNOWN = "not judged"
GPUS = ("hopper", "blackwell")
K_PER_REQUEST = "K per request"
INTRODUCTION = """\
# Recipes

What `adaptive-spec` does under the speculative settings of vLLM's own
[recipes](https://github.com/vllm-project/recipes) (commit 8959cf6, 21 August 2026), judged by
`python scripts/recipes.py` with vLLM {version} on a CPU. vLLM's own code makes the configuration;
names of models decide nothing. `adaptive-spec doctor --recipe "vllm serve ..."` judges your command
on your machine, where captured graphs and ranks can lower "K per request" to one K per batch.

{summary}

The columns Hopper and Blackwell say what full CUDA graphs leave of it on such a GPU with vLLM's
default settings: K per request where the decode graphs of the attention backend replay batches
whose K differ, else one K per batch, with the backend that refuses. These two columns are by table
(`scripts/recipes.yaml`), read in vLLM's source; nothing was run on a GPU.

| recipe | method, K | what is steered | Hopper | Blackwell |
| --- | --- | --- | --- | --- |
"""


def main() -> None:
    """Judge each target with each method once, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--only", nargs="*", default=[], help="print these targets, write nothing")
    only = parser.parse_args().only
    os.environ.update(ENVIRONMENT)
    known = yaml.safe_load(RECIPES.read_text())
    judged: dict[tuple[str, str], str] = {}
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_prepare_v2
    ) as runner_v2:
        for target, settings in known["recipes"].values():
            for method, k in settings:
                key = (target, method)
                if key in judged or (only and target not in only):
                    continue
                if method in ONLY_ON_V2:
                    judged[key] = runner_v2.submit(judge, known, target, method, k).result()
                else:
                    judged[key] = judge(known, target, method, k)
                print(*key, "->", judged[key], file=sys.stderr, flush=True)
    if not only:
        PAGE.write_text(page(known, judged))


def _prepare_v2() -> None:
    sys.path.insert(0, str(HERE.parent / "tests/vllm/support"))
    import triton_interpreter

    triton_interpreter.prepare()


def judge(known: dict[str, Any], target: str, method: str, k: int) -> str:
    """What would be steered, in the doctor's words, or why vLLM makes no configuration."""
    from adaptive_spec.adapters.vllm.recipe import judge as judge_command

    with tempfile.TemporaryDirectory() as folder:
        try:
            model = checkpoint(Path(folder) / "target", known["targets"][target])
            speculation: dict[str, Any] = {"method": method, "num_speculative_tokens": k}
            drafter = known["drafters"].get(target if method == "mtp" else method)
            if drafter is not None:
                speculation["model"] = str(checkpoint(Path(folder) / "drafter", drafter))
            report = judge_command(
                f"vllm serve {model} --skip-tokenizer-init --max-model-len 4096 "
                f"--speculative-config '{json.dumps(speculation)}'"
            )
        except Exception as error:  # whatever vLLM or a configuration class raises
            reason = str(error.__cause__ or error).replace("\n", " ")
            return f"{UNKNOWN}: {reason[:160]}"
    return dict(report.rows)["steered"]


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


def in_full_graphs(known: dict[str, Any], target: str) -> dict[str, str]:
    """What full graphs leave of K per request, by GPU; nothing where that is unknown."""
    kind = known["targets"][target].get("attention")
    refusing: dict[str, str | None] = known["attention"][kind] if kind else {}
    return {
        gpu: K_PER_REQUEST if backend is None else f"one K: {backend}"
        for gpu, backend in refusing.items()
    }


def page(known: dict[str, Any], judged: dict[tuple[str, str], str]) -> str:
    """The page: a recipe counts as steered if one of its settings is."""
    import vllm

    rows, states = [], Counter[str]()
    per_request = Counter[str]()
    recipes = known["recipes"]
    for name, (target, settings) in sorted(recipes.items(), key=lambda item: item[0].lower()):
        answers = [judged[target, method] for method, _ in settings]
        state = _state(answers)
        states[state] += 1
        graphs = in_full_graphs(known, target) if state == "steered" else {}
        per_request.update(gpu for gpu in GPUS if graphs.get(gpu) == K_PER_REQUEST)
        rows += [
            f"| {name} | {method}, {k} | {answer} | {graphs.get('hopper', '')} "
            f"| {graphs.get('blackwell', '')} |"
            for (method, k), answer in zip(settings, answers, strict=True)
        ]
    share = states["steered"] / len(recipes)
    of_gpus = ", ".join(
        f"{per_request[gpu]} ({per_request[gpu] / len(recipes):.0%}) on {gpu.title()}"
        for gpu in GPUS
    )
    summary = (
        f"Of {len(recipes)} recipes {states['steered']} are steered ({share:.0%}), "
        f"{states['watched']} are watched only, {states[UNKNOWN]} could not be judged here.\n"
        f"K per request in full graphs: {of_gpus}."
    )
    return INTRODUCTION.format(version=vllm.__version__, summary=summary) + "\n".join(rows) + "\n"


def _state(answers: list[str]) -> str:
    if any(answer.startswith(("K per request", "one K")) for answer in answers):
        return "steered"
    return UNKNOWN if all(answer.startswith(UNKNOWN) for answer in answers) else "watched"


if __name__ == "__main__":
    main()
