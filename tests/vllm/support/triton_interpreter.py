"""Test only: run vLLM's model runner V2 on a CPU, its kernels in Triton's interpreter.

vLLM's CPU builds use Triton only if it brings a CPU backend, which PyPI's Triton doesn't. The
interpreter needs none: it runs kernels as Python, about a fifth of a second per engine step. So a
backend is registered that does nothing but say that it is there. Triton decides at its first
import whether it interprets, so this comes first, in a process of its own.
"""

from __future__ import annotations

import os

ENVIRONMENT = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}


class _Driver:
    """What vLLM asks a Triton driver at start."""

    @staticmethod
    def is_active() -> bool:
        return True


class _Backend:
    """What vLLM looks up under ``cpu``; the interpreter compiles nothing."""

    driver = _Driver
    compiler = None


def prepare() -> None:
    """Before the first import of Triton and vLLM. Raises RuntimeError if it comes too late."""
    import sys

    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("Triton is imported already: it would compile, not interpret")
    os.environ.update(ENVIRONMENT)
    from triton.backends import backends

    backends["cpu"] = _Backend
