"""Advice as one HTML page with charts, without scripts and without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from adaptive_spec.sim.advice.setups import NO_SPECULATION
from adaptive_spec.sim.commands.advice_screen import METHOD, by_clients
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
.answer { font-size: 1.15rem; font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--line);
      border-radius: 6px; padding: .6rem .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .7rem .2rem 0; text-align: right; border-bottom: 1px solid var(--line);
         font-weight: normal; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; } th { color: var(--soft); }
.bar { display: grid; grid-template-columns: 8.5rem 1fr 4.5rem; gap: .6rem; align-items: center; }
.track { position: relative; height: 1rem; background: color-mix(in srgb, var(--line) 50%, #0000); }
.fill { position: absolute; inset: 0 auto 0 0; background: var(--a); }
.best .fill { background: var(--b); } .best { font-weight: 600; }
.span { position: absolute; top: 45%; height: 2px; background: var(--text); }
.soft { color: var(--soft); }
"""


def advice_page(advice: Advice) -> str:
    """Return the page."""
    verdict = advice.verdict
    answers = "".join(
        f"<dt>{escape(question)}</dt><dd>{escape(text)}</dd>" for question, text in verdict.answers
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
    most = max(each.gain for each in advice.predictions)
    most = max([most, *(each.interval.high for each in advice.predictions if each.interval)])
    best = advice.verdict.recommended[0]
    yield "<h2>Throughput over no speculation, all loads together</h2>"
    for each in advice.predictions:
        span = ""
        if each.interval is not None:
            low, high = 100 * each.interval.low / most, 100 * each.interval.high / most
            span = f'<div class="span" style="left:{low:.1f}%;width:{high - low:.1f}%"></div>'
        yield (
            f'<div class="bar{" best" if each.name == best else ""}"><span>{escape(each.name)}'
            f'</span><div class="track"><div class="fill" style="width:{100 * each.gain / most:.1f}'
            f'%"></div>{span}</div><span>{each.gain:.2f}</span></div>'
        )
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
    yield f"<p>{escape(by_clients(advice))}</p>"
    if advice.what_if:
        yield "<h2>Under other traffic, over no speculation</h2>"
        cells = [
            [each.name, f"{each.native:.2f}", f"{each.ours:.2f}", f"{each.ours / each.native:.3f}"]
            for each in advice.what_if
        ]
        yield _table(["change", advice.native, "plugin", "plugin over it"], cells)


def _recorded(advice: Advice) -> Iterable[str]:
    yield "<h2>What was recorded</h2>"
    rows = [
        [
            str(load.clients or "all"),
            f"{load.share:.0%}",
            number(load.tokens_per_second),
            f"{load.mean_k:.2f}",
            "–" if load.acceptance is None else f"{load.acceptance:.0%}",
            number(load.step_ms),
        ]
        for load in (*advice.loads, advice.overall)
    ]
    yield _table(["requests", "share of time", "tokens/s", "mean K", "accepted", "step ms"], rows)
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
