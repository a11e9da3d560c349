"""Test only: run vLLM's model runner V2 on a CPU, its kernels in Triton's interpreter.

vLLM's CPU builds use Triton only if it brings a CPU backend, which PyPI's Triton doesn't. The
interpreter needs none: it runs kernels as Python, about a fifth of a second per engine step. So a
backend is registered that does nothing but say that it is there. Triton decides at its first
import whether it interprets, so this comes first, in a process of its own.
"""

import os
from typing import Any

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
    _take_masks_of_numbers()
    _patch_each_module_once()


def _take_masks_of_numbers() -> None:
    """Let the interpreter take masks that the compiler would have made truth values of.

    Triton 3.9's interpreter refuses the mask of vLLM's n-gram kernel, a conjunction of truth values
    that it holds as int32.
    """
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def truth(mask: TensorHandle) -> TensorHandle:
        if mask.data.dtype == bool:
            return mask
        return TensorHandle(mask.data.astype(bool), mask.dtype)

    def masked_load(self: InterpreterBuilder, ptrs: Any, mask: Any, *rest: Any) -> Any:
        return load(self, ptrs, truth(mask), *rest)

    def masked_store(self: InterpreterBuilder, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(self, ptrs, value, truth(mask), *rest)

    InterpreterBuilder.create_masked_load = masked_load
    InterpreterBuilder.create_masked_store = masked_store


def _patch_each_module_once() -> None:
    """Look for a module's builtins once, and replace them only where they are not replaced yet.

    Triton 3.9's interpreter searches all of `triton.language` again at every call of one function
    of a kernel by another: half of the time of vLLM's block verification.
    """
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    patch, names = interpreter._patch_builtin, dict[Any, list[str]]()

    def patch_builtin(module: Any, *rest: Any) -> None:
        if module not in names:
            names[module] = [name for name in dir(module) if is_builtin(getattr(module, name))]
        if is_builtin(getattr(module, names[module][0])):
            patch(module, *rest)

    interpreter._patch_builtin = patch_builtin
