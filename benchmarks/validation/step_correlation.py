"""V7: acceptance is correlated from step to step, and the hazard models have that too.

Published: with K = 8 on gsm8k, all drafts are accepted with probability .73 after a step that
accepted all, .41 after one that accepted none (AEM001/Edge-Cloud-Speculative-Decoding, Qwen2.5
draft and target). Two figures, two parameters: a hazard per request that varies around one
level. Both are fitted, so neither row counts; they show that the model can do it, and the row
with independent acceptance that a single hazard cannot.

Counted is the fit's check on data that is at hand: a model fitted to half of SpecDecode-Bench's
gsm8k requests against the other half, at K = 8. The bound is ours, the issue names none.

All of it is read off the engine loop, through the policy that observes it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.hazard import HazardModel, generate, load_hazard_model
from adaptive_spec.sim.acceptance.per_position import read_per_position
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.step import FinishedStep, IntArray
from benchmarks.profiles import published_profile
from benchmarks.validation.arms import one_per_record, simulated
from benchmarks.validation.halves import halves
from benchmarks.validation.row import Row, compared

TITLE = "Step-to-step correlation of acceptance, K = 8, gsm8k"
FITTED = Path(__file__).with_name("gsm8k_half.json")
"""Fitted once to half of that file, by `benchmarks/hazard_fit` of commit f6cb919."""
FILE = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
AFTER_ALL, AFTER_NONE = 0.73, 0.41
BOUND = 0.05
LEVEL, DEVIATION = 3.28, 0.894
"""Logit of the hazard and its standard deviation between requests, at which the pair comes out."""

_K = 8
_SEED = 3
_CLIENTS = 128
_RECORDS, _TOKENS = 512, 128


class Correlation(msgspec.Struct, frozen=True):
    """Counts of steps that verified K drafts, as the engine loop saw them.

    Attributes:
        after_all: share that accepts all, among those whose predecessor did.
        after_none: the same, among those whose predecessor accepted nothing.
        mean_accepted: drafts per step.
    """

    after_all: float
    after_none: float
    mean_accepted: float


def rows(data_folder: Path) -> list[Row]:
    """The published pair, the same without correlation, and the held-out check."""
    fitted = f"two parameters fitted on these two rows: level {LEVEL:g}, deviation {DEVIATION:g}"
    single = "one hazard for all, no correlation: its level fitted on the row after none"
    data = read_per_position(data_folder / FILE, "eagle", depth=_K)
    _, held_out = halves(data, _SEED)
    model = load_hazard_model(FITTED)
    lengths = np.tile(held_out.lengths, 4)
    generated = observed(generate(model, depth=_K, seed=_SEED + 1, output_tokens=lengths))
    real = observed(held_out)
    published = Correlation(AFTER_ALL, AFTER_NONE, float("nan"))
    other_half = "hazard model fitted to the other half of the requests"
    alike = observed(made(_single_level(), 0.0))
    return [
        *_pair("published", published, observed(made(LEVEL, DEVIATION)), fitted, counted=False),
        *_pair("independent", published, alike, single, counted=False),
        *_pair("gsm8k held out", real, generated, other_half, counted=True),
        compared(
            "V7",
            "gsm8k held out, accepted per step",
            real.mean_accepted,
            generated.mean_accepted,
            bound=BOUND,
            note=other_half,
        ),
    ]


def made(level: float, deviation: float) -> AcceptanceData:
    """Requests whose hazards are drawn around one level."""
    model = HazardModel(name="varying", position_logits=(level,), request_deviation=deviation)
    lengths = np.full(_RECORDS, _TOKENS)
    return generate(model, depth=_K, seed=_SEED, output_tokens=lengths)


def _single_level() -> float:
    """Logit of the hazard with h^8 = .41."""
    hazard = AFTER_NONE ** (1.0 / _K)
    return float(np.log(hazard / (1.0 - hazard)))


def observed(data: AcceptanceData) -> Correlation:
    """Replay all records with K = 8 and watch."""
    policy = _Watching()
    simulated(
        ClosedLoad(one_per_record(data.lengths.tolist(), prompt_tokens=64), _CLIENTS),
        data,
        hardware_profile(published_profile("h100-llama-8b")),
        _K,
        options=EngineOptions(max_running=_CLIENTS),
        policy=policy,
    )
    return policy.correlation()


class _Watching(StaticPolicy):
    """Static K that counts what follows what, request by request."""

    def __init__(self) -> None:
        super().__init__(StaticOptions(k=_K))
        self._before: dict[int, int] = {}
        self._followed = {0: [0, 0], _K: [0, 0]}
        self._accepted = self._steps = 0

    def observe(self, step: FinishedStep) -> None:
        outcome = step.outcome
        for slot, verified, accepted in zip(
            outcome.slots.tolist(),
            outcome.verified.tolist(),
            outcome.accepted.tolist(),
            strict=True,
        ):
            if verified < _K:  # the last tokens of a request
                self._before.pop(slot, None)
                continue
            followed = self._followed.get(self._before.get(slot, -1))
            if followed is not None:
                followed[0] += 1
                followed[1] += accepted == _K
            self._before[slot] = accepted
            self._accepted += accepted
            self._steps += 1

    def forget(self, slots: IntArray) -> None:
        for slot in slots.tolist():
            self._before.pop(slot, None)

    def correlation(self) -> Correlation:
        shares = {
            before: hits / cases if cases else float("nan")
            for before, (cases, hits) in self._followed.items()
        }
        return Correlation(shares[_K], shares[0], self._accepted / max(self._steps, 1))


def _pair(
    what: str, published: Correlation, found: Correlation, note: str, *, counted: bool
) -> list[Row]:
    """P(all accepted) after a step that accepted all, and after one that accepted none."""
    return [
        compared(
            "V7",
            f"P(all accepted): {what}, after {after}",
            getattr(published, f"after_{after}"),
            getattr(found, f"after_{after}"),
            counted=counted,
            bound=BOUND,
            note=note,
            relative=False,
        )
        for after in ("all", "none")
    ]
