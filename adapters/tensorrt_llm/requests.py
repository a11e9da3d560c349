"""Reader of a TensorRT-LLM request, for `RequestTable`."""

from __future__ import annotations

from typing import Any

from adaptive_spec.engines.request_table import RequestConstants


def read_request(request: Any) -> RequestConstants:
    """Return the constants of upstream's request object."""
    return RequestConstants(temperature=temperature_of(request))


def name_of(request: Any) -> str:
    """Return the engine's own name of a request."""
    return str(request.py_request_id)


def temperature_of(request: Any) -> float:
    """Return the target's sampling temperature; 0 (greedy) where none is given."""
    given = getattr(getattr(request, "sampling_config", None), "temperature", None)
    if isinstance(given, list):
        given = given[0] if given else None
    return float(given) if given is not None else 0.0


def is_real(request: Any) -> bool:
    """Whether a request is no dummy (dummies fill up graphs and idle ranks)."""
    return not getattr(request, "is_dummy", False)
