"""Whatever a policy says becomes values that vLLM's encoder, JSON and a dict of Python take."""

import math
from collections import OrderedDict
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.operation.plain import plain


def strange_parts(value: Any, path: str = "") -> list[str]:
    """Where a value is not of exactly the types that encoders know."""
    if type(value) is dict:
        keys = [f"{path}: key {key!r}" for key in value if type(key) is not str]
        return keys + [s for key, v in value.items() for s in strange_parts(v, f"{path}/{key}")]
    if type(value) is list:
        return [s for i, each in enumerate(value) for s in strange_parts(each, f"{path}[{i}]")]
    known = type(value) in (bool, int, float, str, type(None))
    return [] if known else [f"{path}: {type(value).__name__} {value!r}"]


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.booleans().map(np.bool_),
    st.lists(st.floats(), max_size=3).map(np.array),
    st.builds(object),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.none()), inner, max_size=4),
        st.dictionaries(st.text(), inner, max_size=4).map(OrderedDict),
    ),
    max_leaves=30,
)


@given(NESTED)
def test_every_value_can_be_encoded(value: Any) -> None:
    made = plain(value)
    assert strange_parts(made) == []
    msgspec.json.encode(made)
    msgspec.msgpack.encode(made)


@given(st.recursive(st.integers(-(2**60), 2**60) | st.text("ab") | st.floats(), st.lists))
def test_a_plain_value_stays_as_it_is(value: Any) -> None:
    assert repr(plain(value)) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.array(7), 7),
        (np.array([[1, 2]]), [[1, 2]]),
        ({np.int64(3): True}, {"3": True}),
        ("half \ud83d", "half ?"),
        ({"\udc80": 1}, {"?": 1}),
        (2**70, 2.0**70),
        (10**400, math.inf),
        ((1, {2}), [1, [2]]),
        (b"bytes", "bytes"),
    ],
    ids=repr,
)
def test_what_becomes_of_it(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


def test_depth_and_size_are_bounded() -> None:
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    wide = {str(n): [n] * 10_000 for n in range(100)}
    for value in (deep, circle, wide, ["x" * 10**6] * 5):
        assert len(msgspec.json.encode(plain(value))) < 200_000
