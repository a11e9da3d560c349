"""What an operator's engine runs without this package: as the trace has it, or as stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import DECODE_ERRORS, read_small_file
from adaptive_spec.errors import ConfigError, PolicyError
from adaptive_spec.policy import build_policy
from adaptive_spec.sim.advice.setups import SetUp, static

Counts = Mapping[int, Counter[int]]
"""How often each K occurred, by batch size."""

_BY_SIZE = 0.9
"""Share of the steps that K by batch size must explain."""
_LEAST_SHARE = 0.01
"""Batch sizes of a range with a smaller share of the steps belong to the range before it."""
_TABLE = "num_speculative_tokens_per_batch_size"
_FORMS = (
    "expected K, a file, or JSON: vLLM's --speculative-config or its [[first, last, K], ...], "
    'SGLang\'s {"1": {"candidate_steps": [...]}, ...}, or TensorRT-LLM\'s {"last": K, ...}'
)


def recorded(engine_k: Counts, kmax: int, engine: str) -> SetUp | None:
    """Return the engine's own K or table, by what it would have run in each step.

    Args:
        engine_k: of each step; empty in traces of older versions.
        kmax: what such a trace is taken to have had.
        engine: of `doctor_rows.ENGINES`.

    Returns None where K follows something else than the batch size.
    """
    every = sum(engine_k.values(), Counter[int]())
    total = every.total()
    if not total:  # older traces do not say: most servers run one K
        return static(kmax, engine)
    common = {size: counts.most_common(1)[0] for size, counts in sorted(engine_k.items())}
    if sum(count for _, count in common.values()) < _BY_SIZE * total:
        return None
    table: list[list[int]] = []
    steps = 0
    for size, (k, _) in common.items():
        # A range that hardly ran says nothing: its sizes go to the range before it.
        if table and table[-1][2] != k and steps < _LEAST_SHARE * total:
            table.pop()
        if not table or table[-1][2] != k:
            table.append([table[-1][1] + 1 if table else 1, size, k])
            steps = 0
        table[-1][1] = size
        steps += engine_k[size].total()
    if len(table) > 1 and steps < _LEAST_SHARE * total:
        table.pop()
    if len(table) == 1:
        return static(table[0][2], engine)
    # SGLang's table moves by what was accepted, unless this package decides in its place.
    return None if engine == "sglang" else _table(table)


def stated(text: str, kmax: int, engine: str) -> SetUp:
    """Return the set-up that an operator names.

    Args:
        text: as `_FORMS` says.
        kmax: the largest K that can be predicted.
        engine: of `doctor_rows.ENGINES`.

    Raises ConfigError saying what was not understood.
    """
    try:
        found = msgspec.json.decode(text)
    except DECODE_ERRORS:
        raise ConfigError(f"--runs {_shown(text)}: {_FORMS}") from None
    try:
        made = _parsed(found, engine)
        build_policy(made.policy, made.options, baselines=True)
    except (PolicyError, TypeError, ValueError) as error:
        said = str(error).partition(": ")[2] if isinstance(error, PolicyError) else ""
        raise ConfigError(f"--runs {_shown(text)}: {said or _FORMS}") from error
    if not 0 < _largest_k(made) <= kmax:
        raise ConfigError(f"--runs {_shown(text)}: K is 1 to {kmax}, the largest K of the trace")
    return made


def read_stated(text: str) -> str:
    """Return the option's text, or the content of the file that it names.

    Raises ConfigError if the file cannot be read.
    """
    if text.lstrip()[:1] in "[{" or text.strip().isdigit():
        return text
    try:
        return read_small_file(Path(text), 1 << 20).decode("utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"--runs {_shown(text)}: {error.strerror}; {_FORMS}") from error


def share_that_ran(set_up: SetUp, ran: Counts) -> float:
    """Return the share of the steps of requests that ran what the set-up would have run."""
    total = sum(counts.total() for counts in ran.values())
    same = 0
    for size, counts in ran.items():
        k = set_up.fixed_k(max(size, 1))
        same += counts.total() if k is None else counts[k]
    return same / max(total, 1)


def described(set_up: SetUp) -> str:
    """Say a set-up in words."""
    options = set_up.options
    if set_up.policy == "static":
        return f"K = {options['k']} at every load"
    if set_up.policy == "sglang_ema":
        tiers = [
            f"{each['candidate_steps']} from {each['batch_size']}" for each in options["tiers"]
        ]
        return f"{set_up.name} (K of {', of '.join(tiers)} requests on)"
    pairs = options.get("schedule") or [row[1:] for row in options["table"]]
    ranges = [f"K = {k} up to {last}" for last, k in pairs[:-1]]
    return f"{set_up.name} ({', '.join([*ranges, f'K = {pairs[-1][1]} at more'])} requests)"


def _parsed(found: Any, engine: str) -> SetUp:
    """Return the set-up, not checked. Raises TypeError or ValueError for other forms."""
    if isinstance(found, dict) and found.get(_TABLE):
        found = found[_TABLE]
    elif isinstance(found, dict) and "num_speculative_tokens" in found:
        found = found["num_speculative_tokens"]
    if isinstance(found, int) and not isinstance(found, bool):
        return static(found, engine)
    if isinstance(found, list):
        return _table(sorted(found))
    sizes = {int(size): entry for size, entry in dict(found).items() if str(size).isdigit()}
    if not sizes:
        raise ValueError
    if all(isinstance(entry, int) for entry in sizes.values()):
        options: dict[str, Any] = {"schedule": [[size, k] for size, k in sorted(sizes.items())]}
        return SetUp(name="your schedule", policy="trtllm_schedule", options=options)
    # What stands beside the tiers holds for each that does not set it itself.
    common = {name: value for name, value in found.items() if not str(name).isdigit()}
    tiers = [common | entry | {"batch_size": size} for size, entry in sorted(sizes.items())]
    return SetUp(name="your tiers", policy="sglang_ema", options={"tiers": tiers})


def _largest_k(set_up: SetUp) -> int:
    options = set_up.options
    if set_up.policy == "static":
        return int(options["k"])
    if set_up.policy == "sglang_ema":
        return max(int(k) for tier in options["tiers"] for k in tier["candidate_steps"])
    return max(int(row[-1]) for row in options.get("schedule") or options["table"])


def _table(rows: list[list[int]]) -> SetUp:
    return SetUp(name="your table", policy="batch_table", options={"table": rows})


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
