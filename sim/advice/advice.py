"""Advice: predictions of all set-ups, the set-up to take, and how sure that is."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.advice import running
from adaptive_spec.sim.advice.fixed_k import prompt_tokens
from adaptive_spec.sim.advice.measured import ratio
from adaptive_spec.sim.advice.observed import Observed
from adaptive_spec.sim.advice.predictor import Predictor
from adaptive_spec.sim.advice.setups import SetUp
from adaptive_spec.sim.advice.summary import Summary, summarize
from adaptive_spec.sim.advice.values import CANNOT_TELL, NO, Advice, Estimate, Fleet, Verdict
from adaptive_spec.sim.advice.verdict import decide
from adaptive_spec.sim.advice.worlds import FEWEST_TOKENS, recorded_world
from adaptive_spec.sim.hardware.from_trace import (
    LARGEST_FIT_ERROR,
    TraceFit,
    drafted_alike,
    require_told_apart,
)
from adaptive_spec.sim.step_trace import Source

FIRST_LOOK = 2
"""Resamplings behind the first answer."""
_BLOCK_TOKENS = 16
"""Of a KV block: vLLM's default."""
_FEW_TRIALS = 200


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """All that an advice is made of but what its gain is expressed in.

    Attributes:
        advice: with a verdict only where nothing can be predicted.
        missing: what the trace lacks; "": nothing.
        most: the trace does not show what drafting costs, so gains are at most the true ones.
        resamplings: behind the intervals.
        pool_tokens, mean_context: as `Observed` has them.
    """

    advice: Advice
    missing: str = ""
    most: bool = False
    resamplings: int = 0
    pool_tokens: int | None = None
    mean_context: float = 0.0

    def conclude(self, fleet: Fleet | None = None) -> Advice:
        """Return the advice with its verdict."""
        if not self.advice.predictions:
            return self.advice
        verdict = decide(
            self.advice, fleet or Fleet(), self.missing, self.resamplings, most=self.most
        )
        if self.most and verdict.worth is not NO:
            # The gain over a server that drafts without use says nothing of one without drafter.
            verdict = _no_prediction(self.missing)
            return msgspec.structs.replace(
                self.advice, verdict=verdict, predictions=[], what_if=[], by_clients=[]
            )
        return msgspec.structs.replace(self.advice, verdict=verdict)


def predict(
    source: Source | Summary,
    *,
    engine: str = "vllm",
    drafter: str = "",
    runs: str = "",
    resamplings: int = 8,
    tokens: int = FEWEST_TOKENS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    first_look: Callable[[Predicted], None] = lambda predicted: None,
) -> Predicted:
    """Read traces and predict what each set-up would have given.

    Args:
        source: step traces of one server set-up, or their summary.
        engine: whose own set-ups are compared, of `doctor_rows.ENGINES`.
        drafter: of `adaptive_spec.sim.drafters`; "": by what the engine recorded of it.
        runs: what the operator runs without this package, see `running.stated`; "": what the trace
            says.
        resamplings: bootstrap worlds behind the intervals, >= 2.
        tokens: fewest tokens of a simulated load.
        seed: of all draws.
        progress: called with the loads simulated and the loads in all.
        first_look: called with the prediction after `FIRST_LOOK` resamplings, without other
            traffic than was recorded.

    Raises DataError if the traces hold no measured steps or no verified drafts, ConfigError if
    `runs` is not understood.
    """
    read = source if isinstance(source, Summary) else summarize(source, seed=seed)
    observed = read.observed()
    present, said = _present(observed, runs, engine)
    seen = _as_recorded(observed, engine, present, said)
    found = Predicted(
        advice=seen, pool_tokens=observed.pool_tokens, mean_context=observed.mean_context
    )

    def refused(verdict: Verdict, fit: TraceFit | None = None) -> Predicted:
        advice = msgspec.structs.replace(seen, verdict=verdict, fit=fit)
        return msgspec.structs.replace(found, advice=advice)

    try:
        steps = require_told_apart(read.steps, read.name, one_depth=True)
    except DataError as error:
        return refused(_no_prediction(str(error)))
    if observed.acceptance.lengths.max() < 2:
        return refused(_no_prediction("every request has one output token: drafts are of no use"))
    drafts_by_look_up = observed.capability is not None and not observed.capability.off_pass
    loads = [load.clients for load in seen.loads]
    simulated = sorted({*loads, *(2 * clients for clients in loads)})
    done = itertools.count(1)
    total = len(simulated) + len(loads)

    def advance() -> None:
        number = next(done)
        progress(number, max(total, number))

    whole = recorded_world(
        observed,
        steps,
        drafter=drafter or ("ngram" if drafts_by_look_up else "eagle"),
        seed=seed,
        loads=simulated,
        tokens=tokens,
        progress=advance,
    )
    if refusal := _no_fit(whole.fit):
        return refused(refusal, whole.fit)
    kept = [] if drafts_by_look_up else _kept_in_memory(observed, drafter)
    seen = msgspec.structs.replace(seen, fit=whole.fit, kept_at_zero=kept)
    predictor = Predictor(seen, whole, steps, resamplings, present)
    missing = "" if steps.shows_drafting else drafted_alike(steps)

    def predicted(count: int, *, complete: bool) -> Predicted:
        return msgspec.structs.replace(
            found,
            advice=predictor.predict(count, complete=complete),
            missing=missing or _more_drafts(seen, observed),
            most=bool(missing),
            resamplings=count,
        )

    first_look(predicted(min(FIRST_LOOK, resamplings), complete=False))
    return predicted(resamplings, complete=True)


