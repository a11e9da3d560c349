"""The verdict of an advice: is speculation worth it, plugin or table, at what price, how sure."""

from __future__ import annotations

from adaptive_spec.sim.advice.setups import NO_SPECULATION, OURS
from adaptive_spec.sim.advice.values import (
    NO,
    NOT_CLEAR,
    SELDOM,
    YES,
    Advice,
    Estimate,
    Fleet,
    Prediction,
    Verdict,
)

_WORTH_IT = 1.01
"""Least gain for which a drafter's memory and upkeep are worth it."""
_SURE = 0.02
"""Half an interval, relative, that settles the choice."""
_FAIR = 0.05
_GOOD_FIT = 0.05
_BOTH = 0.1
"""Least share of the time on either side for which a pool of its own is worth a thought."""
_MOST_HOURS = 1000.0
_HOURS_PER_MONTH = 730.0


def decide(
    advice: Advice, fleet: Fleet, missing: str, resamplings: int, *, most: bool = False
) -> Verdict:
    """Return the verdict on predictions.

    Args:
        advice: with predictions.
        fleet: what the gain is expressed in.
        missing: what the trace lacks; "": nothing.
        resamplings: behind the intervals.
        most: gains are over a server that drafts without verifying, so the true ones are smaller.
    """
    assert advice.over_native is not None
    by_name = {each.name: each for each in advice.predictions}
    ours, native = by_name[OURS], by_name[advice.native]
    best = max(ours, native, key=lambda each: each.gain)
    assert best.interval is not None
    gain = _range(best.interval)
    if best.gain < _WORTH_IT:
        worth, recommended = NO, [NO_SPECULATION]
        sentence = f"No, leave speculation off: the best set-up, {best.name}, changes throughput by"
        sentence += f" {gain}{' at most' if most else ''}"
    else:
        first, second = _ordered(advice, ours, native)
        recommended = [first.name, second.name]
        worth = YES
        sentence = f"Yes, speculation: {gain} throughput over none"
        if best.interval.low <= 1.0:
            worth, recommended = NOT_CLEAR, [first.name, NO_SPECULATION]
            sentence = f"Not clear yet: {first.name} changes throughput by {gain} over none"
    answers = []
    if worth is not NO:
        answers.append((f"Plugin or {_kind(native.name)}?", _choice(advice, native)))
        answers += [("If it moves", text) for text in _moves(advice, native)]
        gpu_time = f"{_gpu_time(by_name[recommended[0]].gain, fleet)} against no speculation"
        if fleet.gpus and recommended[0] in advice.over_runs:
            over = advice.over_runs[recommended[0]]
            saved = [f"{_saved(gain, fleet):.1f}" for gain in (over.value, over.low, over.high)]
            gpu_time += f"; {saved[0]} ({saved[1]} to {saved[2]}) against {_kind(advice.runs)}"
        answers.append(("GPU time", gpu_time))
        answers.append(("Price", _latency(by_name, ours, native)))
    if advice.kept_at_zero:
        answers.append(("Off keeps", "; ".join(advice.kept_at_zero)))
        if worth is not NO and (pools := _two_pools(advice)):
            answers.append(("Two pools?", pools))
    answers.append(("Sure?", _certainty(advice, resamplings)))
    if advice.fit is not None and advice.fit.note:
        answers.append(("Prompts", advice.fit.note))
    if missing:
        answers.append(("Missing", f"{missing}: record with a larger K to settle them"))
    runs = _over_what_runs(advice, by_name, worth)
    return Verdict(
        worth=worth, sentence=sentence, runs=runs, answers=answers, recommended=recommended
    )


def measured_said(advice: Advice) -> str:
    """Say what audit blocks of the trace have measured, and whether the prediction agrees."""
    found, blocks = advice.measured, advice.measured_blocks
    if found is None:
        return ""
    said = f"{_range(found)} over the engine's own K, in {blocks} audit blocks of this trace"
    predicted = advice.over_runs.get(OURS)
    if predicted is None:
        return said
    said += f"; predicted {_range(predicted)}"
    if predicted.high < found.low or found.high < predicted.low:
        # Blocks assume nothing of acceptance, of step times, or of the load.
        said += ": they disagree, and what is measured holds"
    return said


def _ordered(advice: Advice, ours: Prediction, native: Prediction) -> tuple[Prediction, Prediction]:
    """Put the better one first: by a sure difference, else by the worst traffic of each."""
    over = advice.over_native
    assert over is not None
    if over.low > 1.0:
        return ours, native
    if over.high < 1.0:
        return native, ours
    worst = min([over.value, *(each.ours / each.native for each in advice.what_if)])
    best = max([over.value, *(each.ours / each.native for each in advice.what_if)])
    # What one loses at worst by taking the plugin, and by taking the engine's own set-up.
    return (ours, native) if 1.0 - worst <= 1.0 - 1.0 / best else (native, ours)


