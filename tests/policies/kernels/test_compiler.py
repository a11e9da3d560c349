"""Compiled loops are kept on disk, and read only from a folder nobody else can write."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_spec.policies.kernels.compiler import cache_folder, compile_loop, private


def _double_loop(values: np.ndarray) -> None:
    for i in range(len(values)):
        values[i] *= 2.0


def cache_hits() -> int:
    """Loops read from disk, of one that is compiled as a new process would."""
    compiled: Any = compile_loop(_double_loop, "void(float64[::1])")
    values = np.array([1.0, 2.0])
    compiled(values)
    assert values.tolist() == [2.0, 4.0]
    return sum(compiled.stats.cache_hits.values())


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    return made


@pytest.mark.usefixtures("needs_numba")
def test_a_loop_is_compiled_once_and_then_read_from_disk() -> None:
    assert [cache_hits() for _ in range(3)] == [0, 1, 1]


def test_the_place_of_other_caches_of_numba_is_not_changed() -> None:
    numba = pytest.importorskip("numba")
    before = numba.config.CACHE_DIR
    cache_hits()
    assert before == numba.config.CACHE_DIR


@pytest.mark.usefixtures("needs_numba")
def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    cache_hits()
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".nbi", ".nbc")]
    assert files
    for file in files:
        file.write_bytes(b"no pickle")
    assert cache_hits() == 0


@pytest.mark.usefixtures("needs_numba")
def test_a_folder_that_others_can_write_is_neither_read_nor_written() -> None:
    made = cache_folder()
    cache_hits()
    files = {file: file.stat().st_mtime_ns for file in made.rglob("*")}
    made.chmod(0o777)
    assert cache_folder() is None
    assert cache_hits() == 0
    assert {file: file.stat().st_mtime_ns for file in made.rglob("*")} == files


def test_the_folder_is_made_for_this_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "missing"))
    made = cache_folder()
    assert made.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("needs_numba")
def test_without_a_place_to_write_there_is_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    assert cache_folder() is None
    assert cache_hits() == 0


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o702, 0o720, 0o750])
def test_a_folder_with_rights_for_others_is_not_private(folder: Path, mode: int) -> None:
    assert private(folder)
    folder.chmod(mode)
    assert not private(folder)


@pytest.mark.parametrize(("mode", "expected"), [(0o777, False), (0o775, False), (0o1777, True)])
def test_a_parent_must_not_let_others_replace_the_folder(
    folder: Path, mode: int, expected: bool
) -> None:
    folder.parent.chmod(mode)
    assert private(folder) is expected


def test_a_link_to_a_private_folder_is_not_one(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert not private(link)
