"""Small checkpoints of the model families that people serve, made from a seed.

    python tests/vllm/support/family_checkpoints.py OUT_DIR [FAMILY ...]

makes OUT_DIR/FAMILY/target and, for a drafter of its own, OUT_DIR/FAMILY/draft: a config.json and a
model.safetensors that vLLM's own code loads.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import family_configs as configs
import family_weights as weights
from family_weights import Tensors


@dataclass(frozen=True)
class Family:
    """A target, what drafts for it, and how.

    Attributes:
        target: config.json of the target.
        target_tensors: makes the target's tensors, where transformers does not know the model.
        method: vLLM's name of the speculation method.
        own_drafter: adds the drafter's tensors to the target's.
        draft: config.json of a separate drafter; None if it is part of the target.
        draft_tensors: makes the separate drafter's tensors from the target's.
        operators: fixes of `cpu_operators` that the family needs.
    """

    target: dict[str, Any]
    method: str = "mtp"
    own_drafter: Callable[[Tensors, dict[str, Any]], Tensors] = field(default=lambda *_: {})
    draft: dict[str, Any] | None = None
    draft_tensors: Callable[[Tensors], Tensors] | None = None
    operators: tuple[str, ...] = ()
    target_tensors: Callable[[dict[str, Any]], Tensors] | None = None

    def speculation(self, folder: Path, k: int) -> dict[str, Any]:
        """vLLM's --speculative-config, for a model in this folder."""
        config = {"method": self.method, "num_speculative_tokens": k}
        return config | ({"model": str(folder / "draft")} if self.draft is not None else {})


def build(folder: Path, name: str) -> Path:
    """Make the checkpoint of a family; return its folder."""
    family, place = FAMILIES[name], folder / name
    if (place / "done").exists():
        return place
    make = family.target_tensors or partial(weights.initialised, place / "target")
    target = make(family.target)
    _write(place / "target", family.target, target | family.own_drafter(target, family.target))
    if family.draft is not None:
        if family.draft_tensors is not None:
            _write(place / "draft", family.draft, family.draft_tensors(target))
        else:
            _write(
                place / "draft", family.draft, weights.initialised(place / "draft", family.draft)
            )
    (place / "done").touch()
    return place


def _write(place: Path, config: dict[str, Any], tensors: Tensors) -> None:
    from safetensors.torch import save_file

    place.mkdir(parents=True, exist_ok=True)
    for leftover in place.iterdir():
        leftover.unlink()
    (place / "config.json").write_text(json.dumps(config, indent=1))
    whole = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    save_file(whole, place / "model.safetensors", metadata={"format": "pt"})


FAMILIES: dict[str, Family] = {
    "mimo_mtp": Family(configs.MIMO, own_drafter=weights.mimo_module),
    "glm_moe_mtp": Family(configs.GLM, own_drafter=weights.nextn_modules),
    "deepseek_mtp": Family(configs.DEEPSEEK, own_drafter=weights.nextn_modules),
    "several_mtp_modules": Family(
        configs.GLM | {"num_nextn_predict_layers": 2}, own_drafter=weights.nextn_modules
    ),
    "qwen3_next_mtp": Family(
        configs.QWEN3_NEXT,
        own_drafter=weights.qwen3_next_module,
        operators=("gdn_ragged", "gdn_float32"),
    ),
    "falcon_h1": Family(
        configs.FALCON,
        "draft_model",
        draft=configs.LLAMA | {"num_hidden_layers": 1},
        operators=("mamba_conv", "mamba_ssm"),
    ),
    "gemma4": Family(configs.GEMMA_TEXT, draft=configs.GEMMA_ASSISTANT),
    "step3p5": Family(
        configs.STEP3P5, own_drafter=weights.nextn_modules, target_tensors=weights.step3p5_target
    ),
    "medusa": Family(
        configs.LLAMA, "medusa", draft=configs.MEDUSA, draft_tensors=weights.medusa_heads
    ),
    "eagle3": Family(
        configs.LLAMA, "eagle3", draft=configs.EAGLE3, draft_tensors=weights.eagle3_head
    ),
    "dflash": Family(
        configs.QWEN3, "dflash", draft=configs.DFLASH, draft_tensors=weights.dflash_drafter
    ),
    "dspark": Family(
        configs.QWEN3, "dspark", draft=configs.DSPARK, draft_tensors=weights.dspark_drafter
    ),
}


if __name__ == "__main__":
    for chosen in sys.argv[2:] or FAMILIES:
        print(build(Path(sys.argv[1]), chosen))
