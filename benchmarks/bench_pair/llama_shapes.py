"""The bench models in the shapes that people serve: same logits, a large model's cost.

    python benchmarks/bench_pair/llama_shapes.py OUT_DIR [--size 8b] [--device cuda] [--only ...]

writes OUT_DIR/{target,draft,eagle} in bf16. `target` has the shape of Llama-3.1-8B, `draft` that of
Llama-3.2-1B, `eagle` is one layer of the target's shape, `draft_poor` is the draft after noise. On
a GPU the 16 GB are made in seconds. `--size tiny` makes toys for trying the code on a CPU.

`llama_expansion` says how a model keeps its logits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "benchmarks.bench_pair"

from .llama_expansion import Expansion, LlamaShape
from .names import TOKENIZER, WEIGHTS
from .transformations import NOISE_SEED, NOISE_SHARE, Tensors, add_noise, spread

SHARD_LAYERS = 4


SIZES = {
    "8b": {
        "target": LlamaShape(4096, 32, 32, 8, 128, 14336, 128_256),
        "eagle": LlamaShape(4096, 1, 32, 8, 128, 14336, 128_256),
        "draft": LlamaShape(2048, 16, 32, 8, 64, 8192, 128_256),
        "draft_poor": LlamaShape(2048, 16, 32, 8, 64, 8192, 128_256),
    },
    "tiny": {
        "target": LlamaShape(512, 5, 8, 2, 128, 1024, 2304),
        "eagle": LlamaShape(512, 1, 8, 2, 128, 1024, 2304),
        "draft": LlamaShape(256, 2, 4, 1, 64, 640, 2304),
        "draft_poor": LlamaShape(256, 2, 4, 1, 64, 640, 2304),
    },
}


def shards(expansion: Expansion, shape: LlamaShape, source_layers: int) -> Iterator[Tensors]:
    """A causal language model, a few layers at a time."""
    yield expansion.vocabulary()
    places = spread(source_layers, shape.layers)
    shard: Tensors = {}
    for layer in range(shape.layers):
        source = f"model.layers.{places.index(layer)}." if layer in places else None
        made = expansion.layer(source)
        shard |= {f"model.layers.{layer}.{name}": tensor for name, tensor in made.items()}
        if (layer + 1) % SHARD_LAYERS == 0 or layer + 1 == shape.layers:
            yield shard
            shard = {}


def eagle_shard(expansion: Expansion) -> Tensors:
    """An EAGLE head, which shares the target's embedding and LM head."""
    layer = expansion.layer("layers.0.", input_norm=False)
    return {"fc.weight": expansion.eagle_projection()} | {
        f"layers.0.{name}": tensor for name, tensor in layer.items()
    }


def write(name: str, folder: Path, size: str, device: str) -> None:
    """Write one model of `SIZES[size]` into a folder, which may exist."""
    source = WEIGHTS / ("draft" if name == "draft_poor" else name)
    tensors = load_file(source / "model.safetensors")
    if name == "draft_poor":
        tensors = add_noise(tensors, NOISE_SHARE, NOISE_SEED)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    shape = SIZES[size][name]
    expansion = Expansion(tensors, config, shape, device)
    folder.mkdir(parents=True, exist_ok=True)
    for path in TOKENIZER.iterdir():
        shutil.copyfile(path, folder / path.name)
    if name == "eagle":
        parts: Iterator[Tensors] = iter([eagle_shard(expansion)])
    else:
        parts = shards(expansion, shape, config["num_hidden_layers"])
    index: dict[str, str] = {}
    total = 0
    with ThreadPoolExecutor(4) as pool:
        saved = []
        for number, part in enumerate(parts):
            file = f"model-{number:05d}.safetensors"
            made = {key: tensor.to(torch.bfloat16).contiguous() for key, tensor in part.items()}
            index |= dict.fromkeys(made, file)
            total += sum(tensor.nbytes for tensor in made.values())
            saved.append(pool.submit(save_file, made, folder / file, metadata={"format": "pt"}))
        for each in saved:
            each.result()
    table = {"metadata": {"total_size": total}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(table))
    (folder / "config.json").write_text(json.dumps(expansion.config, indent=2, sort_keys=True))


def write_all(out: Path, size: str, device: str, names: list[str] | None = None) -> dict[str, Path]:
    """Write the named models (all by default); returns their folders."""
    folders = {name: out / name for name in names or SIZES[size]}
    for name, folder in folders.items():
        if not (folder / "config.json").exists():  # written last
            write(name, folder, size, device)
    return folders


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--size", choices=sorted(SIZES), default="8b")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(SIZES["8b"]))
    options = parser.parse_args()
    for name, folder in write_all(
        options.out_dir, options.size, options.device, options.only
    ).items():
        print(f"{name}: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
