"""Lets `import torchvision`, which SGLang needs, work beside a PyTorch built for CPU.

PyPI's torchvision is built for CUDA: its operators don't load here, and then its import fails at
describing them to PyTorch. Python runs this module at start; it declares the operators, without
anything behind them, just before torchvision is imported. Tests of models without images need no
more.
"""

import importlib.abc
import sys
from collections.abc import Sequence
from types import ModuleType

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class DeclareOperators(importlib.abc.MetaPathFinder):
    """Finds nothing, but sees that torchvision is about to be imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Declare the operators once; the import itself is left to the other finders."""
        if fullname != "torchvision":
            return
        sys.meta_path.remove(self)
        import torch

        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", SIGNATURE)


sys.meta_path.insert(0, DeclareOperators())
