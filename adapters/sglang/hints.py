"""Per-request hints: one dict of scalars, ``custom_params["adaptive_spec"]``.

The keys and values are those of `adaptive_spec.engines.hints`. SGLang runs one K for the whole
batch, so a cap takes a request out of what speaks for a larger K; it can't shield one request from
the K that the others run. A batch in which all are capped runs no more than the largest of their
caps.

SGLang's IPC carries a dict of scalars in `custom_params`, nothing nested deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adaptive_spec.engines.hints import NO_HINTS, HintParser, Hints

KEY = "adaptive_spec"


class HintReader:
    """Reads the hints of this process's requests."""

    def __init__(self, ignored: Callable[[str], None]) -> None:
        """`ignored` is told the key of every value that could not be used."""
        self._ignored = ignored
        self._parser = HintParser(ignored, prefix=f"{KEY}.")

    def read(self, custom_params: object) -> Hints:
        """The hints among a request's custom parameters."""
        if not isinstance(custom_params, Mapping) or KEY not in custom_params:
            return NO_HINTS
        given = custom_params[KEY]
        if not isinstance(given, Mapping):
            self._ignored(KEY)
            return NO_HINTS
        return self._parser.parse(given.items())
