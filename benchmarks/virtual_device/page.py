"""docs/measured.md and the table of README, from the cells."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from .arms import BOTH, GOODPUT, NONE, SGLANG_LIST, SGLANG_RULE, STATIC, TABLE, warm
from .cells import COLD_STEPS, Cell
from .device import DEVICES, device
from .pictures import by_load
from .simulated_rows import SimulatedRow
from .sweep import POLICIES

WARM = warm(GOODPUT)
NAMES = {
    "draft_model": "draft model",
    "draft_poor": "poor draft model",
    "mtp": "MTP",
    "eagle": "EAGLE",
    "eagle3": "EAGLE-3",
    "ngram": "n-gram",
    "suffix": "suffix",
}
PICTURE = "measured.svg"
HEAD = """\
# Measured: a real vLLM on the clock of a modelled GPU

A real vLLM 0.32.0 with adaptive-spec runs these figures: its scheduler, model runner, drafter and
rejection, on a CPU, with small trained models that draft real text
([benchmarks/bench_pair](../benchmarks/bench_pair/README.md)). Only time is modelled. When the
results of a step arrive, the clock has advanced by what that step takes on the device, and
adaptive-spec reads that clock. No figure of this page was measured on a GPU.

```sh
make bench                                    # about an hour on two idle cores (estimate)
python -m benchmarks.virtual_device --quick   # some minutes
python -m benchmarks.virtual_device --sections arrivals --arrivals azure.csv    # of a trace
python -m benchmarks.virtual_device --device my_profile.json --sections main    # a device of yours
```

