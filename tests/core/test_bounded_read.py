"""Hostile content is one line of error, never a crash, a hang or a traceback of another kind."""

import contextlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec import bounded_read
from adaptive_spec.bounded_read import (
    MOST_DEPTH,
    decode_document,
    decode_json,
    decode_yaml,
    decode_yaml_documents,
    read_bounded_lines,
    read_small_file,
)

GROWTH = b"a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 9))
    for level in range(1, 12)
)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b"[" * 70 + b"1" + b"]" * 70,
        b'{"a": ' + b"9" * 6000 + b"}",
        b'{"a": ' + b"9" * 40 + b"}",
        b'{"a": "\xff\xfe"}',
        b'{"a": \xff}',
        b"\x00",
    ],
    ids=range(8),
)
def test_hostile_content_is_one_line(content: bytes) -> None:
    for decode in (decode_json, decode_yaml):
        with pytest.raises(ValueError, match=r"^.{3,300}$"):
            decode(content)


@pytest.mark.parametrize(
    "content",
    [
        *(b"- " * 100_000, b"a: .inf", b"a: .nan", GROWTH, b"a: &a [*a]", b"a: *b"),
        *(b"a: &a [*a, *a]", b"a: &a {<<: *a}", b"a: &a {b: *a, c: *a}"),
        *(b'a: !!int ""', b'a: !!timestamp ""', b"a: 2024-99-99", b"a: " + b"9" * 5000),
    ],
)
def test_hostile_yaml_is_one_line(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"^.{3,300}$"):
        decode_yaml(content)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(content: bytes) -> None:
    for name in ("x.json", "x.yaml"):
        with contextlib.suppress(ValueError):  # any other exception fails the test
            decode_document(Path(name), content)


def test_what_people_write_is_read() -> None:
    text = b"base: &base {k: 2}\nfirst: *base\nsecond: [1, 2.5, text, null, true]\n"
    assert decode_yaml(text) == {
        "base": {"k": 2},
        "first": {"k": 2},
        "second": [1, 2.5, "text", None, True],
    }
    assert decode_yaml_documents(b"a: 1\n---\n- b\n") == [{"a": 1}, ["b"]]
    deep = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert decode_json(deep) == decode_yaml(deep)


@pytest.mark.parametrize("kind", ["pipe", "folder", "large"])
def test_what_is_no_small_file_is_refused_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"x" * 100)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"regular|directory|more than"):
        read_small_file(path, 99)
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_lines_are_whole_up_to_the_limit_and_refused_beyond_it(monkeypatch):
    monkeypatch.setattr(bounded_read, "LONGEST_LINE", 8)
    lines = read_bounded_lines(io.BytesIO(b"1234567\n\nlast"))
    assert list(lines) == [b"1234567\n", b"\n", b"last"]
    lines = read_bounded_lines(io.BytesIO(b"a\n12345678\n"))
    assert next(lines) == b"a\n"
    with pytest.raises(OSError, match="line 2 is longer than 8 bytes"):
        next(lines)


def test_in_a_shared_folder_neither_links_nor_files_of_others_are_read(tmp_path, monkeypatch):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"x")
    link.symlink_to(file)
    assert read_small_file(link) == read_small_file(file, own=True) == b"x"
    with pytest.raises(OSError, match="symbolic links"):
        read_small_file(link, own=True)
    if os.geteuid() == 0:
        os.chown(file, 12_345, -1)
        with pytest.raises(OSError, match="of another user"):
            read_small_file(file, own=True)
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
        assert read_small_file(file, own=True) == b"x"
