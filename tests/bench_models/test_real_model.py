"""The parts of the real model that need neither its weights nor torch."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec.errors import DataError
from benchmarks.real_model.convert import config_of, rows_as_trained, tensors_of
from benchmarks.real_model.gguf_file import Model, q4_1, q8_0, read_gguf

TEXT, WORDS, NUMBER = 8, 4, 6


def as_llama_cpp_writes(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows as `LlamaModel.permute` of llama.cpp's convert_hf_to_gguf.py orders them."""
    rows = weight.shape[0]
    halves = weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


@pytest.mark.parametrize("heads", [1, 3, 9])
def test_rows_of_q_and_k_come_back_in_the_order_of_training(heads: int) -> None:
    weight = np.arange(heads * 8 * 5, dtype=np.float32).reshape(heads * 8, 5)
    written = as_llama_cpp_writes(weight, heads)
    assert not np.array_equal(written, weight)
    assert np.array_equal(rows_as_trained(written, heads), weight)


def test_blocks_of_either_type_are_read_as_ggml_writes_them() -> None:
    low, high = np.arange(16) % 16, np.arange(16)[::-1] % 16
    block = np.array([0.5, -3.0], np.float16).tobytes() + bytes((low | high << 4).tolist())
    found = q4_1(np.frombuffer(block, np.uint8)[None])
    assert found.tolist() == [0.5 * digit - 3.0 for digit in [*low, *high]]
    signed = np.arange(-16, 16, dtype=np.int8)
    block = np.array([0.25], np.float16).tobytes() + signed.tobytes()
    assert q8_0(np.frombuffer(block, np.uint8)[None]).tolist() == [0.25 * n for n in signed]


def gguf(version: int = 3, kind: int = 0) -> bytes:
    """A file with a text, a list, a number and one tensor [2, 3]."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", version, 1, 3)
    head += text("name") + struct.pack("<I", TEXT) + text("a model")
    head += text("sizes") + struct.pack("<IIQ3I", 9, WORDS, 3, 5, 6, 7)
    head += text("eps") + struct.pack("<If", NUMBER, 0.5)
    head += text("w") + struct.pack("<IQQIQ", 2, 3, 2, kind, 0)
    head += bytes(-len(head) % 32)
    return head + np.arange(6, dtype=np.float32).tobytes()


def test_metadata_and_weights_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    model = read_gguf(tmp_path / "m.gguf")
    assert model.fields == {"name": "a model", "sizes": [5, 6, 7], "eps": 0.5}
    assert model.tensors["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(("version", "kind", "told"), [(2, 0, "version 3"), (3, 2, "type 2")])
def test_another_format_is_refused(tmp_path: Path, version: int, kind: int, told: str) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf(version, kind))
    with pytest.raises(DataError, match=told):
        read_gguf(tmp_path / "m.gguf")


def test_names_and_shapes_are_those_of_transformers() -> None:
    fields = {
        "llama.vocab_size": 11,
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 16,
        "llama.block_count": 1,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.rope.dimension_count": 4,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 9.999999747378752e-06,
        "llama.rope.freq_base": 1e5,
        **{f"tokenizer.ggml.{name}_token_id": 2 for name in ("bos", "eos", "padding")},
    }
    shapes = {"attn_q": (8, 8), "attn_k": (4, 8), "attn_v": (4, 8), "attn_output": (8, 8)}
    shapes |= {"ffn_gate": (16, 8), "ffn_up": (16, 8), "ffn_down": (8, 16)}
    shapes |= {"attn_norm": (8,), "ffn_norm": (8,)}
    tensors = {
        f"blk.0.{name}.weight": np.zeros(shape, np.float32) for name, shape in shapes.items()
    }
    tensors |= {"token_embd.weight": np.zeros((11, 8), np.float32)}
    tensors |= {"output_norm.weight": np.zeros(8, np.float32)}
    made = tensors_of(Model(fields, tensors))
    assert made["model.layers.0.self_attn.k_proj.weight"].shape == (4, 8)
    assert made["model.layers.0.mlp.down_proj.weight"].shape == (8, 16)
    assert len(made) == 11
    assert config_of(fields)["rms_norm_eps"] == 1e-5