**Charged** is what ran, step by step, at the simulator's price list of the device
(`sim/hardware/profiles`; for the H100 with Llama 3.1 8B the published coefficients of
SpecDecode-Bench, for the others rooflines,
[how far to trust them](simulator.md#how-far-to-trust-the-figures)): tokens of the target's pass
padded to captured graph sizes, tokens in the KV cache, prompt tokens, executed
passes of the drafter and the requests in them, host time of the engine as the profile holds it. A
drafter's pass that keeps it in step at K = 0 is charged; a pass that was planned but did not run
is not. **Not charged** is the computing time of adaptive-spec itself ([vllm.md](vllm.md) has it);
graphs take any mix of K at no extra cost, unless a table says otherwise.

Greedy decoding gives every arm the same tokens, which the command checks for each request, so
that arms differ in virtual time alone. The same seed gives the same figures. Requests have some
twenty prompt tokens and 64 output tokens, five kinds of text are mixed, Kmax is 6, the number of
clients is constant. **Best static K** is the fastest of K = 1 to 6 for that very cell, known
afterwards. **Table** is vLLM's K by batch size, tuned on the same cells. **Cold** is a policy
that has learned nothing, from its first step on, over 150 steps or more ({cold} where the load
is shorter); **warm** is the same policy afterwards, in the steady part of the load.
"""
SGLANG_TEXT = """\
SGLang 0.5.23: its `Scheduler` as its process builds it (queue, batches, KV pool, results), its
EAGLE and STANDALONE workers with all their passes, its adaptive controller and parameters, and
adaptive-spec by SGLang's own hooks. Not real: its compiled operators, which the tests' stand-in
has in PyTorch, captured graphs, and the tokenizer's and HTTP processes. The loop is the plain one,
without overlap. A batch has one K, a prompt runs in a step of its own, and K = 0 keeps the drafter
in step. **SGLang's rule** is `--speculative-adaptive` with its default candidates, launched at
K = 3, for EAGLE only; **one list** is the same rule with K = 0 to 6 at every batch size, which is
what the static K and adaptive-spec have. adaptive-spec changes K at most once in 8 steps on average
(its default) and reads no confidence. A deeper K ends more requests in a step, so that more
prompts share a batch of prompts; adaptive-spec counts the time that this saves. Which requests end
together is chance: at 16 clients it moves the rate of a static K by up to 3 %, and the best of six
is a lucky one.
"""
TAIL = """\
## In wall-clock time

```sh
make demo
```

starts real servers on your own machine, one after the other under the same load, and prints
tokens per second by the clock (an earlier run: `benchmarks/results/demo.json`). Steps of a CPU
take a tenth of a second and repeats differ by several per cent, so it shows that speculation
follows the load, and not what adaptive-spec is worth on a GPU.

Files: `benchmarks/results/virtual_device.json`, `benchmarks/results/virtual_device_others.json`
(SGLang, two sources), `benchmarks/results/virtual_device_simulated.json`. SGLang's rows
with EAGLE and with the mixture of experts at 128 clients, and the single sources beside "both",
were run before step times became a belief ([how it decides](how_it_decides.md)); everything else
was run with it.
"""


def write_page(path: Path, found: Sequence[Cell], simulated: Sequence[SimulatedRow] = ()) -> None:
    """Write docs/measured.md and its picture."""
    picture = path.parent / "images" / PICTURE
    picture.write_text(by_load(_of(found, "main"), _title, NAMES), encoding="utf-8")
    parts = [HEAD.format(cold=COLD_STEPS), *_main(found), *_sections(found)]
    if simulated:
        parts += _simulated(simulated)
    path.write_text("\n".join([*map(_wrapped, parts), TAIL]), encoding="utf-8")


def readme_table(found: Sequence[Cell]) -> str:
    """The rows of README: one for each device."""
    main = _of(found, "main")
    rows = []
    for name in dict.fromkeys(cell.device for cell in main):
        cells = [cell for cell in main if cell.device == name]
        drafters = dict.fromkeys(NAMES[cell.key.method] for cell in cells)
        loads = [int(cell.key.load) for cell in cells]
        for over, ratio in (
            ("no speculation", _over(WARM, NONE)),
            ("best static K of each cell, in hindsight", _over_best(WARM)),
            ("vLLM's table, tuned on the same cells", _over(WARM, TABLE)),
        ):
            rows.append(
                [
                    f"{_title(name)}: {', '.join(drafters)}, {min(loads)} to {max(loads)} clients",
                    over,
                    _summary(_ratios(cells, ratio)),
                ]
            )
    return _table(["real vLLM 0.32, clock of a modelled device", "adaptive-spec over", ""], rows)


def terminal_table(found: Sequence[Cell]) -> str:
    """A line for each cell."""
    lines = [
        f"{'section':12s} {'drafter':12s} {'device':9s} {'load':>8s} {'kind':6s} best  "
        "cold/best warm/best cold/none warm/none warm/table"
    ]
    ratios = (
        _over_best(GOODPUT),
        _over_best(WARM),
        _over(GOODPUT, NONE),
        _over(WARM, NONE),
        _over(WARM, TABLE),
    )
    for cell in found:
        key = cell.key
        known = [ratio(cell) for ratio in ratios]
        shown = [f"{each:9.3f}" if each else "        -" for each in known]
        lines.append(
            f"{cell.section:12s} {key.method:12s} {cell.device:9s} {key.load:>8s} {key.kind:6s} "
            f"{_best(cell):>4s} {' '.join(shown)}"
            + (f"  DIFFERENT {cell.different}" if cell.different else "")
        )
    return "\n".join(lines)


# --------------------------------------------------------------------------------- the page


Ratio = Callable[[Cell], float | None]


def _over_best(arm: str) -> Ratio:
    def ratio(cell: Cell) -> float | None:
        known = arm in cell.arms and any(each in cell.arms for each in STATIC)
        return cell.over_best(arm) if known else None

    return ratio


def _over(arm: str, other: str) -> Ratio:
    def ratio(cell: Cell) -> float | None:
        return cell.over(arm, other) if arm in cell.arms and other in cell.arms else None

    return ratio


Column = tuple[str, Callable[[Cell], str]]


def _figure(head: str, ratio: Ratio) -> Column:
    return head, lambda cell: _number(ratio(cell))


DRAFTER: Column = "drafter", lambda cell: NAMES[cell.key.method]
DEVICE: Column = "device", lambda cell: _title(cell.device)
CLIENTS: Column = "clients", lambda cell: cell.key.load
BEST: Column = (
    "best static K: over none",
    lambda cell: f"{_best(cell)}: {_number(_over(_best(cell), NONE)(cell))}",
)
COLD_BEST = _figure("cold / best", _over_best(GOODPUT))
WARM_BEST = _figure("warm / best", _over_best(WARM))
COLD_NONE = _figure("cold / none", _over(GOODPUT, NONE))
WARM_NONE = _figure("warm / none", _over(WARM, NONE))
WARM_TABLE = _figure("warm / table", _over(WARM, TABLE))
MEAN_K: Column = (
    "mean K",
    lambda cell: f"{cell.arms[WARM].verified:.1f}" if WARM in cell.arms else "",
)
OFF_COLD: Column = (
    "OFF-cold",
    lambda cell: f"{100 * cell.arms[WARM].off_cold:.0f} %" if WARM in cell.arms else "",
)
PLAIN = (DRAFTER, DEVICE, CLIENTS, BEST, COLD_BEST, WARM_BEST, WARM_NONE)


class Table(NamedTuple):
    """A table of the page: the cells of sections, under a title and a text."""

    sections: tuple[str, ...]
    title: str
    text: str
    columns: tuple[Column, ...]


TABLES = (
    Table(
        ("no-gain",),
        "A drafter that does not pay",
        "The draft model with noise on its weights: few drafts are accepted. Without drafts "
        "adaptive-spec leaves the drafter's pass out (OFF-cold).\n",
        (CLIENTS, BEST, COLD_NONE, WARM_NONE, OFF_COLD),
    ),
    Table(
        ("granularity",),
        "Without confidence, and with one K per batch",
        "Warm, over the best static K. *History*: the drafter's confidence is not read. *One K*: "
        "all requests of a batch share K, as where graphs are captured for uniform batches only.\n",
        (
            DRAFTER,
            CLIENTS,
            _figure("K per request", _over_best(WARM)),
            _figure("history", _over_best(warm("history"))),
            _figure("one K", _over_best(warm("one-k"))),
        ),
    ),
    Table(
        ("graphs",),
        "K per request in full graphs",
        "adaptive-spec with K per request (varlen graphs) over one K per batch, out of the ladder "
        "that is captured where attention refuses varlen graphs. Both pad to captured sizes.\n",
        (
            DRAFTER,
            DEVICE,
            CLIENTS,
            _figure("cold", _over("varlen", "ladder")),
            _figure("warm", _over(warm("varlen"), warm("ladder"))),
        ),
    ),
    Table(
        ("ramp",),
        "A load that changes: 1, 16, 256, 16, 1 clients",
        "From a cold start, over the whole load.\n",
        (DRAFTER, BEST, COLD_BEST, COLD_NONE),
    ),
    Table(
        ("arrivals",),
        "Arrivals of a trace",
        "The first requests of a public trace, `--arrivals FILE`, sped up to the mean rate that "
        "the load names, their bursts kept. Tokens per second of a single request, from its "
        "arrival to its end, as all arms keep up.\n",
        (DRAFTER, ("load", CLIENTS[1]), BEST, COLD_BEST, WARM_BEST, COLD_NONE, WARM_NONE),
    ),
    Table(
        ("policies",),
        "Other policies",
        "Warm, over the best static K (draft model).\n",
        (CLIENTS, *(_figure(n, _over_best(warm(f"policy:{n}"))) for n in POLICIES)),
    ),
    Table(("eagle",), "EAGLE", "", PLAIN),
    Table(("suffix",), "Suffix decoding, against its own K (Kmax 6)", "", PLAIN),
    Table(("async",), "Asynchronous scheduling", "", PLAIN),
    Table(("v2",), "Model runner V2, its kernels in Triton's interpreter", "", PLAIN),
    Table(
        ("kinds",),
        "One kind of text at a time, 16 clients",
        "",
        (DRAFTER, DEVICE, ("text", lambda cell: cell.key.kind), *PLAIN[3:]),
    ),
    Table(("devices",), "Other devices", "", PLAIN),
    Table(
        ("sglang", "sglang-eagle"),
        "SGLang's scheduler on the same clock",
        SGLANG_TEXT,
        (
            *PLAIN[:4],
            _figure("SGLang's rule / best", _over_best(SGLANG_RULE)),
            _figure("its rule, one list / best", _over_best(SGLANG_LIST)),
            *PLAIN[4:],
        ),
    ),
)


def _main(found: Sequence[Cell]) -> Iterator[str]:
    main = _of(found, "main")
    bars = (
        ("best static K, cold", _over_best(GOODPUT)),
        ("best static K, warm", _over_best(WARM)),
        ("no speculation, cold", _over(GOODPUT, NONE)),
        ("no speculation, warm", _over(WARM, NONE)),
        ("vLLM's table, tuned on the same cells, warm", _over(WARM, TABLE)),
    )
    names = list(dict.fromkeys(cell.device for cell in main))
    rows = [
        [title, *(_summary(_ratios([c for c in main if c.device == n], ratio)) for n in names)]
        for title, ratio in bars
    ]
    yield "## In short\n"
    yield _table(["adaptive-spec over", *map(_title, names)], rows) + "\n"
    yield "Geometric mean of the cells below, and the worst of them.\n"
    yield f"![Tokens per second over no speculation by number of clients](images/{PICTURE})\n"
    columns = (DRAFTER, CLIENTS, BEST, COLD_BEST, WARM_BEST, WARM_NONE, WARM_TABLE, MEAN_K)
    for name in names:
        yield f"## {_title(name)}\n"
        yield _rows([cell for cell in main if cell.device == name], columns)


def _sections(found: Sequence[Cell]) -> Iterator[str]:
    for table in TABLES:
        cells = [cell for section in table.sections for cell in _of(found, section)]
        if not cells:
            continue
        yield f"## {table.title}\n"
        if table.text:
            yield table.text
        yield _rows(cells, table.columns)
        if "sglang" in table.sections:
            shown = [
                f"{title} {_summary(_ratios(cells, _over_best(arm)))}"
                for title, arm in (
                    ("SGLang's rule", SGLANG_RULE),
                    ("with one list", SGLANG_LIST),
                    ("adaptive-spec cold", GOODPUT),
                    ("warm", WARM),
                )
            ]
            yield f"Over the best static K: {'; '.join(shown)}.\n"
    yield from _two_sources(found)
    if cells := _of(found, "sampled"):
        yield "## Sampled, temperature 0.8\n"
        yield (
            "Probabilistic drafts. Tokens differ from arm to arm, so chance counts: mean and "
            "standard deviation over the seeds.\n"
        )
        rows = []
        for load in dict.fromkeys(cell.key.load for cell in cells):
            same = [cell for cell in cells if cell.key.load == load]
            ratios = (_over_best(GOODPUT), _over_best(WARM), _over(WARM, NONE))
            rows.append([load, *(_spread(_ratios(same, ratio)) for ratio in ratios)])
        yield _table(["clients", "cold / best", "warm / best", "warm / none"], rows) + "\n"


def _rows(cells: Sequence[Cell], columns: Sequence[Column]) -> str:
    heads = [head for head, _ in columns]
    return _table(heads, [[shown(cell) for _, shown in columns] for cell in cells]) + "\n"


def _two_sources(found: Sequence[Cell]) -> Iterator[str]:
    alone = {
        (cell.key.load, cell.key.kind): cell.arms
        for cell in found
        if cell.section == "suffix-alone" and {GOODPUT, WARM} <= cell.arms.keys()
    }
    rows = []
    for cell in (cell for cell in found if cell.section == "two-sources"):
        suffix = alone.get((cell.key.load, cell.key.kind))
        if suffix is None or not {BOTH, warm(BOTH)} <= cell.arms.keys():
            continue
        # The head alone may not have been run, where look-ups are far better.
        head = {arm: figures.whole for arm, figures in cell.arms.items()}
        rates = [head.get(WARM, 0.0), suffix[WARM].whole, head[warm(BOTH)]]
        cold = head[BOTH] / max(head.get(GOODPUT, 0.0), suffix[GOODPUT].whole)
        ratios = [_number(cold), _number(rates[2] / max(rates[:2]))]
        off = f"{100 * cell.arms[warm(BOTH)].off_cold:.0f} %"
        shown = [f"{rate:,.0f}" if rate else "" for rate in rates]
        rows.append([cell.key.kind, cell.key.load.split()[0], *shown, *ratios, off])
    if not rows:
        return
    yield "## Two sources of drafts\n"
    yield (
        "Every prompt is asked twice, and a request may copy from others' answers "
        "(`second_source.other_requests`). Tokens per second over the whole load, as its second "
        "half is known text, warm: the MTP head alone, vLLM's suffix decoding alone (both under "
        "adaptive-spec), and the two together; then both over the better one, cold and warm, and "
        "the steps without the drafter's pass.\n"
    )
    heads = ["text", "clients", "MTP", "suffix", "both", "cold / better", "warm / better"]
    yield _table([*heads, "OFF-cold"], rows) + "\n"


def _simulated(rows: Sequence[SimulatedRow]) -> Iterator[str]:
    yield "## The simulator against the real engine\n"
    yield (
        "`python -m benchmarks.virtual_device.simulated` gives the simulator the same requests, "
        "charged by the same device; the draft model drafts from every position of vLLM's own "
        "text, and what follows in the text is accepted. Static K is vLLM's own, which also "
        "verifies drafts beyond the end of a request (`drafts_past_end`); adaptive-spec trims "
        "them, and learns from a step when the next one has been launched. Error of its tokens per "
        "second:\n"
    )
    arms = list(dict.fromkeys(row.arm for row in rows))
    lines = []
    for name, clients in dict.fromkeys((row.device, row.clients) for row in rows):
        errors = {r.arm: r.error for r in rows if (r.device, r.clients) == (name, clients)}
        shown = [f"{100 * errors[arm]:+.1f} %" if arm in errors else "" for arm in arms]
        lines.append([_title(name), str(clients), *shown])
    yield _table(["device", "clients", *arms], lines) + "\n"


# ---------------------------------------------------------------------------------- its parts


def _of(found: Sequence[Cell], section: str) -> list[Cell]:
    """Cells of a section whose arms have been run so far that there is something to show."""
    cells = [cell for cell in found if cell.section == section]
    return [cell for cell in cells if any(arm in cell.arms for arm in STATIC)]


def _wrapped(part: str) -> str:
    """Prose of one line, wrapped; tables and headings as they are."""
    if part.startswith(("#", "|")) or len(part) <= 100 or "\n" in part.strip():
        return part
    return textwrap.fill(part, 100, break_on_hyphens=False) + "\n"


def _ratios(cells: Sequence[Cell], ratio: Ratio) -> list[float]:
    return [found for cell in cells if (found := ratio(cell)) is not None]


def _summary(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    middle = math.exp(mean(map(math.log, ratios)))
    return f"{middle:.3f}, worst {min(ratios):.3f} ({len(ratios)} cells)"


def _spread(ratios: Sequence[float]) -> str:
    if len(ratios) < 2:
        return _number(ratios[0] if ratios else None)
    return f"{mean(ratios):.3f} ± {stdev(ratios):.3f}"


def _best(cell: Cell) -> str:
    return cell.best_k if any(arm in cell.arms for arm in STATIC) else "-"


def _number(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}"


def _title(name: str) -> str:
    return DEVICES[name].title if name in DEVICES else device(name).title


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
