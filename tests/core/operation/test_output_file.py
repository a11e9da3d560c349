"""Files are replaced as a whole; what others planted or own is left alone; nothing blocks."""

import itertools
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_spec.operation.output_file import OwnedFile, Retry, remove_leftovers, replace_file


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_what_was_planted_is_replaced_and_its_target_kept(tmp_path: Path, planted: str) -> None:
    target, path = tmp_path / "precious", tmp_path / "status.json"
    target.write_text("kept")
    if planted == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    OwnedFile(path).replace(b"{}")
    assert target.read_text() == "kept"
    assert (path.is_symlink(), path.read_bytes()) == (False, b"{}")
    replace_file(tmp_path / "state.json", b"{}")
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600  # for the own user only


def test_a_second_writer_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    code = (
        "import sys; from pathlib import Path\n"
        "from adaptive_spec.operation.output_file import OwnedFile\n"
        "file = OwnedFile(Path(sys.argv[1])); file.replace(b'first')\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        first.stdout.readline()
        second = OwnedFile(path)
        with pytest.raises(OSError, match=r"another process writes it.*\{pid\}"):
            second.replace(b"second")
        assert path.read_bytes() == b"first"
        first.kill()
    second.replace(b"second")
    second.replace(b"third")
    assert path.read_bytes() == b"third"


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    left = tmp_path / "status.json.0a1b2c3d.new"
    left.write_text("half")
    for name in ("status.json.new", "other.json.0a1b2c3d.new", "status.json.0a1b2c3d"):
        (tmp_path / name).write_text("kept")
    OwnedFile(path)
    assert len(list(tmp_path.iterdir())) == 3
    assert not left.exists()


def test_files_that_a_process_still_writes_are_no_leftovers(tmp_path: Path) -> None:
    mine = OwnedFile(tmp_path / "figures-1.json")
    mine.replace(b"{}")
    (tmp_path / "figures-2.json").write_text("{}")
    remove_leftovers(tmp_path, r"figures-\d\.json")
    assert [path.name for path in tmp_path.iterdir()] == ["figures-1.json"]
    mine.remove()
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OwnedFile(tmp_path / "status.json")
    file.replace(b"old")

    def full(handle: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(OSError, match="No space"):
            file.replace(b"new")
    [path] = tmp_path.iterdir()
    assert path.read_bytes() == b"old"


LOG = logging.getLogger("test")


def fails() -> None:
    raise OSError(28, "No space left on device")


def test_attempts_get_rarer_and_never_stop(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    retry = Retry("status file", counted.append, LOG)
    tried: list[int] = []
    for now in range(1000):
        retry.attempt(float(now), lambda now=now: (tried.append(now), fails()))
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert gaps[0] <= 2
    assert max(gaps) <= 61
    assert tried[-1] > 900
    assert counted == ["status file"] * len(tried)
    assert len(caplog.records) == 1
    assert retry.attempt(2000.0, list)
    assert retry.attempt(2000.0, list)
    assert caplog.messages[1:] == ["adaptive_spec: status file: works again"]


@pytest.mark.parametrize("later", [-1e6, 1e6])
def test_a_clock_that_jumps_does_not_stop_it(later: float) -> None:
    retry = Retry("trace", lambda _: None, LOG)
    retry.attempt(100.0, fails)
    assert retry.attempt(later, list)
