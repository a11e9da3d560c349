"""Which methods of an engine were executed, by version and route: tables of docs/will_it_work.md.

The versions and the methods that ran are in each adapter's `versions`; this adds the tests that ran
them, and where the engine itself does not offer a method.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from adaptive_spec.adapters.sglang.versions import VERSIONS as SGLANG
from adaptive_spec.adapters.tensorrt_llm.versions import VERSIONS as TENSORRT_LLM
from adaptive_spec.adapters.vllm.facts import RECURRENT
from adaptive_spec.adapters.vllm.rules import RUN_ON_V2
from adaptive_spec.adapters.vllm.versions import HYBRID_MODELS
from adaptive_spec.adapters.vllm.versions import VERSIONS as VLLM
from adaptive_spec.engines.versions import KnownVersion, VersionTable, release_number

EXECUTED, CHECKED, SHADOW, REFUSED, ABSENT = "executed", "source-checked", "shadow", "refused", "—"
V1, V2 = "model runner V1", "model runner V2"

METHODS = {
    VLLM.engine: (
        *("draft_model", "eagle", "eagle3", "mtp", "ngram", "suffix", "dflash", "dspark"),
        *("medusa", HYBRID_MODELS),
    ),
    SGLANG.engine: ("EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DSPARK"),
    TENSORRT_LLM.engine: ("every method of the route",),
}
"""Columns of the tables."""

OFFERED: dict[tuple[str, str], tuple[str, str]] = {
    (V1, "dspark"): ("never", "never"),
    (V1, "medusa"): ("0.26.0", "0.32.0"),
    (V2, "draft_model"): ("0.31.0", ""),
    (V2, "medusa"): ("never", "never"),
    (V2, "ngram"): ("0.32.0", ""),
    (V2, "suffix"): ("never", "never"),
}
"""vLLM's runner and method -> first and last version that has it; what is missing here all have."""

_IDENTITY = "tests/vllm/test_greedy_identity.py::test_tokens_are_those_without_speculation"
_FAMILY = "tests/vllm/test_families.py::test_tokens_are_those_without_speculation"
_STATE = "tests/vllm/test_families.py::test_recurrent_state_survives_steps_without_drafts"
_RUNNER_2 = "tests/vllm/test_v2_model_runner.py::test_tokens_are_those_without_speculation"
_NGRAM_2 = "tests/vllm/test_v2_ngram.py::test_tokens_are_those_without_speculation"
_FAMILY_2 = "tests/vllm/test_families.py::test_tokens_on_model_runner_v2"
_SGLANG = "tests/sglang/engine/test_same_output.py::test_tokens_are_those_without_speculation"

