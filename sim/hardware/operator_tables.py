"""What the readers of public tables return: a model's operators, measured one by one."""

from __future__ import annotations

import msgspec

from adaptive_spec.step import FloatArray


class OperatorTables(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Measured operators of one model shard on one GPU. Seconds.

    Attributes:
        source: files and where they come from.
        tokens: [T] tokens at which a layer was measured, ascending.
        layer_seconds: [T] everything of one layer but attention over the context.
        head_tokens: [H] tokens at which head and sampling were measured, ascending.
        head_seconds: [H] their times.
        decode: [D, 3] requests, context tokens of all of them, seconds of one layer's attention.
        prompt: [P, 3] prompt tokens, pairs with tokens before, seconds of one layer's attention.
    """

    source: str
    tokens: FloatArray
    layer_seconds: FloatArray
    head_tokens: FloatArray
    head_seconds: FloatArray
    decode: FloatArray
    prompt: FloatArray
