"""`adaptive-spec prove`: what the plugin gains on a running server, measured, with an interval.

Raises the share of audit blocks for some minutes, watches the interval narrow, and stops as soon as
the question is answered: an interval that holds at all times allows that. The server falls back to
its own share by itself, also if this command is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from adaptive_spec.audit.auditor import ERROR, figures
from adaptive_spec.audit.confidence_sequence import Sequence
from adaptive_spec.commands.status_source import (
    ArmGain,
    AuditStatus,
    Gain,
    Status,
    StatusSource,
    audit_of,
)
from adaptive_spec.commands.terminal import console, print_json, print_text
from adaptive_spec.errors import DataError

TITLES = {"engine": "the engine's own K", "none": "no drafts"}
MARGIN_MINUTES = 0.5
"""The raised share lasts so much longer than the command wants."""
YES, NO, OPEN = "yes", "no", "open"
EXIT = {YES: 0, NO: 1, OPEN: 3}
"""Exit status by answer; 2 is an error."""


class Moment(msgspec.Struct, frozen=True):
    """Interval of the first arm after so many seconds."""

    seconds: float
    gain: float
    low: float
    high: float


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Measured gains, and the answer that they give.

    Attributes:
        answer: whether the gain over the first arm is at least `at_least`: ``yes``, ``no``, or
            ``open`` where the interval still holds both.
        at_least: gain that is asked for (0.02: 2 percent).
        seconds: that it took.
        confidence: of the interval, at all times at once.
        arms: gain over each arm, of all engines, and by load.
        left_out: share of the steps in which the drafter was off, and no block could begin.
        handed_back: loads at which the guard has handed back.
        course: the interval over time.
    """

    answer: str
    at_least: float
    seconds: float
    confidence: float = 1.0 - ERROR
    arms: dict[str, ArmGain] = {}
    left_out: float = 0.0
    handed_back: list[str] = []
    course: list[Moment] = []


