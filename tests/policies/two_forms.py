"""Comparison of a kernel's two forms."""

from typing import Any

import numpy as np
import pytest

from adaptive_spec.policies.kernels import Kernel


def agree(kernel: Kernel[Any, Any], *arguments: Any) -> None:
    """Both forms return the same, and leave the same in their arguments."""
    found = []
    for form in (kernel.reference, kernel.compile()):
        own = [np.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
        result = form(*own)
        results = result if isinstance(result, tuple) else (result,)
        found.append([each for each in (*results, *own) if each is not None])
    for one, other in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-9, nan_ok=True)
