"""Why this K now, in words and numbers: one place for status, live page, `top` and trace.

A policy may say what its decision rests on (`explanation`, a dict of numbers, see
`adaptive_spec.policies.figures`); `sentence` turns it into words. Without it the
policy's own reason is all there is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from adaptive_spec.step import Kind, Mode, SpecPlan

Numbers = Mapping[str, Any]

_LIMITS = {
    "kmax": "the server allows no more",
    "possible": "hints, lengths or grammar allow no more",
    "drafted": "no more were drafted for this step",
}
"""What keeps a plan from another draft."""

_KEPT = {
    "credit": "speculation has gained {credit:.2g} s so far",
    "stake": "{stake:.2g} s of the requests alive are at stake, should the load fall",
}
"""Reasons that keep the drafter running where no draft pays (`switch` of the numbers)."""

_SITUATIONS = {
    "learning": "Learning this load",
    "steady": "Steady",
    "full batch": "Full batch",
    "changed": "Step times have changed",
}
"""States in which drafts are planned, as `situation` of the numbers names them."""


def sentence(plan: SpecPlan, numbers: Numbers, written: float) -> str:
    """Return the reason of the last decision.

    Args:
        plan: the decision.
        numbers: of the policy, empty without any.
        written: wall-clock time of the numbers (Unix seconds).
    """
    if not numbers:
        return plan.reason
    if "off_seconds" in numbers:
        return _off(plan.mode, numbers, written)
    text = _on(numbers) + _kept(numbers)
    if known := _SITUATIONS.get(numbers.get("situation", "")):
        text = f"{known}. {text}"
    if plan.kind is Kind.MEASURING:
        return f"This step runs to learn ({plan.reason}). The plan itself: {text}"
    if plan.kind is Kind.ENGINE:
        return f"The engine's own K runs ({plan.reason}). The plan would be: {text}"
    return text


def _on(numbers: Numbers) -> str:
    k, most, accepted, more = (numbers.get(key) for key in ("k", "most_k", "accepted", "next"))
    parts = []
    if accepted:
        drafts = ", ".join(str(j) for j in range(1, len(accepted) + 1))
        rates = ", ".join(f"{rate:.0%}" for rate in accepted)
        subject = "draft {} is" if len(accepted) == 1 else "drafts {} are"
        parts.append(f"{subject.format(drafts)} accepted {rates}")
    if more:
        ragged = more["position"] is None
        draft = "one more draft for every request" if ragged else f"draft {more['position']}"
        parts.append(
            f"{draft} ({more['accepted']:.0%} accepted) would cost "
            f"{_price(more['ms'], more['tokens'])}; a token costs "
            f"{_two_digits(numbers['step_ms'] / max(numbers['tokens'], 1e-9))} ms now"
        )
    elif numbers.get("limit") in _LIMITS:
        parts.append(_LIMITS[numbers["limit"]])
    name = f"K = {k:g}" if most == k else f"mean K = {k:g}, at most {most}"
    return f"{name}: {'; '.join(parts)}" if parts else name


def _price(ms: float, tokens: float) -> str:
    """Cost of more tokens, and of each."""
    if ms <= 0.0:
        return f"no time for {_two_digits(tokens)} tokens"
    each = f", {_two_digits(ms / tokens)} ms each" if tokens > 0.0 else ""
    return f"{_two_digits(ms)} ms for {_two_digits(tokens)} tokens{each}"


def _two_digits(value: float) -> str:
    """A number of two digits, without an exponent."""
    return f"{float(f'{value:.2g}'):,.9f}".rstrip("0").rstrip(".")


def _kept(numbers: Numbers) -> str:
    switch = numbers.get("switch") or {}
    reason = _KEPT.get(switch.get("kept", ""))
    if reason is None:
        return ""
    known = {"credit": switch["credit"], "stake": switch["stake"]}
    return f". The drafter runs on, as {reason.format(**known)}"


def _off(mode: Mode, numbers: Numbers, written: float) -> str:
    since = time.strftime("%H:%M:%S", time.gmtime(written - numbers["off_seconds"]))
    best = numbers["best"]
    text = (
        f"OFF since {since} UTC, {numbers['batch']} requests: the best K = {best['k']} would give "
        f"{best['of_none']:.2f} of no speculation"
    )
    if mode is Mode.OFF_WARM:
        text += _kept(numbers)
    wait = numbers.get("back_seconds")
    return text if wait is None else f"{text}; the drafter comes back in {max(wait, 0.0):.0f} s"
