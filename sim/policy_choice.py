"""A policy as it is written on a command line: NAME or NAME:key=value,key=value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from adaptive_spec.bounded_read import decode_json
from adaptive_spec.errors import PolicyError
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.step import Level

if TYPE_CHECKING:
    from adaptive_spec.sim.engine.options import EngineOptions


class PolicyChoice(msgspec.Struct, frozen=True):
    """A policy's name and options.

    Attributes:
        text: as it was written.
        name: an installed policy, or ``module:Class``.
        options: its options.
    """

    text: str
    name: str
    options: dict[str, Any] = {}

    def build(self, seed: int) -> Policy:
        """A fresh policy. Raises PolicyError if there is none or its options are wrong."""
        return build_policy(self.name, self.options, seed=seed, baselines=True)

    def require_runnable(self, engine: EngineOptions) -> None:
        """Raise PolicyError if this engine would run another K under the name of a static one."""
        k = self.options.get("k") if self.name == "static" else None
        if not isinstance(k, int):
            return
        if k > engine.max_draft_tokens:
            raise PolicyError(f"policy {self.text!r}: K {k} exceeds Kmax {engine.max_draft_tokens}")
        if engine.level is Level.UNIFORM and engine.ladder and k not in engine.ladder:
            ladder = ", ".join(map(str, engine.ladder))
            raise PolicyError(f"policy {self.text!r}: K {k} is not on the ladder {ladder}")


def parse_policy(text: str) -> PolicyChoice:
    """Read ``goodput``, ``static:k=3`` or ``package.module:Class:key=value``.

    Values are read as JSON where they are JSON (numbers, true, lists), as text otherwise. A comma
    inside brackets, braces or quotes does not end a value.

    Raises PolicyError if an option has no value, or nothing follows the colon.
    """
    if text.strip().endswith(":"):
        raise PolicyError(f"policy {text!r}: nothing follows the colon; write NAME:key=value")
    # A module path and a JSON value may hold colons: options begin at the first `:key=`.
    head, tail = text, ""
    for position, character in enumerate(text):
        if character == ":" and _begins_options(text[position + 1 :]):
            head, tail = text[:position], text[position + 1 :]
            break
    options: dict[str, Any] = {}
    for item in _split(tail):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise PolicyError(f"policy {text!r}: {item!r} is not key=value")
        options[key.strip()] = _value(value.strip())
    return PolicyChoice(text=text, name=head.strip(), options=options)


def _begins_options(rest: str) -> bool:
    key, equals, _ = rest.partition("=")
    return bool(equals) and key.strip().isidentifier()


def _split(text: str) -> list[str]:
    items, depth, quoted, current = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        elif not quoted and character in "[{":
            depth += 1
        elif not quoted and character in "]}":
            depth -= 1
        if character == "," and depth == 0 and not quoted:
            items.append(current)
            current = ""
        else:
            current += character
    if current:
        items.append(current)
    return items


def _value(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return text
