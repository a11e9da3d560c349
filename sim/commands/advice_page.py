"""Advice as one HTML page with charts, without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from math import log
from typing import TYPE_CHECKING

from adaptive_spec.sim.advice.setups import NO_SPECULATION
from adaptive_spec.sim.advice.verdict import measured_said
from adaptive_spec.sim.commands.advice_screen import METHOD, RECORDED, by_clients, recorded_rows
from adaptive_spec.sim.commands.printing import number

if TYPE_CHECKING:
    from adaptive_spec.sim.advice.values import Advice

_STYLE = """
:root { --text: #1b1f24; --soft: #667; --line: #d8dce2; --back: #fff; --a: #1769aa; --b: #c25a00; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8eb; --soft: #9aa3ad; --line: #343a42; --back: #15181c; --a: #6ab0ec;
          --b: #f0a35c; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
       max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .25rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; }
@media (max-width: 30rem) {
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
.answer { font-size: 1.15rem; font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--line);
      border-radius: 6px; padding: .6rem .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .7rem .2rem 0; text-align: right; border-bottom: 1px solid var(--line);
         font-weight: normal; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } th { color: var(--soft); }
.bar { display: grid; grid-template-columns: 8.5rem 1fr 4.5rem; gap: .6rem; align-items: center; }
.track { position: relative; height: 1.5rem; margin: 0 .5rem;
         border-bottom: 1px solid var(--line); }
.dot { position: absolute; top: .45rem; width: .6rem; height: .6rem; margin-left: -.3rem;
       border-radius: 50%; background: var(--a); }
