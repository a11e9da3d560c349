"""Fits a hazard model to acceptance data: `python -m benchmarks.hazard_fit.fit FILE --out MODEL`.

Matched are: the correlation along positions (a hidden Markov chain fitted to where the first draft
is accepted), the variance between requests beyond what that chain explains, and the hazard of
each draft position among the steps of a replay. The last two are matched by generating with fixed
draws and correcting. Lengths are drawn from the data's quantiles, independently of acceptance.
"""

from __future__ import annotations

import argparse
import itertools
import math
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData, hazards, steps_of
from adaptive_spec.sim.acceptance.hazard import HazardModel, generate, logit
from adaptive_spec.sim.acceptance.per_position import read_per_position
from adaptive_spec.sim.acceptance.pool import take
from adaptive_spec.step import FloatArray, IntArray
from benchmarks.hazard_fit.halves import halves

from .hidden_markov import fit_hidden_markov

_CORRECTIONS = 8
_ENOUGH = 30
"""Steps that must reach a draft position for its hazard to be matched."""
_POSITIONS = 60_000
"""Output positions a fit looks at; more are sampled down by whole records."""
_CORRECTION_POSITIONS = 150_000
"""Output positions generated per correction: with fewer the drawn u_r alone move the hazards."""
_WIDEST_DEVIATION = 3.0


def fit_hazard_model(
    data: AcceptanceData,
    *,
    name: str | None = None,
    positions: int = 8,
    states: int = 3,
    iterations: int = 60,
    seed: int = 0,
) -> HazardModel:
    """Fit a model to acceptance data of any source; same arguments, same model.

    Args:
        data: what to imitate. Step lists and recorded steps come imputed, so what is fitted beyond
            their K is partly the imputation's own.
        name: of the model; None: the data's name.
        positions: draft positions with a hazard of their own.
        states: hidden states along the output positions, 1..4; 1 leaves only differences between
            requests.
        iterations: of the hidden Markov fit.
        seed: of the draws used to correct.
    """
    if not 1 <= states <= 4:
        raise ValueError(f"states must be 1..4, got {states}")
    positions = min(positions, data.depth)
    sample = _sampled(data, seed)
    bounds = sample.offsets
    first = sample.accepted > 0
    chain = fit_hidden_markov(
        [first[a:b] for a, b in itertools.pairwise(bounds.tolist())],
        states=states,
        iterations=iterations,
    )
    quantiles = np.quantile(data.lengths, np.linspace(0.025, 0.975, 20), method="nearest")
    model = HazardModel(
        name=name or data.name,
        source=f"fitted to {data.records} records of {data.name}",
        position_logits=(0.0,) * positions,
        state_logits=tuple(logit(float(chance)) for chance in chain.chances),
        transitions=tuple(tuple((row / row.sum()).tolist()) for row in chain.transitions),
        output_tokens=tuple(int(length) for length in quantiles),
    )
    return _rounded(_corrected(model, sample, seed))


def _sampled(data: AcceptanceData, seed: int) -> AcceptanceData:
    order = np.random.default_rng(seed).permutation(data.records)
    enough = int(np.searchsorted(np.cumsum(data.lengths[order]), _POSITIONS)) + 1
    return data if enough >= data.records else take(data, np.sort(order[:enough]))


def _corrected(model: HazardModel, data: AcceptanceData, seed: int) -> HazardModel:
    """Position logits and request deviation with which generated steps match those of the data."""
    positions = len(model.position_logits)
    wanted, reached = hazards(steps_of(data, positions)[1], positions)
    matched = reached >= _ENOUGH
    wanted_logits = _logits(wanted)
    first_share = float((data.accepted > 0).mean())
    slope = max(first_share * (1 - first_share), 0.01)
    wanted_variance = between_request_variance(data)
    copies = max(1, _CORRECTION_POSITIONS // len(data.accepted))
    lengths: IntArray = np.tile(data.lengths, copies)
    for _ in range(_CORRECTIONS):
        made = generate(model, depth=positions, seed=seed, output_tokens=lengths)
        got, made_reached = hazards(steps_of(made, positions)[1], positions)
        step = np.where(matched & (made_reached >= _ENOUGH), wanted_logits - _logits(got), 0.0)
        at = np.array(model.position_logits) + step
        # A position too rarely reached goes with the one before it.
        for position in np.flatnonzero(~matched):
            at[position] = at[position - 1] if position else at[position]
        missing = wanted_variance - between_request_variance(made)
        variance = model.request_deviation**2 + 0.7 * missing / slope**2
        model = msgspec.structs.replace(
            model,
            position_logits=tuple(np.clip(at, -40, 40).tolist()),
            request_deviation=min(math.sqrt(max(variance, 0.0)), _WIDEST_DEVIATION),
        )
    return model


def _logits(shares: FloatArray) -> FloatArray:
    inside = np.clip(shares, 0.002, 0.998)
    logits: FloatArray = np.log(inside / (1 - inside))
    return logits


def _rounded(model: HazardModel) -> HazardModel:
    """Figures a person can read in the file."""
    transitions = np.round(np.array(model.transitions), 5)
    transitions[np.arange(len(transitions)), np.arange(len(transitions))] += 1 - transitions.sum(1)
    return msgspec.structs.replace(
        model,
        position_logits=tuple(np.round(model.position_logits, 4).tolist()),
        state_logits=tuple(np.round(model.state_logits, 4).tolist()),
        transitions=tuple(map(tuple, np.clip(np.round(transitions, 5), 0, 1).tolist())),
        request_deviation=round(model.request_deviation, 4),
    )


def between_request_variance(data: AcceptanceData) -> float:
    """Variance between records of the share of positions whose first draft is accepted.

    Records weigh by length; the sampling noise of short records is included.
    """
    first = (data.accepted > 0).astype(np.float64)
    lengths = data.lengths
    rate = np.add.reduceat(first, data.offsets[:-1]) / lengths
    return float(np.average((rate - first.mean()) ** 2, weights=lengths))


def main() -> None:
    """Fit to half of the requests of a file of per-position lists, and write the model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--drafter", default="eagle", help="which list")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--seed", type=int, default=3, help="of the halves and of the draws")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data = read_per_position(given.file, given.drafter, depth=given.depth)
    training, _ = halves(data, given.seed)
    model = fit_hazard_model(training, iterations=30, seed=given.seed)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(model), indent=1) + b"\n")


if __name__ == "__main__":
    main()
