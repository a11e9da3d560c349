"""Is the belief about step times calibrated? Each step is predicted, then learned.

    python benchmarks/step_time_beliefs.py [--policy POLICY] [--traces FILE ...]

The belief is that of `policies/step_times.py`. Sources: recorded steps of a real vLLM on a CPU, and
the worlds of `changes.py`, in which `--policy` decides.

Columns: log predictive score per step (Student's t with four degrees of freedom on the logarithm
of the time; higher is better); share of steps in the 90 % interval; both again for the 50 steps
after a change.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.policies.step_features import PASSES, RAGGED
from adaptive_spec.policies.step_times import StepTimes
from adaptive_spec.policy import Policy
from adaptive_spec.sim.fit.sources import traced_steps
from adaptive_spec.sim.policy_choice import PolicyChoice, parse_policy
from adaptive_spec.step import Capability, FinishedStep, Level, StepOutcome
from benchmarks.changes import GPUS, ISSUE, always
from benchmarks.policy_loop import KMAX, World, run

HERE = Path(__file__).resolve().parent
TRACE = HERE / "results" / "vllm_cpu-costs.jsonl.gz"
NORMAL_90 = 1.645
AFTER = 50
FREEDOM = 4.0
"""Of Student's t: a single outlier costs any model a few nats, not hundreds."""
_T_CONSTANT = (
    math.lgamma(0.5 * (FREEDOM + 1.0))
    - math.lgamma(0.5 * FREEDOM)
    - 0.5 * math.log(FREEDOM * math.pi)
)


class Source(NamedTuple):
    """Steps in order; `change`: number of the first step of a changed device."""

    name: str
    capability: Capability
    outcomes: list[StepOutcome]
    change: int | None = None


class Scores(NamedTuple):
    """Log scores [steps], and whether the 90 % interval held the step."""

    score: list[float]
    covered: list[bool]
    change: int | None


def log_score(error: float, scale: float) -> float:
    """Log density of a relative error under Student's t."""
    return (
        _T_CONSTANT
        - math.log(scale)
        - 0.5 * (FREEDOM + 1.0) * math.log1p((error / scale) ** 2 / FREEDOM)
    )


def predict(source: Source) -> Scores:
    """Predict each step, then learn it."""
    times = StepTimes(source.capability)
    score: list[float] = []
    covered: list[bool] = []
    change: int | None = None
    for place, outcome in enumerate(source.outcomes):
        if place == source.change:
            change = len(score)
        if not (outcome.seconds > 0.0 and outcome.batch_size):
            continue
        if times.scale:
            expected, deviation = believed(times, outcome)
            score.append(log_score(math.log(outcome.seconds / expected), deviation))
            covered.append(abs(outcome.seconds / expected - 1.0) < NORMAL_90 * deviation)
        times.learn(outcome, cold=False)
    return Scores(score, covered, change)


def believed(times: StepTimes, outcome: StepOutcome) -> tuple[float, float]:
    """Return the expected seconds of a step, and the relative standard deviation of its time."""
    passes, c = float(times.passes[outcome.draft_depth]), times.coefficients
    [x] = times.rows(
        outcome.batch_size,
        np.array([float(outcome.batch_tokens)]),
        outcome.context_tokens,
        np.array([passes]),
        prefill=outcome.prefill_tokens,
    )
    if outcome.ragged:
        x[RAGGED] = float(x @ c) - passes * float(c[PASSES])
    expected = max(float(x @ c), 1e-3)
    by_parts = float(x @ times.covariance @ x) + times.prompt_error(outcome.prefill_tokens) ** 2
    variance = by_parts / expected**2 + times.level_variance + times.noise
    return times.scale * expected, math.sqrt(variance)


def recorded(files: Iterable[Path]) -> Iterator[Source]:
    """Steps that were measured."""
    for file in files:
        outcomes = traced_steps(file).times
        kmax = max(int(o.batch_tokens / max(o.batch_size, 1)) for o in outcomes)
        depth = max(o.draft_depth for o in outcomes)
        capability = Capability(level=Level.FULL, max_draft_tokens=max(kmax, depth, 1))
        yield Source(file.name, capability, outcomes)


class Recorder:
    """A policy whose finished steps are kept."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.plan, self.forget = policy.plan, policy.forget
        self.kept: list[StepOutcome] = []

    def observe(self, step: FinishedStep) -> None:
        """Keep a step and pass it on."""
        self.kept.append(step.outcome)
        self._policy.observe(step)


def worlds(choice: PolicyChoice) -> Iterator[Source]:
    """Worlds of `changes.py` under this policy."""
    capability = Capability(level=Level.FULL, max_draft_tokens=KMAX)

    def of(name: str, world_at: Callable[[int], World], batch: int, change: int | None) -> Source:
        policy = Recorder(choice.build(0))
        run(cast(Policy, policy), world_at, lambda _: batch, 800, 0)
        return Source(f"{name}, batch {batch}", capability, policy.kept, change)

    for batch in (4, 64):
        for name, world in GPUS.items():
            yield of(name, always(world), batch, None)
        for part in ("fixed", "token", "draft"):
            for factor in (1 / 30, 1 / 5, 5.0, 30.0):
                new = ISSUE._replace(**{part: getattr(ISSUE, part) * factor})
                yield of(f"{part} x {factor:.3g}", becomes(new), batch, 500)


def becomes(new: World) -> Callable[[int], World]:
    """The world of the issue, and another one from step 500 on."""
    return lambda step: new if step >= 500 else ISSUE


def show(name: str, found: list[Scores]) -> None:
    """One row of the table: mean over sources of each column."""
    rows = [(np.mean(s.score), np.mean(s.covered)) for s in found]
    late = [
        (np.mean(s.score[s.change : s.change + AFTER]), np.mean(s.covered[s.change :][:AFTER]))
        for s in found
        if s.change is not None
    ]
    cells = [f"{value:7.3f}" for part in (rows, late) if part for value in np.mean(part, axis=0)]
    print(f"{name:58s}", *cells)


def main() -> None:
    """Print the table."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="goodput", help="NAME or NAME:key=value,...")
    parser.add_argument("--traces", type=Path, nargs="*", default=[TRACE])
    parser.add_argument("--each", action="store_true", help="print every source")
    given = parser.parse_args()
    choice = parse_policy(given.policy)
    groups: dict[str, Iterable[Source]] = {
        "recorded": recorded(given.traces),
        "worlds": worlds(choice),
    }
    print(f"{'':58s}   score covered | 50 steps after a change: the same")
    for name, sources in groups.items():
        found = []
        for source in sources:
            found.append(predict(source))
            if given.each or name == "recorded":
                show(f"  {source.name}", found[-1:])
        show(name, found)


if __name__ == "__main__":
    main()
