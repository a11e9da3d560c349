"""What docs/vllm.md says is what the code does."""

import json
import re
from pathlib import Path

import msgspec

from adaptive_spec.adapters.vllm import doctor, rules
from adaptive_spec.config import Config
from adaptive_spec.engines.rules import SUPPORTED
from adaptive_spec.operation.run_time_switch import parse_switch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "vllm.md").read_text()


def test_the_doctor_shows_the_same_table() -> None:
    shown = doctor.describe().interplay
    assert [row.feature for row in shown] == [row.feature for row in rules.RULES]


def test_nothing_is_called_supported_that_no_test_shows() -> None:
    for row in rules.RULES:
        if row.support == SUPPORTED:
            assert row.shown_by, row.feature
        files = re.findall(r"\btest_\w+", row.shown_by)
        assert not row.shown_by or files, row.feature
        for name in files:
            assert (ROOT / "tests" / "vllm" / f"{name}.py").is_file(), name


def test_rows_are_one_line_each_and_no_two_alike() -> None:
    features = [row.feature for row in rules.RULES]
    assert len(set(features)) == len(features)
    for row in rules.RULES:
        assert row.rule
        assert not set("|\n") & set(row.feature + row.support + row.rule)


def test_requests_it_shows_are_valid() -> None:
    shown = re.findall(r"adaptive_spec(?: -H \S+)+ -d '(.*?)'", PAGE)
    shown += [text for text in re.findall(r"`(\{.*?\})`", PAGE) if "NAME" not in text]
    assert len(shown) >= 5
    for text in shown:
        parse_switch(json.loads(text), source="docs/vllm.md")


def test_keys_it_names_exist() -> None:
    keys = {field.name for field in msgspec.structs.fields(Config)}
    for key in re.findall(r"key\s+`(\w+)`", PAGE):
        assert key in keys


def test_events_it_names_are_counted_somewhere() -> None:
    listed = PAGE.partition("\nEvents: ")[2].partition("\n\n")[0]
    events = re.findall(r"`(\w+)`", listed)
    code = "".join(
        path.read_text()
        for folder in ("adapters/vllm", "adaptive_spec")
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )
    counted = r"""(?:\.event\(\s*|\["events"\]\[)"(\w+)"""
    assert sorted(events) == sorted(set(re.findall(counted, code)))
