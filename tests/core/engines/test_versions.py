"""Which versions of an engine an adapter runs on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.adapters.sglang.versions import VERSIONS as SGLANG
from adaptive_spec.adapters.tensorrt_llm.versions import VERSIONS as TENSORRT_LLM
from adaptive_spec.adapters.vllm.versions import VERSIONS as VLLM
from adaptive_spec.engines.versions import KnownVersion, VersionTable, release, release_number
from adaptive_spec.errors import UnsupportedEngineError
from tests.refused import refused


def row(version: str, *, executed: bool = False) -> KnownVersion:
    methods = ("ngram",) if executed else ()
    return KnownVersion(version=version, route="by hooks", checked="read", methods=methods)


TABLE = VersionTable(
    engine="Engine", go_on="unset VARIABLE", rows=(row("0.7.2"), row("0.8.0", executed=True))
)


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0.5.23", (0, 5, 23)),
        ("0.5.9.post2", (0, 5, 9)),
        ("1.2.3+cpu", (1, 2, 3)),
        ("0.5.24rc1", None),
        ("0.5.24.dev3+g123", None),
        ("0.5", None),
        ("unknown", None),
        ("", None),
    ],
)
def test_only_final_and_post_releases_have_a_number(
    version: str, number: tuple[int, int, int] | None
) -> None:
    assert release_number(version) == number
    assert release(f"{version}+cpu") == release(version) == version.partition("+")[0]


@given(st.tuples(st.integers(0, 1), st.integers(0, 10), st.integers(0, 5)))
def test_releases_between_the_oldest_and_the_newest_row_run(number: tuple[int, int, int]) -> None:
    version = ".".join(map(str, number))
    assert TABLE.accepts(version) == ((0, 7, 2) <= number <= (0, 8, 0))
    assert not TABLE.accepts(f"{version}rc1")


def test_only_exactly_the_release_of_an_executed_row_was_executed() -> None:
    assert TABLE.was_executed("0.8.0+cpu")
    assert not any(map(TABLE.was_executed, ("0.7.2", "0.7.9", "0.8.0.post1")))


def test_what_was_not_executed_runs_with_a_warning() -> None:
    assert TABLE.admit("0.8.0+cpu") == ""
    assert TABLE.admit("0.7.5") == "Engine 0.7.5 was compared with its source only, not executed"
    for version in ("0.9.0", "0.7.1", "0.8.1.dev3+g123"):
        warning = f"Engine {version} is untested; tested versions: 0.7.2 to 0.8.0"
        assert TABLE.admit(version) == warning


def test_an_untested_version_that_is_not_allowed_is_refused_in_one_line() -> None:
    assert TABLE.admit("0.7.5", allow_untested=False)
    said = ("Engine 0.9.0", "allow_untested", "0.7.2 to 0.8.0", "upgrade", "unset VARIABLE")
    with refused(UnsupportedEngineError, *said):
        TABLE.admit("0.9.0", allow_untested=False)


def test_a_table_whose_rows_are_no_releases_accepts_none() -> None:
    lines = VersionTable(engine="Engine", go_on="", rows=(row("main after 1.3"),))
    assert lines.known == "main after 1.3"
    assert not lines.accepts("1.3.0")


@pytest.mark.parametrize("table", [SGLANG, TENSORRT_LLM, VLLM])
def test_each_adapters_table_has_a_line_per_row(table: VersionTable) -> None:
    lines = table.markdown().splitlines()
    assert len(lines) == 2 + len(table.rows)
    assert {line.count("|") for line in lines} == {4}