def _choice(advice: Advice, native: Prediction) -> str:
    over = advice.over_native
    assert over is not None
    found = f"{_range(over)}, paired"
    if over.low > 1.0:
        return f"plugin: {found}, over {native.name}"
    if over.high < 1.0:
        return f"{native.name}: the plugin is at {found}"
    return f"no difference shown on this traffic: plugin over {native.name} {found}"


def _over_what_runs(advice: Advice, by_name: dict[str, Prediction], worth: str) -> str:
    """Say what changes for a server that runs what the operator runs."""
    if not advice.over_runs:
        return advice.runs_said
    compared = [NO_SPECULATION] if worth is NO else [OURS, advice.native]
    gains = [
        f"{'plugin' if name == OURS else _kind(name)} {_range(advice.over_runs[name])}"
        for name in compared
        if name in advice.over_runs
    ]
    after = by_name[compared[0]].tpot_ms[1]
    said = (
        f"{advice.runs_said}: {', '.join(gains)} over it, paired; TPOT p99 "
        f"{by_name[advice.runs].tpot_ms[1]:.3g} -> {after:.3g} ms"
    )
    said += " with the plugin" if worth is not NO else ""
    # Rounds of a large K begin at harder places: its acceptance is below that of a small K.
    return f"{said}; rough, as that hardly ran here" if advice.runs_share < SELDOM else said


def _moves(advice: Advice, native: Prediction) -> list[str]:
    kind = _kind(native.name)
    return [
        f"{each.name}: {kind} {_percent(each.native)}, plugin {_percent(each.ours)} over none "
        f"({_percent(each.ours / each.native)})"
        for each in advice.what_if
    ]


def _two_pools(advice: Advice) -> str:
    """Say when a second pool without a drafter pays; empty where one pool does."""
    begins = advice.leave_out_from
    without = sum(load.share for load in advice.loads if begins and load.clients >= begins)
    if not _BOTH <= without <= 1.0 - _BOTH:
        return ""
    return (
        f"no K pays from {begins} requests at a time on, {without:.0%} of the time: servers "
        "without a drafter would save there what off keeps; route the others to servers that draft"
    )


def _saved(gain: float, fleet: Fleet) -> float:
    """GPUs that are not needed any more."""
    return fleet.gpus * (1.0 - 1.0 / gain)


def _gpu_time(gain: float, fleet: Fleet) -> str:
    share = 1.0 / gain
    said = f"the same traffic in {share:.2f} of the time"
    if fleet.gpus:
        saved = _saved(gain, fleet)
        said += f": {abs(saved):.1f} of {fleet.gpus} GPUs {'fewer' if saved >= 0 else 'more'}"
        if fleet.gpu_hour_price:
            price = saved * fleet.gpu_hour_price * _HOURS_PER_MONTH
            said += f", {price:,.0f} a month"
    return said


def _latency(by_name: dict[str, Prediction], ours: Prediction, native: Prediction) -> str:
    none = by_name[NO_SPECULATION].tpot_ms
    parts = [
        f"{name} {before:.3g} -> {own:.3g} ms ({_kind(native.name)} {other:.3g})"
        for name, before, own, other in zip(
            ("p50", "p99"), none, ours.tpot_ms, native.tpot_ms, strict=True
        )
    ]
    return f"TPOT with the plugin: {', '.join(parts)}"


def _certainty(advice: Advice, resamplings: int) -> str:
    over, fit = advice.over_native, advice.fit
    assert over is not None
    assert fit is not None
    half = (over.high - over.low) / 2
    level = "good" if half <= _SURE else "fair" if half <= _FAIR else "low"
    said = [
        f"{level}: {advice.requests:,} requests, {_duration(advice.seconds)} of busy time, "
        f"{resamplings} resamplings"
    ]
    if half > _SURE:
        hours = advice.seconds / 3600.0 * ((half / _SURE) ** 2 - 1.0)
        said.append(
            f"{_duration(3600.0 * hours)} more of such traffic would bring plugin over "
            f"{_kind(advice.native)} to ± {_SURE:.0%}"
            if hours <= _MOST_HOURS
            else "± 2 % is not reachable with such traffic: record on a quieter machine"
        )
    quality = "good" if fit.median_error <= _GOOD_FIT else "fair"
    said.append(f"step times fit within {fit.median_error:.1%} (median, {quality})")
    return "; ".join(said)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _kind(name: str) -> str:
    return f"fixed {name}" if name.startswith("K = ") else name


def _range(estimate: Estimate) -> str:
    return f"{_percent(estimate.value)} ({_percent(estimate.low)} to {_percent(estimate.high)})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
