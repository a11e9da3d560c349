"""Runs cells with and without a mechanism, and keeps what came out.

Both meet the same requests and the same luck, so a gain is a difference within one seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from adaptive_spec.policies.goodput import GoodputOptions, GoodputPolicy
from adaptive_spec.sim import measurements, scenario
from adaptive_spec.sim.sweep.cells import Cell, Files, plan_cells
from adaptive_spec.sim.sweep.config import (
    AcceptanceSet,
    Group,
    LoadEntry,
    SweepConfig,
    load_sweep_config,
)
from benchmarks.ablation.hardware import fake_hardware
from benchmarks.ablation.switch import Row, Switch

HERE = Path(__file__).resolve().parent
USUAL = ("h100-llama-8b", "default")
TIMED, TIMED_TOKENS, TIMED_REPEATS = ("mixed, AUC .85", "closed:64"), 30_000, 5
"""Where decisions are timed: with confidence, so that all that may run does."""


class Run(msgspec.Struct, frozen=True):
    """One policy on one cell and seed.

    Attributes:
        score: throughput, or 1 / mean TPOT [1 / ms] where requests arrive by themselves.
        decision_us: median time of a decision, on this machine, whatever else ran there.
        kept: share of the requests with a TPOT target that kept it; None: there are none.
    """

    score: float
    decision_us: float
    kept: float | None = None


class Store(msgspec.Struct):
    """What was measured.

    Attributes:
        whole: by cell, runs of the whole policy.
        without: by switch and cell, runs without the mechanism.
        decision_us: by switch, what the mechanism adds to the median time of a decision.
    """

    whole: dict[str, list[Run]] = {}
    without: dict[str, dict[str, list[Run]]] = {}
    decision_us: dict[str, float] = {}

    def save(self, file: Path) -> None:
        """Write it, all or nothing."""
        part = file.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(self) + b"\n")
        part.replace(file)


def measure(
    switches: list[Switch],
    mixed: tuple[Row, ...],
    seeds: int,
    store: Store,
    done: Callable[[Switch], None],
) -> None:
    """Run what `store` lacks; `done` is called after each switch.

    Where a mixed cell's first seed comes out the same to the last bit, the mechanism does not act
    there, and its other seeds are not run.
    """
    with _extended_simulator():
        for switch in switches:
            ours = store.without.setdefault(switch.name, {})
            rows = dict.fromkeys((*switch.cells, *(mixed if switch.spread else ())))
            for row in rows:
                cells = cells_of(row, seeds)
                text = text_of(row)
                if text not in store.whole or len(store.whole[text]) < seeds:
                    store.whole[text] = [_run(cell, {}) for cell in cells]
                if text in ours and len(ours[text]) >= seeds:
                    continue
                whole, runs = store.whole[text], []
                with nullcontext() if switch.added else switch.applied():
                    for cell in cells:
                        runs.append(_run(cell, switch.options))
                        idle = row not in switch.cells and runs[0].score == whole[0].score
                        if idle:
                            runs = whole
                            break
                ours[text] = list(runs)
            if switch.name not in store.decision_us:
                store.decision_us[switch.name] = _decision_time(switch)
            done(switch)


def text_of(row: Row) -> str:
    """For people, and as a key."""
    return ", ".join(row)


def cells_of(row: Row, seeds: int) -> list[Cell]:
    """The runs of a row. Raises ValueError if it names none."""
    acceptance, load, hardware, engine = (*row, *USUAL[len(row) - 2 :])
    group = Group(
        acceptance=(acceptance,), loads=(load,), hardware=(hardware,), engine_variants=(engine,)
    )
    config = msgspec.structs.replace(_config(), groups={"": group}, seeds=seeds)
    cells = list(plan_cells(config, Files(HERE.parent)))
    if len(cells) != seeds:
        raise ValueError(f"{len(cells)} runs of {row}, not {seeds}")
    return cells


@cache
def _config() -> SweepConfig:
    """The leaderboard's, and what is in `extra.yaml`."""
    config = load_sweep_config(HERE.parent / "leaderboard.yaml")
    extra: dict[str, Any] = msgspec.yaml.decode((HERE / "extra.yaml").read_bytes())
    more = msgspec.convert(extra["acceptance"], dict[str, AcceptanceSet])
    loads = msgspec.convert(extra["loads"], tuple[LoadEntry, ...])
    return msgspec.structs.replace(
        config,
        acceptance={**config.acceptance, **more},
        hardware=(*config.hardware, *extra["hardware"]),
        loads=(*config.loads, *loads),
        engine_variants={**config.engine_variants, **extra["engine_variants"]},
    )


def _run(cell: Cell, options: dict[str, Any]) -> Run:
    _KEPT.clear()
    policy = GoodputPolicy(msgspec.convert(options, GoodputOptions), seed=cell.scenario.seed)
    result = cell.scenario.run(policy, "goodput")
    if result.fail_opens:
        raise RuntimeError(f"{cell.name.text}: {result.fail_opens} fail-opens")
    return Run(
        result.score(closed=cell.scenario.closed),
        result.decision_us.p50 or 0.0,
        sum(_KEPT) / len(_KEPT) if _KEPT else None,
    )


def _decision_time(switch: Switch) -> float:
    """Microseconds that the mechanism adds, by the least disturbed of short runs in turn."""
    cell = cells_of(TIMED if switch.spread else switch.cells[0], 1)[0]
    short = msgspec.structs.replace(cell.scenario, tokens=TIMED_TOKENS, warmup_tokens=0)
    cell = msgspec.structs.replace(cell, scenario=short)
    with_it, without = [], []
    for _ in range(TIMED_REPEATS):
        with_it.append(_run(cell, switch.options if switch.added else {}).decision_us)
        with nullcontext() if switch.added else switch.applied():
            without.append(_run(cell, {} if switch.added else switch.options).decision_us)
    return min(with_it) - min(without)


_KEPT: list[bool] = []
"""Of the requests with a TPOT target that have ended in this run: which of them kept it."""


class _Watched(measurements.Measurements):
    """Looks at the target of each request that ends, too."""

    def reset(self, now: float) -> None:
        _KEPT.clear()
        super().reset(now)

    def ended(self, request: Any, now: float) -> None:
        super().ended(request, now)
        tokens, target = request.request.output_tokens - 1, request.request.tpot_target
        if tokens and target < float("inf"):
            _KEPT.append((now - request.first_token) / tokens <= target)


@contextmanager
def _extended_simulator() -> Iterator[None]:
    """With our hardware, and with measurements that look at targets."""
    with (
        patch.object(scenario, "find_hardware", fake_hardware),
        patch("adaptive_spec.sim.engine.Measurements", _Watched),
    ):
        yield
