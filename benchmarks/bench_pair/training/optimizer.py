"""Muon for the matrices, AdamW for embeddings and norms, under a wall-clock schedule.

Muon (Jordan et al., 2024) replaces a matrix's momentum by the nearest orthogonal matrix, found by
five Newton-Schulz iterations.  On this little data and time it needs about half of AdamW's steps.
"""

from __future__ import annotations

import math
import time

import torch
from torch import nn

MOMENTUM = 0.95
WEIGHT_DECAY = 0.02
WARM_UP_STEPS = 20
DECAY_SHARE = 0.7
LARGEST_GRADIENT_NORM = 1.0


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """Approximately U V^T of the singular value decomposition U S V^T."""
    first, second, third = 3.4445, -4.7750, 2.0315
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = first * x + (second * gram + third * gram @ gram) @ x
    return x.T if tall else x


class WallClock:
    """Progress through a budget of seconds, and the learning-rate factor it implies."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._start = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def progress(self) -> float:
        return self.elapsed / self._seconds

    def rate_factor(self, step: int) -> float:
        """Linear warm-up by steps, then constant, then linear decay to 1 % by the clock."""
        decay = (1.0 - self.progress) / DECAY_SHARE + 0.01
        return max(0.0, min(1.0, (step + 1) / WARM_UP_STEPS, decay))


class Optimizer:
    """`step(factor)` applies and clears the gradients of `model`."""

    def __init__(self, model: nn.Module, matrix_rate: float, other_rate: float) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                is_matrix = parameter.ndim == 2 and "embed" not in name
                (matrices if is_matrix else others).append(parameter)
        self._matrices = [(p, torch.zeros_like(p)) for p in matrices]
        self._adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
        self._matrix_rate = matrix_rate
        self._other_rate = other_rate

    @torch.no_grad()
    def step(self, factor: float) -> None:
        nn.utils.clip_grad_norm_(self._parameters, LARGEST_GRADIENT_NORM)
        rate = self._matrix_rate * factor
        for parameter, momentum in self._matrices:
            if parameter.grad is None:
                continue
            momentum.mul_(MOMENTUM).add_(parameter.grad)
            update = orthogonalise(parameter.grad + MOMENTUM * momentum)
            aspect = math.sqrt(max(1.0, parameter.size(0) / parameter.size(1)))
            parameter.mul_(1.0 - rate * WEIGHT_DECAY).add_(update, alpha=-rate * aspect)
        for group in self._adam.param_groups:
            group["lr"] = self._other_rate * factor
        self._adam.step()
        for parameter in self._parameters:
            parameter.grad = None
