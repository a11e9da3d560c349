"""Post-import hook of adaptive-spec for TensorRT-LLM.

This file is copied into site-packages by `adaptive-spec trtllm install-hook` and runs at the
start of every interpreter of that environment. It only registers a finder. Whether anything is
switched on is asked when a target module is imported, not now: a spawned MPI worker gets its
TLLM_* variables after its interpreter has started. Delete it with `adaptive-spec trtllm
remove-hook`.
"""

import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "TLLM_ADAPTIVE_SPEC"
_TORCH = "tensorrt_llm._torch."
TARGETS = {
    _TORCH + "pyexecutor.py_executor",
    _TORCH + "pyexecutor.model_engine",
    _TORCH + "pyexecutor.cuda_graph_runner",
    _TORCH + "pyexecutor.engine.cuda_graph",
    _TORCH + "pyexecutor.engine.runners.decoder.runner",
    _TORCH + "speculative.utils",
}


class AdaptiveSpecFinder:
    """Finds the target modules as the others would, and patches them after their import."""

    @staticmethod
    def find_spec(
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Return None for every module but the targets."""
        if name not in TARGETS:
            return None
        import os

        if os.environ.get(VARIABLE, "").strip().lower() in ("", "0", "off"):
            return None
        for finder in sys.meta_path:
            if finder is AdaptiveSpecFinder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        if loader is None:
            return spec
        own = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            own(module)
            try:
                from adaptive_spec.adapters.tensorrt_llm.patches import apply
            except ImportError as error:
                text = f"{VARIABLE} is set, but adaptive-spec cannot be imported: {error}"
                print(f"adaptive_spec: {text}; nothing is switched on", file=sys.stderr)
                return
            apply(module)

        setattr(loader, "exec_module", exec_module)  # noqa: B010
        return spec


if AdaptiveSpecFinder not in sys.meta_path:
    sys.meta_path.insert(0, AdaptiveSpecFinder)
