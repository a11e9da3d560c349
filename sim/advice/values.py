"""The values of an advice."""

from __future__ import annotations

import msgspec

from adaptive_spec.sim.advice.observed import KindFacts, LoadFacts
from adaptive_spec.sim.hardware.from_trace import TraceFit

SELDOM = 0.1
"""Share of the steps of requests below which what a set-up gives is guessed from others."""
YES, NO, NOT_CLEAR, CANNOT_TELL = "yes", "no", "not clear", "cannot tell"


class Estimate(msgspec.Struct, frozen=True):
    """A value and its confidence interval."""

    value: float
    low: float
    high: float


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Unit of a gain.

    Attributes:
        gpus: GPUs that serve this traffic; 0: unknown.
        gpu_hour_price: price of an hour of one GPU, in any currency; 0: unknown.
    """

    gpus: int = 0
    gpu_hour_price: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Advice.

    Attributes:
        worth: `YES`, `NO`, `NOT_CLEAR` or `CANNOT_TELL`.
        sentence: the answer to whether speculation is worth it.
        runs: what would change for what the operator runs; "": nothing is predicted.
        answers: further questions, each a word or two, and their answers.
        recommended: names of the set-ups whose lines to paste, the best first.
    """

    worth: str
    sentence: str
    runs: str = ""
    answers: list[tuple[str, str]]
    recommended: list[str]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """One set-up.

    Attributes:
        name: of the set-up.
        by_load: tokens per second at each load of `Advice.loads`.
        tokens_per_second: over the recorded mix of loads.
        gain: that over no speculation.
        interval: of the gain; None for set-ups that nothing is decided by.
        tpot_ms: p50 and p99 over requests of the recorded mix.
        lines: what to paste.
    """

    name: str
    by_load: list[float]
    tokens_per_second: float
    gain: float
    interval: Estimate | None
    tpot_ms: tuple[float, float]
    lines: list[str]


class BeyondLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Best fixed K over no speculation at a load, recorded or up to four times the largest.

    Attributes:
        clients: requests at a time.
        best_k: the best fixed K >= 1.
        gain: its throughput over that without a drafter.
    """

    clients: int
    best_k: int
    gain: float


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """Other traffic than was recorded, with set-ups that were tuned to what was recorded.

    Attributes:
        name: what changes.
        native: the engine's own set-up over no speculation.
        ours: goodput over no speculation.
    """

    name: str
    native: float
    ours: float


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the command prints.

    Attributes:
        engine: whose set-ups are compared.
        loads, kinds, overall, k_share, modes, kmax, seconds: what was recorded, see `observed`.
        requests: recorded requests.
        fit: agreement of the fitted step times; None without predictions.
        predictions: set-ups, no speculation first.
        native: name of the engine's best own set-up.
        over_native: goodput over that, from pairs in the same worlds.
        runs: name of the set-up that the operator runs without this package; "": not known.
        runs_said: that, in words.
        runs_share: share of the steps of requests that ran what it would have run.
        over_runs: goodput, `native` and no speculation over `runs`, likewise.
        what_if: both under other traffic.
        by_clients: best fixed K by load.
        leave_out_from: smallest load from which on no K gains; None: at none that was simulated.
        kept_at_zero: sentences on what the drafter costs while K is 0.
        measured: tokens per second over the engine's own K, by audit blocks of the trace; None
            with too few.
        measured_blocks: such blocks.
        verdict: what to do.
        memory: sentences on what the drafter's memory costs.
        replicas: sentences on replicas of a fleet that stand out.
    """

    engine: str
    loads: list[LoadFacts]
    kinds: list[KindFacts]
    overall: LoadFacts
    k_share: dict[int, float]
    modes: dict[str, float]
    kmax: int
    seconds: float
    requests: int
    fit: TraceFit | None = None
    predictions: list[Prediction] = []
    native: str = ""
    over_native: Estimate | None = None
    runs: str = ""
    runs_said: str = ""
    runs_share: float = 0.0
    over_runs: dict[str, Estimate] = {}
    what_if: list[WhatIf] = []
    by_clients: list[BeyondLoad] = []
    leave_out_from: int | None = None
    kept_at_zero: list[str] = []
    measured: Estimate | None = None
    measured_blocks: int = 0
    verdict: Verdict
    memory: list[str] = []
    replicas: list[str] = []