TESTS: dict[tuple[str, str], tuple[str, ...]] = {
    (V1, "draft_model"): (
        f"{_IDENTITY}[draft_model-sync-crowded]",
        f"{_IDENTITY}[draft_model-async-crowded]",
    ),
    (V1, "eagle"): (f"{_IDENTITY}[eagle-sync-crowded]", f"{_IDENTITY}[eagle-async-crowded]"),
    (V1, "eagle3"): (f"{_FAMILY}[eagle3-sync]",),
    (V1, "mtp"): (
        *(f"{_FAMILY}[mimo_mtp-sync]", f"{_FAMILY}[gemma4-sync]"),
        *(f"{_FAMILY}[step3p5-sync]", f"{_FAMILY}[deepseek_mtp-sync]"),
    ),
    (V1, "ngram"): (f"{_IDENTITY}[ngram-sync-crowded]",),
    (V1, "suffix"): (f"{_IDENTITY}[suffix-sync-crowded]",),
    (V1, "dflash"): (f"{_FAMILY}[dflash-sync]",),
    (V1, "medusa"): (f"{_FAMILY}[medusa-sync]",),
    (V1, HYBRID_MODELS): (f"{_STATE}[falcon_h1]", f"{_STATE}[qwen3_next_mtp]"),
    (V2, "draft_model"): (f"{_RUNNER_2}[draft_model-sync]", f"{_RUNNER_2}[draft_model-async]"),
    (V2, "eagle"): (f"{_RUNNER_2}[eagle-sync]", f"{_RUNNER_2}[eagle-async]"),
    (V2, "eagle3"): (f"{_FAMILY_2}[eagle3-True]",),
    (V2, "mtp"): (
        *(f"{_FAMILY_2}[mimo_mtp-True]", f"{_FAMILY_2}[gemma4-True]"),
        *(f"{_FAMILY_2}[several_mtp_modules-False]", f"{_FAMILY_2}[deepseek_mtp-True]"),
    ),
    (V2, "ngram"): (f"{_NGRAM_2}[sync]", f"{_NGRAM_2}[async]"),
    (V2, "dflash"): (f"{_FAMILY_2}[dflash-False]",),
    (V2, "dspark"): (f"{_FAMILY_2}[dspark-False]",),
    (V2, HYBRID_MODELS): (f"{_FAMILY_2}[falcon_h1-False]", f"{_FAMILY_2}[qwen3_next_mtp-True]"),
    (SGLANG.engine, "EAGLE"): (f"{_SGLANG}[mixed_lengths-EAGLE]",),
    (SGLANG.engine, "EAGLE3"): (f"{_SGLANG}[mixed_lengths-EAGLE3]",),
    (SGLANG.engine, "STANDALONE"): (f"{_SGLANG}[mixed_lengths-STANDALONE]",),
    (SGLANG.engine, "NGRAM"): (f"{_SGLANG}[mixed_lengths-ADAPTIVE_NGRAM]",),
}
"""vLLM's runner, or the engine, and method -> tests that change K at every step."""


class Line(NamedTuple):
    """A version and route, and what is known of each method."""

    engine: str
    version: str
    route: str
    cells: tuple[str, ...]


def lines(table: VersionTable) -> Iterator[Line]:
    """Lines of an engine's versions; vLLM's have one for each model runner."""
    for version in dict.fromkeys(row.version for row in table.rows):
        rows = {row.route: row for row in table.rows_of(version)}
        if table is VLLM:
            lacks = tuple(feature for row in rows.values() for feature in row.lacks)
            rows = {
                route: rows.get(route) or _unexecuted(version, route, lacks) for route in (V1, V2)
            }
        for route, row in rows.items():
            cells = tuple(cell(table, row, method) for method in METHODS[table.engine])
            yield Line(table.engine, version, route, cells)


def cell(table: VersionTable, row: KnownVersion, method: str) -> str:
    """Return what is known of a method with a version and route."""
    if method in row.methods:
        return EXECUTED
    if row.checked.startswith(REFUSED) or (table is SGLANG and method == "DSPARK"):
        return REFUSED
    if table is not VLLM:
        return CHECKED
    if not _offered(row, method):
        return ABSENT
    if method == HYBRID_MODELS:
        return SHADOW if RECURRENT in row.lacks else CHECKED
    return SHADOW if row.route == V2 and method not in RUN_ON_V2 else CHECKED


def matrix(table: VersionTable) -> str:
    """The lines of an engine as a table; versions that are alike share one."""
    head = ("versions", "route", *METHODS[table.engine])
    alike: dict[tuple[str, ...], list[str]] = {}
    for line in lines(table):
        alike.setdefault((line.route, *line.cells), []).append(line.version)
    body = [(", ".join(names), *cells) for cells, names in alike.items()]
    return _markdown([head, ("---",) * len(head), *body])


def evidence() -> str:
    """The tests behind each executed method."""
    head = ("route", "method", "tests")
    body = [
        (route, method, ", ".join(f"`{test.rpartition('/')[2]}`" for test in tests))
        for (route, method), tests in TESTS.items()
    ]
    return _markdown([head, ("---",) * 3, *body])


def _unexecuted(version: str, route: str, lacks: tuple[str, ...]) -> KnownVersion:
    return KnownVersion(version=version, route=route, checked="", lacks=lacks)


def _offered(row: KnownVersion, method: str) -> bool:
    first, last = OFFERED.get((row.route, method), ("", ""))
    number = release_number(row.version)
    assert number is not None
    if first == "never":
        return False
    return (release_number(first) or number) <= number <= (release_number(last) or number)


def _markdown(rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
