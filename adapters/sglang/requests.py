"""Reader of what never changes about an SGLang request, for `RequestTable`.

SGLang runs one K for the whole batch, so a client's cap takes a request out of what speaks for a
larger K; it can't shield one request from the K that the others run. A batch in which all are
capped runs no more than the largest of their caps.
"""

from __future__ import annotations

from typing import Any

from adaptive_spec.engines.hints import NO_CAP, NestedHints
from adaptive_spec.engines.request_table import RequestConstants


class RequestReader:
    """Reader of SGLang's request objects."""

    def __init__(self, hints: NestedHints) -> None:
        # SGLang's IPC carries a dict of scalars in `custom_params`, nothing nested deeper.
        self._hints = hints

    def read(self, request: Any) -> RequestConstants:
        """Return the constants of SGLang's request object."""
        sampling = request.sampling_params
        most = sampling.max_new_tokens
        return RequestConstants(
            self._hints.read(getattr(sampling, "custom_params", None)),
            # SGLang writes greedy decoding as top_k = 1 at temperature 1.
            temperature=0.0 if sampling.top_k == 1 else float(sampling.temperature),
            prompt_tokens=len(request.origin_input_ids),
            most_output=NO_CAP if most is None else int(most),
        )
