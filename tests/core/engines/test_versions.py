"""What adapters say about versions of their engines."""

from __future__ import annotations

import msgspec
import pytest

from adaptive_spec.adapters.sglang import versions as sglang
from adaptive_spec.adapters.tensorrt_llm import versions as tensorrt_llm
from adaptive_spec.adapters.vllm import versions as vllm
from adaptive_spec.engines.versions import markdown_table, release, release_number, untested


class Row(msgspec.Struct, frozen=True):
    version: str
    how: str


def test_the_local_part_of_a_version_is_left_out() -> None:
    assert release("0.32.0+cpu") == "0.32.0"
    assert release("0.32.0") == "0.32.0"


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


def test_a_refusal_names_versions_and_remedies_in_one_line() -> None:
    message = str(untested("Engine", "0.9", "0.7, 0.8", "unset VARIABLE"))
    assert "\n" not in message
    for part in ("Engine 0.9", "adaptive-spec", "0.7, 0.8", "upgrade", "unset VARIABLE"):
        assert part in message


def test_a_table_has_one_column_per_field() -> None:
    rows = [Row("1.0", "read"), Row("1.1", "run")]
    assert markdown_table(("engine", "checked"), rows).splitlines() == [
        "| engine | checked |",
        "| --- | --- |",
        "| 1.0 | read |",
        "| 1.1 | run |",
    ]
    with pytest.raises(ValueError, match="1 headings for 2 fields"):
        markdown_table(("engine",), rows)


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (sglang.markdown_table(), sglang.KNOWN_VERSIONS),
        (tensorrt_llm.markdown_table(), tensorrt_llm.READ_VERSIONS),
        (vllm.markdown_table(), vllm.TESTED_VERSIONS),
    ],
)
def test_each_adapters_table_has_a_line_per_version(
    table: str, rows: tuple[msgspec.Struct, ...]
) -> None:
    lines = table.splitlines()
    assert len(lines) == 2 + len(rows)
    assert len({line.count("|") for line in lines}) == 1