.best .dot { background: var(--b); } .best { font-weight: 600; }
.span { position: absolute; top: .7rem; height: 2px; background: var(--text); }
.runs { position: absolute; top: 0; bottom: 0; border-left: 2px dashed var(--soft); }
.soft { color: var(--soft); }
svg { max-width: 32rem; } svg text { font-size: 12px; fill: var(--soft); }
polyline { fill: none; stroke: var(--a); stroke-width: 2; } circle { fill: var(--a); }
"""


def advice_page(advice: Advice) -> str:
    """Return the page."""
    verdict = advice.verdict
    first = [("Measured", measured_said(advice)), ("You run", verdict.runs)]
    rows = [*(row for row in first if row[1]), *verdict.answers]
    answers = "".join(
        f"<dt>{escape(question)}</dt><dd>{escape(text)}</dd>" for question, text in rows
    )
    parts = [
        f'<h1>Is speculation worth it here?</h1><p class="answer">{escape(verdict.sentence)}</p>',
        f"<dl>{answers}</dl>",
        *_lines(advice),
        *(f"<p>{escape(sentence)}</p>" for sentence in advice.memory),
        *_charts(advice),
        *_recorded(advice),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        """<meta http-equiv="Content-Security-Policy" """
        """content="default-src 'none'; style-src 'unsafe-inline'">"""
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>adaptive-spec advice</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _lines(advice: Advice) -> Iterable[str]:
    for place, name in enumerate(advice.verdict.recommended):
        lines = next(each.lines for each in advice.predictions if each.name == name)
        title = "Paste" if not place else "Or"
        yield f"<h2>{title}: {escape(name)}</h2><pre>{escape(chr(10).join(lines))}</pre>"


def _charts(advice: Advice) -> Iterable[str]:
    if not advice.predictions:
        return
    yield "<h2>Throughput over no speculation, all loads together</h2>"
    yield from _dots(advice)
    yield f'<p class="soft">{escape(METHOD)}</p>'
    yield "<h2>By requests at a time</h2>"
    none = advice.predictions[0].by_load
    rows = []
    for each in advice.predictions:
        gains = [f"{own / other:.2f}" for own, other in zip(each.by_load, none, strict=True)]
        if each.name == NO_SPECULATION:
            gains = [f"{number(own)} tok/s" for own in each.by_load]
        rows.append([each.name, *gains, *(number(value) for value in each.tpot_ms)])
    loads = [f"at {load.clients}" for load in advice.loads]
    yield _table(["set-up", *loads, "TPOT p50 ms", "p99 ms"], rows)
    yield "<h2>Best fixed K by requests at a time</h2>"
    yield _best_k(advice)
    yield f"<p>{escape(by_clients(advice))}</p>"
    if advice.what_if:
        yield "<h2>Under other traffic, over no speculation</h2>"
        cells = [
            [each.name, f"{each.native:.2f}", f"{each.ours:.2f}", f"{each.ours / each.native:.3f}"]
            for each in advice.what_if
        ]
        yield _table(["change", advice.native, "plugin", "plugin over it"], cells)


def _dots(advice: Advice) -> Iterable[str]:
    """A dot with its interval for each set-up, on an axis of ratios; a line at what runs."""
    intervals = [each.interval for each in advice.predictions if each.interval]
    ends = [each.gain for each in advice.predictions]
    ends += [end for each in intervals for end in (each.low, each.high) if end > 0.0]
    least, width = log(min(ends)), max(log(max(ends)) - log(min(ends)), 1e-9)

    def place(ratio: float) -> float:
        return 100.0 * (log(ratio) - least) / width if ratio > 0.0 else 0.0

    runs = [each.gain for each in advice.predictions if each.name == advice.runs]
    line = "".join(f'<div class="runs" style="left:{place(gain):.1f}%"></div>' for gain in runs)
    best = advice.verdict.recommended[0]
    for each in advice.predictions:
        span = ""
        if each.interval is not None:
            low, high = place(each.interval.low), place(each.interval.high)
            span = f'<div class="span" style="left:{low:.1f}%;width:{high - low:.1f}%"></div>'
        yield (
            f'<div class="bar{" best" if each.name == best else ""}"><span>{escape(each.name)}'
            f'</span><div class="track">{line}{span}<div class="dot" '
            f'style="left:{place(each.gain):.1f}%"></div></div><span>{each.gain:.2f}</span></div>'
        )
    dashed = f"Dashed: what you run, {escape(advice.runs)}. " if runs else ""
    yield f'<p class="soft">{dashed}Ratios, on a logarithmic axis.</p>'


def _best_k(advice: Advice) -> str:
    """A line through the best fixed K (0: none pays) of each load, the loads equally apart."""
    best = [0 if each.gain <= 1.0 else each.best_k for each in advice.by_clients]
    across = [60 + 400 * place / max(len(best) - 1, 1) for place in range(len(best))]
    down = [110 - 90 * k / advice.kmax for k in best]
    points = list(zip(across, down, strict=True))
    marks = "".join(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4"/>' for x, y in points)
    loads = "".join(
        f'<text x="{x:.0f}" y="140" text-anchor="middle">{each.clients}</text>'
        for x, each in zip(across, advice.by_clients, strict=True)
    )
    levels = "".join(
        f'<text x="40" y="{114 - 90 * k / advice.kmax:.0f}" text-anchor="end">K = {k}</text>'
        for k in range(advice.kmax + 1)
        if k in (0, advice.kmax) or k in best
    )
    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
    said = ", ".join(
        f"{each.clients}: {k}" for each, k in zip(advice.by_clients, best, strict=True)
    )
    return (
        f'<svg viewBox="0 0 500 150" role="img" aria-label="best K by load: {said}">'
        f'<polyline points="{path}"/>{marks}{loads}{levels}</svg>'
    )


def _recorded(advice: Advice) -> Iterable[str]:
    yield "<h2>What was recorded</h2>"
    yield _table(RECORDED, recorded_rows(advice))
    yield "<h2>Acceptance by draft position</h2>"
    positions = [f"draft {j + 1}" for j in range(advice.kmax)]
    rates = [
        [
            f"{kind.name} ({kind.requests:,})",
            *("–" if rate is None else f"{rate:.2f}" for rate in kind.by_position),
        ]
        for kind in advice.kinds
    ]
    yield _table(["requests", *positions], rates)
    if advice.fit is not None:
        yield (
            f'<p class="soft">Step times: {advice.fit.steps:,} steps, median error '
            f"{advice.fit.median_error:.1%}.</p>"
        )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'
