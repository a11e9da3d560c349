"""Test only: the library of CPU kernels that vLLM would load on another processor.

vLLM's wheel has three, which register the same operators: `_C` for AVX-512 with bfloat16,
`_C_AVX512` without it, `_C_AVX2`. A process that loads two of them ends with SIGABRT. Each runs on
the processors of the ones before it, so a test can load those that a smaller processor would get:

    ADAPTIVE_SPEC_CPU_LIBRARY=_C_AVX2 make test

    python tests/vllm/support/processors.py _C_AVX2     import all attention backends with it
"""

from __future__ import annotations

import os
import sys
from typing import Any

LIBRARIES = ("_C", "_C_AVX512", "_C_AVX2")
VARIABLE = "ADAPTIVE_SPEC_CPU_LIBRARY"


def loadable() -> list[str]:
    """Return the libraries that run on this processor; one on other architectures than x86."""
    import torch

    if torch.cpu._is_avx512_bf16_supported():
        return list(LIBRARIES)
    return list(LIBRARIES[1:]) if torch.cpu._is_avx512_supported() else list(LIBRARIES[2:])


def pretend(library: str) -> None:
    """Let vLLM believe that it runs on a processor for which it loads this library."""
    import torch

    named: Any = torch.cpu
    named._is_avx512_bf16_supported = lambda: library == "_C"
    named._is_avx512_supported = lambda: library != "_C_AVX2"


def pretend_as_told() -> None:
    """Do so if the environment names a library."""
    if library := os.environ.get(VARIABLE):
        pretend(library)


def load_kernels_once() -> None:
    """Load vLLM's kernels, and refuse `vllm._C` from now on if they are those of another library.

    vLLM's modules for other platforms, which tests import, load `vllm._C` whatever is loaded.
    """
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    sys.modules.setdefault("vllm._C", None)  # type: ignore[arg-type]


def attention_backends() -> dict[str, Any]:
    """Return every attention backend of vLLM that can be imported here, by name."""
    load_kernels_once()
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, MambaAttentionBackendEnum

    found = {}
    for kinds in (AttentionBackendEnum, MambaAttentionBackendEnum):
        for kind in kinds:
            try:
                backend = kind.get_class()
                backend.get_builder_cls()
            except Exception:  # its kernels are missing
                continue
            found[kind.name] = backend
    return found


if __name__ == "__main__":
    pretend(sys.argv[1])
    print(len(attention_backends()))
