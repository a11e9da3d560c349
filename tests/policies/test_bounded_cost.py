"""No option and no saved state sets how much memory or time a policy takes.

Options come over HTTP into the thread that schedules, and states come from files. Memory is the
peak of allocations, time the number of executed lines of this package.
"""

import contextlib
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from adaptive_spec import Capability, Level, PolicyError
from adaptive_spec.policy import available_policies, build_policy, policy_class
from adaptive_spec.testing.fake_engine import FakeEngine
from tests.policies.saved_states import changed, entry, places
from tests.policies.test_contract import EVERY_POLICY, OPTIONS

MOST_BYTES = 12 << 20
MOST_LINES_TO_BUILD = 150_000
MOST_LINES_OF_A_STEP = 120_000  # loops that are compiled elsewhere run in Python here
HUGE = (1 << 31, 10**9, 10**12, (1 << 63) - 1)


@contextmanager
def counted(most_lines: int, most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Fail if the block executes more lines of this package, or allocates more at its peak."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if "adaptive_spec" not in frame.f_globals.get("__name__", ""):
            return None
        lines += event == "line"
        if lines > most_lines:
            raise AssertionError(f"more than {most_lines} lines in {frame.f_code.co_qualname}")
        return trace

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        sys.settrace(before)
        tracemalloc.stop()
    assert peak <= most_bytes, f"{peak >> 20} MB"


def values(node: Any) -> st.SearchStrategy[Any]:
    """Values that an option of this type may have, extremes among them."""
    if isinstance(node, inspect.UnionType):
        return st.one_of([values(each) for each in node.types])
    if isinstance(node, inspect.Metadata):
        return values(node.type)
    if isinstance(node, inspect.IntType):
        low = node.ge if node.ge is not None else -(1 << 63)
        high = node.le if node.le is not None else (1 << 63) - 1
        near = st.integers(max(low, -2), min(high, 12))
        return near | st.sampled_from([min(each, high) for each in HUGE]) | st.just(low)
    if isinstance(node, inspect.FloatType):
        low = next((b for b in (node.ge, node.gt) if b is not None), -1e308)
        high = next((b for b in (node.le, node.lt) if b is not None), 1e308)
        extremes = [low, high, 5e-324, 1e-9, 0.5, 1e9]
        return st.sampled_from(extremes) | st.floats(low, high)
    if isinstance(node, inspect.BoolType):
        return st.booleans()
    if isinstance(node, inspect.LiteralType):
        return st.sampled_from(list(node.values))
    if isinstance(node, inspect.ListType | inspect.VarTupleType):
        return st.lists(values(node.item_type), max_size=6)
    if isinstance(node, inspect.TupleType):
        return st.tuples(*map(values, node.item_types))
    if isinstance(node, inspect.StructType):
        return st.fixed_dictionaries(
            {field.encode_name: values(field.type) for field in node.fields if field.required},
            optional={
                field.encode_name: values(field.type) for field in node.fields if not field.required
            },
        )
    return st.none() if isinstance(node, inspect.NoneType) else st.just("x")


def long_table(row: Callable[[int], Any], most: int = 4000) -> list[Any]:
    """As many rows as the limit on values allows."""
    each = 1 + len(row(0)) if isinstance(row(0), list) else 1
    return [row(i) for i in range(most // each)]


TABLES: list[tuple[str, dict[str, Any]]] = [
    ("batch_table", {"table": [[1, 3_000_000_000, 4]]}),
    ("batch_table", {"table": [[1, 8, 4], [9, 2_000_000_000, 1]]}),
    ("batch_table", {"table": [*long_table(lambda i: [i + 1, i + 1, 1]), [1001, 10**15, 1]]}),
    ("trtllm_schedule", {"schedule": long_table(lambda i: [(i + 1) * 10**9, 3])}),
    ("sglang_ema", {"graph_batch_sizes": long_table(lambda i: (i + 1) * 10**12)}),
    ("sglang_throughput", {"profiled_batch_sizes": [1_000_000_000]}),
    ("sglang_throughput", {"profiled_batch_sizes": long_table(lambda i: i + 1)}),
    ("sglang_throughput", {"candidates": [[10**12, [10**12]]]}),
]


def serve(name: str, options: dict[str, Any], level: Level) -> None:
    """Build a policy and run some steps within the limits; refused options are fine."""
    with contextlib.suppress(PolicyError):
        with counted(MOST_LINES_TO_BUILD):
            policy = build_policy(name, options, baselines=True)
        run_some_steps(policy, level)


def run_some_steps(policy: Any, level: Level) -> None:
    engine = FakeEngine(Capability(level=level, max_draft_tokens=5), signal=True)
    for _ in range(4):
        with counted(MOST_LINES_OF_A_STEP), np.errstate(all="ignore"):
            engine.run(policy, 1)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Load what is loaded once for a process, which is no cost of an option."""
    for name in available_policies(baselines=True):
        policy = build_policy(name, OPTIONS.get(name), baselines=True)
        FakeEngine(Capability(level=Level.FULL, max_draft_tokens=5), signal=True).run(policy, 3)


@pytest.mark.parametrize("name", EVERY_POLICY)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_option_sets_memory_or_time(name: str, data: st.DataObject) -> None:
    described: Any = inspect.type_info(policy_class(name, baselines=True).Options)
    options = data.draw(values(described))
    for file in ("profile", "model"):
        options.pop(file, None)
    serve(name, OPTIONS.get(name, {}) | options, data.draw(st.sampled_from(list(Level))))


@pytest.mark.parametrize("case", range(len(TABLES)))
def test_no_table_sets_memory_or_time(case: int) -> None:
    for level in Level:
        serve(*TABLES[case], level)


def test_options_with_too_many_values_are_refused() -> None:
    with pytest.raises(PolicyError, match="values in the options"):
        build_policy("goodput", {"x": [[i + 1, 1] for i in range(2000)]})


@pytest.mark.parametrize("name", EVERY_POLICY)
def test_no_number_of_a_saved_state_sets_memory_or_time(name: str) -> None:
    learned = build_policy(name, OPTIONS.get(name), baselines=True)
    FakeEngine(Capability(level=Level.FULL, max_draft_tokens=5), signal=True).run(learned, 30)
    state = json.loads(msgspec.json.encode(learned.state()))
    for place in places(state):
        value = entry(state, place)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for huge in HUGE[1:]:
            policy = build_policy(name, OPTIONS.get(name), baselines=True)
            with contextlib.suppress(PolicyError):
                with counted(MOST_LINES_TO_BUILD):
                    policy.restore(changed(state, place, huge))
                run_some_steps(policy, Level.FULL)
