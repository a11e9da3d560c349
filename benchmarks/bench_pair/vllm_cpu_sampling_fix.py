"""Test-only repair of speculative sampling in vLLM on CPU (vllm#55005).

vLLM 0.32's CPU kernel behind `expand_batch_to_tokens` writes to a converted copy of its output and
drops it, so with temperature > 0 every request is verified at an uninitialised temperature (and
top-k and top-p).  Sampled text, and acceptance, are then meaningless.  `apply()` replaces that one
function by the same computation in torch.  It isn't for production and does nothing on its own.

In process, before or after importing vLLM:

    from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply
    apply()

For `vllm serve`, whose engine is another process: a folder on PYTHONPATH with a sitecustomize.py

    import sys; sys.path.insert(0, "/path/to/repository/benchmarks/bench_pair")
    from vllm_cpu_sampling_fix import apply
    apply()

`apply` imports neither vLLM nor torch: if the module isn't there yet, it is patched when imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MODULE = "vllm.v1.sample.rejection_sampler"
FUNCTION = "expand_batch_to_tokens"


def expand_batch_to_tokens(
    x: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    num_tokens: int,
    replace_from: int = 0,
    replace_to: int = 0,
) -> torch.Tensor:
    """Repeat x[i] once per token of request i; entries equal to `replace_from` are replaced."""
    counts = cu_num_tokens.long().diff(prepend=cu_num_tokens.new_zeros(1).long())
    replaced = x.masked_fill(x == replace_from, replace_to)
    return replaced.repeat_interleave(counts, output_size=num_tokens)


def patch(module: ModuleType) -> None:
    if not hasattr(module, FUNCTION):
        raise RuntimeError(f"{MODULE} has no {FUNCTION}: this vLLM needs another repair, or none")
    setattr(module, FUNCTION, expand_batch_to_tokens)


class _PatchOnImport(importlib.abc.MetaPathFinder):
    """Finds `MODULE` by the ordinary finders and patches it once it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        loader = spec.loader
        execute = loader.exec_module

        def execute_and_patch(module: ModuleType) -> None:
            execute(module)
            patch(module)

        loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec


def apply() -> None:
    """Repair vLLM in this process; calling it again is harmless."""
    module = sys.modules.get(MODULE)
    if module is not None:
        patch(module)
    elif not any(isinstance(finder, _PatchOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PatchOnImport())
