"""Instructions of eight kinds for the real model: those that the records were measured on."""

from __future__ import annotations

from pathlib import Path

import msgspec

FILE = Path(__file__).with_suffix(".json")


class Instruction(msgspec.Struct, frozen=True):
    """Holds the turns of a user; the model's own answers stand between them."""

    kind: str
    turns: tuple[str, ...]


def measured() -> list[Instruction]:
    """Read the instructions, 48 of a kind."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Instruction])
