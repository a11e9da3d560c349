"""`adaptive-spec evaluate`: what other policies would have been worth on a recorded trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adaptive_spec.commands.terminal import print_json
from adaptive_spec.sim.commands.options import JsonForTable
from adaptive_spec.sim.commands.printing import standard_output, table

if TYPE_CHECKING:
    from adaptive_spec.sim.off_policy.evaluation import Evaluation
    from adaptive_spec.sim.off_policy.intervals import Estimate


def evaluate(
    trace: Annotated[
        Path, typer.Argument(help="Folder with steps-*.jsonl of a policy that randomised K.")
    ],
    policy: Annotated[list[str], typer.Option(help="NAME[:key=value,...]; repeat to compare.")],
    warmup_steps: Annotated[int, typer.Option(min=0, help="First steps, to learn from only.")] = 50,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the policies.")] = 0,
    json: JsonForTable = False,
) -> None:
    """Estimate tokens per second of policies from a trace of another one, without running them.

    Only decisions that the recorded policy could have made can be judged; see docs/simulator.md.
    """
    from adaptive_spec.sim.off_policy.evaluation import evaluate as evaluate_trace
    from adaptive_spec.sim.policy_choice import parse_policy

    found = evaluate_trace(
        trace,
        [parse_policy(text) for text in policy],
        warmup_steps=warmup_steps,
        confidence=confidence,
        seed=seed,
    )
    if json:
        print_json(found)
    else:
        _print_table(found, confidence)


def _print_table(found: Evaluation, confidence: float) -> None:
    from rich.markup import escape

    console = standard_output()
    drawn = "one K for all" if found.draw == "batch" else "K per request"
    title = (
        f"tokens per second, {confidence:.0%} intervals · {found.used:,} of {found.steps:,} steps "
        f"· drawn: {drawn}"
    )
    names = ["DR", "gain", "samples", "support"]
    printed = table(title, "policy", *names, least=11)
    printed.add_row("as recorded", _text(found.logged))
    for value in found.policies:
        weighted = [_text(value.doubly_robust), _percent(value.gain)]
        printed.add_row(
            escape(value.policy),
            *("–" if value.problem else text for text in weighted),
            f"{value.effective_samples:,.0f}",
            f"{value.support.value:.2f}",
        )
    console.print(printed)
    for value in found.policies:
        if value.problem:
            console.print(f"{escape(value.policy)}: {value.problem}")
        if value.wants_deeper > 0.0:
            console.print(
                f"{escape(value.policy)}: wanted deeper drafts than were made after "
                f"{value.wants_deeper:.0%} of steps"
            )


def _text(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{estimate.value:,.0f} ± {(estimate.high - estimate.low) / 2.0:,.0f}"


def _percent(gain: Estimate | None) -> str:
    if gain is None:
        return "–"
    return f"{gain.value - 1.0:+.1%} ± {(gain.high - gain.low) / 2.0:.1%}"