def _as_recorded(observed: Observed, engine: str, present: SetUp | None, said: str) -> Advice:
    """Return the advice before anything is predicted: what the traces show."""
    measured = ratio(observed.measured)
    return Advice(
        engine=engine,
        loads=observed.loads,
        kinds=observed.kinds,
        overall=observed.overall,
        k_share=observed.k_share,
        modes=observed.modes,
        kmax=observed.kmax,
        seconds=observed.seconds,
        requests=observed.acceptance.records,
        runs="" if present is None else present.name,
        runs_said=said,
        runs_share=0.0 if present is None else running.share_that_ran(present, observed.ran),
        measured=None if measured is None else Estimate(*measured),
        measured_blocks=observed.measured.count,
        verdict=Verdict(worth=CANNOT_TELL, sentence="", answers=[], recommended=[]),
    )


def _present(observed: Observed, runs: str, engine: str) -> tuple[SetUp | None, str]:
    """Return what the operator runs, None if that is not known, and the same in words."""
    if runs:
        found = running.stated(runs, observed.kmax, engine)
        return found, running.described(found)
    recorded = running.recorded(observed.engine_k, observed.kmax, engine)
    if recorded is None:
        return None, (
            "not known: the engine's own K follows more than the batch size; name its file or "
            "JSON with --runs"
        )
    source = "inferred from the trace" if observed.engine_k else "if that is what you run"
    return recorded, f"{running.described(recorded)}, {source}"


def _no_prediction(error: str) -> Verdict:
    return Verdict(
        worth=CANNOT_TELL,
        sentence="cannot tell: the trace does not show what other K cost",
        answers=[
            ("Missing", error),
            (
                "Record",
                "some minutes at the loads that you serve, with K that vary: mode `on`, or mode "
                "`shadow` with `shadow_share`, which runs another K in that share of the steps",
            ),
        ],
        recommended=[],
    )


def _no_fit(fit: TraceFit) -> Verdict | None:
    if fit.usable:
        return None
    return Verdict(
        worth=CANNOT_TELL,
        sentence=(
            "cannot tell: step times on this machine are not predictable "
            f"(median error {fit.median_error:.0%}, at most {LARGEST_FIT_ERROR:.0%} is usable)"
        ),
        answers=[
            ("Why", "the same batch takes different times: other work shares the machine"),
            ("Do", "record on an idle or dedicated machine; more of the same data will not help"),
        ],
        recommended=[],
    )


def _kept_in_memory(observed: Observed, drafter: str) -> list[str]:
    """Say what a drafter with a model holds of the KV pool, and computes of prompts, at K = 0."""
    running = sum(load.share * load.clients for load in observed.loads)
    said = f"{observed.kmax} tokens of KV behind each request"
    if observed.pool_tokens:
        said += f", {100 * running * observed.kmax / observed.pool_tokens:.2f} % of the pool"
    first_token = (
        "of the first token the drafter's part, which no trace tells, as it was always there: "
        "`doctor --recipe` says about how much"
    )
    if drafter == "draft_model":
        return [said, first_token]
    prompt = float(np.mean(prompt_tokens(observed.acceptance)))
    return [
        said,
        first_token,
        "EAGLE and MTP before vLLM 0.33 compute the last cached block of each prompt again, at "
        f"most {100 * min(_BLOCK_TOKENS / prompt, 1.0):.1f} % of the prompts' tokens",
    ]


def _more_drafts(seen: Advice, observed: Observed) -> str:
    """Say which draft positions were verified too seldom; "" if none was."""
    trials = observed.acceptance.lengths.sum() * np.array(
        [sum(share for k, share in seen.k_share.items() if k > j) for j in range(seen.kmax)]
    )
    shallow = int((trials >= _FEW_TRIALS).sum())
    if shallow == seen.kmax:
        return ""
    return f"positions beyond {shallow} were verified fewer than {_FEW_TRIALS} times"
