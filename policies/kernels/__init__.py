"""The machinery of compiled inner loops: two forms of a computation, and the disk cache.

The computations themselves are in the rooms that use them.
"""

from adaptive_spec.policies.kernels.kernel import (
    BOOLS,
    INTS,
    Kernel,
    kernel,
    kernel_in_use,
    kernel_of_kernels,
    load_kernels,
    numba_available,
    prepare_kernels,
    select_kernel,
)

__all__ = [
    "BOOLS",
    "INTS",
    "Kernel",
    "kernel",
    "kernel_in_use",
    "kernel_of_kernels",
    "load_kernels",
    "numba_available",
    "prepare_kernels",
    "select_kernel",
]
