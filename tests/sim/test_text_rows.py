import gzip
import json

import pytest

from adaptive_spec.errors import DataError
from adaptive_spec.sim.text_rows import read_rows


def test_rows_are_numbered_from_one_and_blank_lines_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}')
    assert list(read_rows(path)) == [(1, {"a": 1}), (3, {"a": 2})]


def test_gzip_is_known_by_content_not_by_name(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    assert list(read_rows(path)) == [(1, {"a": 1})]


def test_a_compressed_file_cut_short_says_after_which_row(tmp_path):
    rows = [{"number": number, "text": "x" * (number % 97)} for number in range(20_000)]
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a.jsonl.gz: cut short after row \d{3,}: "):
        list(read_rows(path))


NO_OBJECT = [b"\x00\xff\x13", b"[1, 2]", b"12", b'{"a": 1', b'{"a": "\xff"}']
PACKED = gzip.compress(b'{"a": 1}\n' * 5_000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, "empty") for content in (b"", b"\n\n", gzip.compress(b"", mtime=0))),
        *((b'{"a": 1}\n' + line + b"\n", "row 2: not a JSON object") for line in NO_OBJECT),
        (PACKED[:30] + bytes(30) + PACKED[60:], r"damaged after row|cut short|not a JSON object"),
    ],
)
def test_what_holds_no_rows_is_refused(tmp_path, content, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        list(read_rows(path))


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_can_not_be_opened_is_named(tmp_path, name):
    with pytest.raises(DataError, match=str(tmp_path)):
        list(read_rows(tmp_path / name))
