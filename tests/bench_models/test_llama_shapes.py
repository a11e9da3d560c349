"""The bench models in the shapes people serve, at a reduced width: the same function."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="making the models needs torch")
pytest.importorskip("transformers", reason="comparing logits needs transformers")
import torch

from benchmarks.bench_pair.llama_shapes import SIZES, write_all
from benchmarks.bench_pair.names import VOCABULARY_SIZE, WEIGHTS
from benchmarks.bench_pair.prompts import load_prompts

CAUSAL = ("target", "draft")
NOISE = 0.25
"""Largest difference of logits that rounding weights to bf16 may make."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_all(tmp_path_factory.mktemp("shapes"), "tiny", "cpu")


@pytest.fixture(scope="module")
def tokens(folders: dict[str, Path]) -> Any:
    """The first prompt of each kind [kinds, tokens]."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folders["target"])
    return torch.tensor([tokenizer(texts[0]).input_ids[:40] for texts in load_prompts().values()])


def causal(folder: Path) -> Any:
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {
        name: tensor.float()
        for path in folder.glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }


def first_drafts(target: Any, folder: Path, tokens: Any) -> Any:
    """Logits of the EAGLE head's first pass: one Llama layer without an input norm."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = LlamaConfig.from_pretrained(folder, attn_implementation="eager")
    weights = tensors(folder)
    layer = LlamaDecoderLayer(config, 0)
    layer.input_layernorm = torch.nn.Identity()
    layer.load_state_dict({k[9:]: v for k, v in weights.items() if k.startswith("layers.0.")})
    features = target.model(tokens).last_hidden_state[:, :-1]
    embedded = target.model.embed_tokens(tokens)[:, 1:]
    fused = torch.cat([embedded, features], dim=-1) @ weights["fc.weight"].T
    places = torch.arange(fused.shape[1])[None]
    mask = torch.full((fused.shape[1],) * 2, -torch.inf).triu(1)[None, None]
    rotary = LlamaRotaryEmbedding(config)(fused, places)
    return target.lm_head(layer(fused, attention_mask=mask, position_embeddings=rotary))


@pytest.mark.parametrize("name", CAUSAL)
def test_logits_are_those_of_the_small_model(
    folders: dict[str, Path], tokens: Any, name: str
) -> None:
    with torch.no_grad():
        small = causal(WEIGHTS / name)(tokens).logits
        great = causal(folders[name])(tokens).logits
    assert great.shape[-1] == SIZES["tiny"][name].vocabulary
    assert (small - great[..., :VOCABULARY_SIZE]).abs().max() < NOISE
    probabilities = great.softmax(-1)
    assert (small.softmax(-1) - probabilities[..., :VOCABULARY_SIZE]).abs().sum(-1).max() < 0.1


@pytest.mark.parametrize("name", CAUSAL)
def test_padded_tokens_are_never_likely(folders: dict[str, Path], tokens: Any, name: str) -> None:
    with torch.no_grad():
        logits = causal(folders[name])(tokens).logits
    padded = logits[..., VOCABULARY_SIZE:]
    assert (padded.max(-1).values < logits.max(-1).values - 20.0).all()


def test_the_eagle_head_drafts_as_the_small_one(folders: dict[str, Path], tokens: Any) -> None:
    with torch.no_grad():
        small = first_drafts(causal(WEIGHTS / "target"), WEIGHTS / "eagle", tokens)
        great = first_drafts(causal(folders["target"]), folders["eagle"], tokens)
    assert small.std() > 0.5
    assert (small - great[..., :VOCABULARY_SIZE]).abs().max() < NOISE
    assert (great[..., VOCABULARY_SIZE:].max(-1).values < great.max(-1).values - 20.0).all()


def test_shapes_are_those_asked_for(folders: dict[str, Path]) -> None:
    for name, folder in folders.items():
        shape = SIZES["tiny"][name]
        config = json.loads((folder / "config.json").read_text())
        found = tensors(folder)
        assert config["num_hidden_layers"] == shape.layers
        layers = {key.split("layers.")[1].split(".")[0] for key in found if "layers." in key}
        assert len(layers) == shape.layers
        query = next(tensor for key, tensor in found.items() if key.endswith("q_proj.weight"))
        assert query.shape == (shape.heads * shape.head_size, shape.hidden)
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"]) == set(found)


def test_no_weight_of_the_padding_is_zero_in_bulk(folders: dict[str, Path]) -> None:
    """Nearly all zeros would draw less power, and so clock higher, than a real matrix."""
    found = tensors(folders["target"])
    for key in ("mlp.gate_proj", "mlp.up_proj", "self_attn.q_proj"):
        padded_layer = found[f"model.layers.{padding_layer(found)}.{key}.weight"]
        assert (padded_layer == 0).float().mean() < 0.01


def padding_layer(found: dict[str, Any]) -> int:
    """A layer that adds nothing: its output projections are zero."""
    numbers = {int(key.split(".")[2]) for key in found if key.startswith("model.layers.")}
    return next(
        number
        for number in sorted(numbers)
        if not found[f"model.layers.{number}.mlp.down_proj.weight"].any()
    )