def prove(
    server: Annotated[str, typer.Argument(help="URL, HOST:PORT or PORT, or a status file.")],
    minutes: Annotated[float, typer.Option(min=0.05, max=1000, help="Longest time.")] = 10.0,
    arms: Annotated[str, typer.Option(help="engine, none, or engine,none.")] = "engine",
    at_least: Annotated[
        float, typer.Option(help="Per cent over the first arm that are asked for.")
    ] = 0.0,
    share: Annotated[float, typer.Option(min=0.01, max=0.25, help="Share of the blocks.")] = 0.2,
    control: Annotated[
        Path | None, typer.Option(help="Control file of a server that has no HTTP route.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    key: Annotated[str, typer.Option(help="API key. Default: $VLLM_API_KEY.")] = "",
    admin: Annotated[
        bool,
        typer.Option("--admin", help="Send $ADAPTIVE_SPEC_ADMIN_KEY to another machine, too."),
    ] = False,
) -> None:
    """Measure the gain over the engine's own K on a running server, under its own load.

    Exit status 0: at least that; 1: less; 3: not known within the time; 2: an error.

    Example: adaptive-spec prove localhost:8000 --minutes 10 --at-least 0
    """
    source = StatusSource(server, key=key, admin=admin)
    wanted = arms.split(",")
    request = {"share": share, "arms": wanted, "minutes": minutes + MARGIN_MINUTES}
    _refuse(source.read())
    switch = _switch(source, control)
    switch({"audit": request})
    try:
        proof = _watch(source, wanted[0], 60.0 * minutes, at_least / 100.0)
    finally:
        switch({"audit": {}})
    if html is not None:
        html.write_text(page(proof), encoding="utf-8")
    if as_json:
        print_json(msgspec.to_builtins(proof))
    else:
        print_text("\n".join(lines(proof)))
    raise typer.Exit(EXIT[proof.answer])


def _refuse(statuses: Mapping[str, Status]) -> None:
    """Raise DataError where nothing can be measured."""
    for name, status in statuses.items():
        if status.get("mode") != "on":
            raise DataError(f"engine {name} is in mode {status.get('mode')}: nothing to measure")
        if fault := audit_of(status).fault:
            raise DataError(f"engine {name}: the audit is off after {fault}")


def _switch(source: StatusSource, control: Path | None) -> Any:
    """Return what sends a request: over HTTP, or into a control file."""
    if control is None:
        return source.switch

    def write(request: dict[str, Any]) -> None:
        spare = control.with_name(f"{control.name}.{os.getpid()}.new")
        try:
            spare.write_bytes(msgspec.json.encode(request))
            spare.chmod(0o600)
            spare.replace(control)
        except OSError as error:
            raise DataError(f"{control}: {error.strerror}") from error

    return write


def _watch(source: StatusSource, first: str, seconds: float, at_least: float) -> Proof:
    """Read until the question is answered or the time is over; Ctrl-C ends with what is known."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    began = time.monotonic()
    proof = Proof(answer=OPEN, at_least=at_least, seconds=0.0)
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=seconds)
        try:
            while proof.seconds < seconds and proof.answer == OPEN:
                time.sleep(min(1.0, seconds))
                audits = [audit_of(status) for status in source.read().values()]
                # What an earlier proof has left is not this one's.
                audits = [audit for audit in audits if audit.proof_seconds_left > 0.0]
                proof = judged(audits, first, at_least, time.monotonic() - began, proof.course)
                said = f"{proof.arms.get(first, Gain())} over {TITLES.get(first, first)}"
                bar.update(task, completed=proof.seconds, description=said)
        except KeyboardInterrupt:
            pass
    return proof


def judged(
    audits: Iterable[AuditStatus],
    first: str,
    at_least: float,
    seconds: float,
    course: list[Moment],
) -> Proof:
    """Return what the engines have measured together.

    Args:
        audits: of each engine.
        first: arm that the question is about.
        at_least: gain that is asked for.
        seconds: since the beginning.
        course: the interval so far.
    """
    audits = list(audits)
    names = dict.fromkeys(arm for audit in audits for arm in audit.proof)
    arms = {arm: _together([a.proof[arm] for a in audits if arm in a.proof]) for arm in names}
    answer, found = OPEN, arms.get(first)
    if found is not None and found.low is not None and found.high is not None:
        assert found.gain is not None
        answer = YES if found.low >= at_least else NO if found.high < at_least else OPEN
        course = [*course, Moment(round(seconds, 1), found.gain, found.low, found.high)]
    return Proof(
        answer=answer,
        at_least=at_least,
        seconds=round(seconds, 1),
        arms=arms,
        left_out=sum(audit.off_cold for audit in audits) / max(len(audits), 1),
        handed_back=list(dict.fromkeys(load for audit in audits for load in audit.handed_back)),
        course=course,
    )


def _together(engines: list[ArmGain]) -> ArmGain:
    """Add up the sequences of engines; they measure the same arms on their own requests."""

    def added(gains: Iterable[Gain]) -> dict[str, Any]:
        both = Sequence()
        for gain in gains:
            both.add_all(Sequence(gain.sums))
        return figures(both)

    loads = dict.fromkeys(load for engine in engines for load in engine.by_load)
    by_load = {
        load: msgspec.convert(added(e.by_load[load] for e in engines if load in e.by_load), Gain)
        for load in loads
    }
    return msgspec.convert({**added(engines), "by_load": by_load}, ArmGain, from_attributes=True)


def lines(proof: Proof) -> list[str]:
    """Return the report as text."""
    found = [f"over {TITLES.get(arm, arm)}: {gain}" for arm, gain in proof.arms.items()] or [
        "no block yet: has the server any load?"
    ]
    for arm, gain in proof.arms.items():
        found += [
            f"  {load} requests per step, over {TITLES.get(arm, arm)}: {each}"
            for load, each in gain.by_load.items()
        ]
    found.append(
        f"{proof.confidence:.0%} intervals, which hold at all times at once; "
        f"{proof.seconds:.0f} s; the drafter was off in {proof.left_out:.0%} of the steps, which "
        "are not in it"
    )
    if "none" in proof.arms:
        found.append("no drafts: the drafter still ran the pass that keeps it in step")
    if proof.handed_back:
        found.append(f"the guard has handed back at {', '.join(proof.handed_back)} requests")
    said = {YES: "yes", NO: "no", OPEN: "not known within this time"}[proof.answer]
    return [*found, f"at least {proof.at_least:+.1%}: {said}"]


def page(proof: Proof) -> str:
    """Return the report as an HTML page that loads nothing from elsewhere."""
    rows = "".join(
        f"<tr><td>{escape(load)}</td><td>{escape(TITLES.get(arm, arm))}</td>"
        f"<td>{escape(str(each))}</td></tr>"
        for arm, gain in proof.arms.items()
        for load, each in {"all": gain, **gain.by_load}.items()
    )
    text = "".join(f"<p>{escape(line)}</p>" for line in lines(proof) if not line.startswith("  "))
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>adaptive-spec prove</title>'
        "<style>body{font:16px sans-serif;max-width:60em;margin:2em auto}"
        "td{padding:.2em 1em;border-bottom:1px solid #ccc}</style>"
        f"<h1>Measured gain</h1>{text}{_picture(proof)}<table><tr><th>requests per step</th>"
        f"<th>over</th><th>tokens per second</th></tr>{rows}</table></html>\n"
    )


def _picture(proof: Proof) -> str:
    """The interval over time, as SVG."""
    course = proof.course
    if len(course) < 2:
        return ""
    low = min(proof.at_least, *(each.low for each in course))
    high = max(proof.at_least, *(each.high for each in course))
    began, ended = course[0].seconds, course[-1].seconds

    def point(seconds: float, value: float) -> str:
        x = 600.0 * (seconds - began) / max(ended - began, 1e-9)
        return f"{x:.1f},{200.0 * (high - value) / max(high - low, 1e-9):.1f}"

    band = [point(each.seconds, each.high) for each in course]
    band += [point(each.seconds, each.low) for each in reversed(course)]
    middle = " ".join(point(each.seconds, each.gain) for each in course)
    asked = f"{point(began, proof.at_least)} {point(ended, proof.at_least)}"
    return (
        '<svg viewBox="0 -5 600 210" width="600" role="img"><title>interval over time</title>'
        f'<polygon points="{" ".join(band)}" fill="#9cc9ee"/>'
        f'<polyline points="{middle}" fill="none" stroke="#0b6fae" stroke-width="2"/>'
        f'<polyline points="{asked}" fill="none" stroke="#c33" stroke-dasharray="4"/></svg>'
        f"<p>{began:.0f} to {ended:.0f} s; from {low:+.1%} to {high:+.1%}; dashed: asked for</p>"
    )
