"""A reader of GGUF files, for the types that SmolLM2's has. Needs numpy only.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, version 3. Blocks of weights:
`block_q4_1` and `block_q8_0` of ggml-common.h.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_spec.errors import DataError

Array = NDArray[np.float32]
BLOCK = 32
"""Weights of a block of either quantised type."""
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class Model:
    """Metadata by key, and weights by name; shapes have the output first, as torch's do."""

    fields: dict[str, Any]
    tensors: dict[str, Array]


def q4_1(raw: NDArray[np.uint8]) -> Array:
    """Weights [blocks * 32] of raw blocks [blocks, 20]: scale, minimum, 16 bytes of two each."""
    scale, least = raw[:, :4].view(np.float16).astype(np.float32).T
    packed = raw[:, 4:]
    digits = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
    weights: Array = digits * scale[:, None] + least[:, None]
    return weights.reshape(-1)


def q8_0(raw: NDArray[np.uint8]) -> Array:
    """Weights [blocks * 32] of raw blocks [blocks, 34]: scale, 32 signed bytes."""
    scale = raw[:, :2].view(np.float16).astype(np.float32)
    return (raw[:, 2:].view(np.int8).astype(np.float32) * scale).reshape(-1)


def _float32(raw: NDArray[np.uint8]) -> Array:
    return raw.view(np.float32).reshape(-1)


_TYPES: dict[int, tuple[int, int, Callable[[NDArray[np.uint8]], Array]]] = {
    0: (1, 4, _float32),
    3: (BLOCK, 20, q4_1),
    8: (BLOCK, 34, q8_0),
}
"""Weights and bytes of a block, and what reads blocks, by ggml's number of the type."""


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def take(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def text(self) -> str:
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _LIST:
            inner, length = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(length)]
        if kind not in _SCALARS:
            raise DataError(f"a value of GGUF type {kind}")
        return self.take(_SCALARS[kind])


def read_gguf(file: Path) -> Model:
    """Read a whole file. Raises DataError for another format, or a type of weights that is new."""
    with file.open("rb") as stream:
        cursor = _Cursor(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    if (magic := cursor.data[:8]) != b"GGUF\x03\0\0\0":
        raise DataError(f"{file}: begins with {magic!r}, which is not GGUF version 3")
    cursor.at = 8
    tensors, fields = cursor.take("Q"), cursor.take("Q")
    known = {}
    for _ in range(fields):
        key = cursor.text()
        known[key] = cursor.value(cursor.take("I"))
    places = []
    for _ in range(tensors):
        name = cursor.text()
        shape = [cursor.take("Q") for _ in range(cursor.take("I"))]
        places.append((name, shape[::-1], cursor.take("I"), cursor.take("Q")))
    align = known.get("general.alignment", 32)
    start = -(-cursor.at // align) * align
    whole = np.frombuffer(cursor.data, dtype=np.uint8)
    return Model(known, {name: _weights(whole[start + at :], shape, kind, f"{file}: {name}")
                         for name, shape, kind, at in places})  # fmt: skip


def _weights(raw: NDArray[np.uint8], shape: list[int], kind: int, name: str) -> Array:
    if kind not in _TYPES:
        raise DataError(f"{name}: weights of ggml type {kind}; read are {sorted(_TYPES)}")
    weights, size, read = _TYPES[kind]
    blocks = int(np.prod(shape)) // weights
    return read(np.ascontiguousarray(raw[: blocks * size]).reshape(blocks, size)).reshape(shape)
