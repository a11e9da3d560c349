"""Hazard models: acceptance data made from a description, correlated from step to step.

The draft token at output position t, as draft position j of a step of request r, is accepted
(given the ones before it) with

    logit h = position_logits[j] + state_logits[state at t] + u_r + regime changes

The state follows a Markov chain along the output positions, started from its stationary law;
u_r is normal with `request_deviation`. One logistic draw per output position serves every step
that drafts it: whether position t is easy does not depend on where the step began. So two steps
that overlap agree as far as the position logits do, and with a constant hazard every step is
independent of the others, as Leviathan's formula (arXiv 2211.17192) assumes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import DataError
from adaptive_spec.sim.acceptance.data import DEEPEST, AcceptanceData
from adaptive_spec.step import FloatArray, IntArray

_CERTAIN = 50.0
"""A logit that no logistic draw in double precision reaches."""
_RECORDS_AT_A_TIME = 256

_Logit = Annotated[float, msgspec.Meta(ge=-_CERTAIN, le=_CERTAIN)]
_Logits = Annotated[tuple[_Logit, ...], msgspec.Meta(min_length=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_NonNegative = Annotated[int, msgspec.Meta(ge=0)]


class RegimeChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lasting change, where output position and record number have reached both bounds.

    Attributes:
        logit: added to every hazard from there on.
        from_position: output position within the record, from 0.
        from_record: number of the record, from 0. Only a load that names its records meets
            them in this order; others meet them shuffled.
    """

    logit: _Logit
    from_position: _NonNegative = 0
    from_record: _NonNegative = 0


class HazardModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A generator of acceptance data; formula above.

    Attributes:
        kind: what this JSON object is.
        schema: version of the format.
        name: for people.
        source: where the figures come from.
        position_logits: by draft position; deeper ones take the last.
        state_logits: of each state.
        transitions: [state][next state] probability per output position.
        request_deviation: standard deviation of u_r.
        changes: regime changes.
        records: records made unless asked for another number.
        output_tokens: lengths of records, drawn with equal weight.
    """

    kind: Literal["hazard-model"] = "hazard-model"
    schema: Literal[1] = 1
    name: str
    source: str = ""
    position_logits: _Logits
    state_logits: _Logits = (0.0,)
    transitions: tuple[tuple[_Share, ...], ...] = ((1.0,),)
    request_deviation: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0
    changes: tuple[RegimeChange, ...] = ()
    records: _Positive = 400
    output_tokens: Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)] = (512,)

    def __post_init__(self) -> None:
        states = len(self.state_logits)
        if len(self.transitions) != states or any(len(row) != states for row in self.transitions):
            raise ValueError(f"`transitions` must be {states} rows of {states}, as `state_logits`")
        if any(abs(sum(row) - 1) > 1e-6 for row in self.transitions):
            raise ValueError("each row of `transitions` must sum to 1")


def constant_model(hazard: float) -> HazardModel:
    """Independent acceptance with one hazard at every position, for closed formulas.

    Raises DataError unless 0 <= hazard <= 1.
    """
    if not 0 <= hazard <= 1:
        raise DataError(f"a constant hazard must be 0..1, got {hazard}")
    return HazardModel(
        name=f"constant:{hazard:g}",
        source=f"independent acceptance with probability {hazard:g} at every position",
        position_logits=(logit(hazard),),
    )


PREFIX = "model:"
"""Before the name of a shipped model, wherever a file is asked for."""
_CONSTANT = "constant"
SHIPPED = {
    model.name: model
    for model in msgspec.json.decode(
        Path(__file__).with_name("models.json").read_bytes(), type=tuple[HazardModel, ...]
    )
}
"""Models that come with the package; none is independent from step to step."""


def shipped_model(name: str) -> HazardModel:
    """Return a model by name; ``constant:HAZARD`` is the independent one, for closed formulas.

    Raises DataError naming the models there are.
    """
    kind, _, hazard = name.partition(":")
    if kind == _CONSTANT:
        try:
            return constant_model(float(hazard))
        except ValueError as error:
            raise DataError(
                f"{PREFIX}{name}: give the hazard as a number, such as {PREFIX}{_CONSTANT}:0.8"
            ) from error
    if name not in SHIPPED:
        raise DataError(
            f"{PREFIX}{name}: no such model; there are {', '.join(SHIPPED)} and {_CONSTANT}:HAZARD"
        )
    return SHIPPED[name]


def load_hazard_model(path: str | os.PathLike[str]) -> HazardModel:
    """Read a model from JSON. Raises DataError naming the file and what is wrong."""
    file = Path(path)
    try:
        model: HazardModel = decode_json(read_small_file(file), HazardModel)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{file}: not a hazard model: {error}") from error
    return model


def generate(
    model: HazardModel,
    *,
    depth: int,
    seed: int,
    records: int | None = None,
    output_tokens: IntArray | None = None,
) -> AcceptanceData:
    """Make acceptance data; same arguments, same data.

    Args:
        model: the description.
        depth: drafts known at each position, 1..254.
        seed: of all draws.
        records: how many; None: the model's own number, or that of `output_tokens`.
        output_tokens: [records] length of each; None: drawn from the model's lengths.
    """
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth must be 1..{DEEPEST}, got {depth}")
    random = np.random.default_rng(seed)
    if output_tokens is None:
        output_tokens = random.choice(model.output_tokens, records or model.records)
    lengths: IntArray = np.asarray(output_tokens, dtype=np.int64)
    parts = [
        _accepted(model, lengths[first : first + _RECORDS_AT_A_TIME], first, depth, random)
        for first in range(0, len(lengths), _RECORDS_AT_A_TIME)
    ]
    return AcceptanceData(
        name=model.name,
        source=f"hazard model {model.name!r}, seed {seed}"
        + (f" ({model.source})" if model.source else ""),
        accepted=np.concatenate(parts),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        prompt_tokens=np.zeros(len(lengths), dtype=np.int64),
        labels=(model.name,) * len(lengths),
        depth=depth,
    )


def stationary(transitions: Sequence[Sequence[float]]) -> FloatArray:
    """[states] share of positions a Markov chain spends in each state, in the long run."""
    chain = np.array(transitions)
    # A small pull to the uniform law makes the answer unique where states never meet.
    chain = (1 - 1e-9) * chain + 1e-9 / len(chain)
    equations = np.vstack([chain.T - np.eye(len(chain)), np.ones(len(chain))])
    right = np.append(np.zeros(len(chain)), 1.0)
    shares: FloatArray = np.clip(np.linalg.lstsq(equations, right, rcond=None)[0], 0, None)
    shares /= shares.sum()
    return shares


def logit(probability: float) -> float:
    """Log odds; 0 and 1 become a value no draw reaches."""
    if probability <= 0:
        return -_CERTAIN
    if probability >= 1:
        return _CERTAIN
    return min(max(math.log(probability / (1 - probability)), -_CERTAIN), _CERTAIN)


def _accepted(
    model: HazardModel, lengths: IntArray, first: int, depth: int, random: np.random.Generator
) -> NDArray[np.uint8]:
    """Accepted drafts at all positions of some records, laid end to end."""
    records, longest = len(lengths), int(lengths.max())
    ease = _states(model, records, longest + depth, random)
    ease += model.request_deviation * random.standard_normal((records, 1))
    ease += random.logistic(size=ease.shape)
    for change in model.changes:
        from_row = min(max(change.from_record - first, 0), records)
        ease[from_row:, change.from_position :] += change.logit

    accepted = np.zeros((records, longest), dtype=np.uint8)
    alive = np.ones((records, longest), dtype=bool)
    for position in range(depth):
        at = model.position_logits[min(position, len(model.position_logits) - 1)]
        alive &= ease[:, position : position + longest] + at > 0
        if not alive.any():
            break
        accepted += alive
    return accepted[np.arange(longest) < lengths[:, None]]


def _states(
    model: HazardModel, records: int, positions: int, random: np.random.Generator
) -> FloatArray:
    """[records, positions] logit of the state at each position."""
    logits = np.array(model.state_logits)
    if len(logits) == 1:
        return np.full((records, positions), logits[0])
    climbs = np.cumsum(np.array(model.transitions), axis=1)
    climbs[:, -1] = 1.0
    begin = np.cumsum(stationary(model.transitions))
    begin[-1] = 1.0
    state = (random.random((records, 1)) > begin).sum(axis=1)
    path = np.empty((positions, records))
    for position in range(positions):
        path[position] = logits[state]
        state = (random.random((records, 1)) > climbs[state]).sum(axis=1)
    return np.ascontiguousarray(path.T)
