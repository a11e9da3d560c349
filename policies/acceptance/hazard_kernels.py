"""Hazards from logits, and survivals from hazards."""

from __future__ import annotations

import numpy as np

from adaptive_spec.policies.kernels import kernel
from adaptive_spec.step import FloatArray, IntArray

HAZARD_FLOOR, HAZARD_CEILING = 0.01, 0.995


def _negated_logits_loop(
    position_effect: FloatArray,
    slots: IntArray,
    request_effect: FloatArray,
    task: IntArray,
    task_number: IntArray,
    task_effect: FloatArray,
    most_tasks: int,
    logits: FloatArray,
) -> None:
    places = len(task_number)
    for i in range(len(slots)):
        effect = request_effect[slots[i]] if 0 <= slots[i] < len(request_effect) else 0.0
        if places and task[i] >= 0:
            place = min(task[i] % most_tasks, places - 1)
            effect += task_effect[place] if task_number[place] == task[i] else 0.0
        for j in range(len(position_effect)):
            logits[j, i] = -(position_effect[j] + effect)


@kernel(
    "void(float64[::1], int64[:], float64[::1], int64[:], int64[::1], float64[::1], int64,"
    " float64[:, ::1])",
    _negated_logits_loop,
)
def negated_logits(
    position_effect: FloatArray,
    slots: IntArray,
    request_effect: FloatArray,
    task: IntArray,
    task_number: IntArray,
    task_effect: FloatArray,
    most_tasks: int,
    logits: FloatArray,
) -> None:
    """Write -(b_j + u_i + v_t) to `logits` [Kmax, B]; returning an array would take longer.

    Args:
        position_effect: [Kmax] b_j.
        slots: [B] rows of the requests; u_i is 0 past the rows.
        request_effect: [slots] u_i.
        task: [B] numbers of the task labels; not read where no label has a place.
        task_number: [places] number of the label in each place.
        task_effect: [places] v_t.
        most_tasks: places at most; a label's place is its number modulo these.
        logits: [Kmax, B] overwritten.
    """
    inside = (slots >= 0) & (slots < len(request_effect))
    effect = np.where(inside, request_effect[np.where(inside, slots, 0)], 0.0)
    if len(task_number):
        place = np.minimum(task % most_tasks, len(task_number) - 1)
        known = (task >= 0) & (task_number[place] == task)
        effect = effect + np.where(known, task_effect[place], 0.0)
    np.negative(position_effect[:, None] + effect, out=logits)


def logits_to_hazards(logits: FloatArray) -> None:
    """Logits [Kmax, B] become hazards 1 / (1 + exp(-x)) within floor and ceiling, in place."""
    np.negative(logits, out=logits)
    negated_to_hazards(logits)


def negated_to_hazards(logits: FloatArray) -> None:
    """Turn negated logits into hazards, in place."""
    np.exp(logits, out=logits)  # numpy's for both forms: another exp differs in the last bit
    odds_to_hazards(logits)


def _odds_to_hazards_loop(odds_against: FloatArray) -> None:
    for j in range(odds_against.shape[0]):
        for i in range(odds_against.shape[1]):
            hazard = 1.0 / (odds_against[j, i] + 1.0)
            hazard = HAZARD_FLOOR if hazard < HAZARD_FLOOR else hazard
            odds_against[j, i] = HAZARD_CEILING if hazard > HAZARD_CEILING else hazard


@kernel("void(float64[:, ::1])", _odds_to_hazards_loop)
def odds_to_hazards(odds_against: FloatArray) -> None:
    """Odds (1 - h) / h [Kmax, B] become hazards, in place."""
    odds_against += 1.0
    np.reciprocal(odds_against, out=odds_against)
    np.maximum(odds_against, HAZARD_FLOOR, out=odds_against)
    np.minimum(odds_against, HAZARD_CEILING, out=odds_against)


def _survive_loop(hazard: FloatArray) -> None:
    for j in range(1, hazard.shape[0]):
        for i in range(hazard.shape[1]):
            hazard[j, i] *= hazard[j - 1, i]


@kernel("void(float64[:, ::1])", _survive_loop)
def survive(hazard: FloatArray) -> None:
    """Hazards [Kmax, B] become survivals, the product up to each position, in place."""
    np.cumprod(hazard, axis=0, out=hazard)
