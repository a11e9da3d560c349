"""Each fault of `faults.yaml`, planted in a copy of the tree, fails one of the tests it names.

A fault that survives means that its tests would not notice it: the message names the file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
_FAILED = 1
"""pytest's exit status where a test has failed."""
_MARKERS = "not engine and not http and not statistics and not chaos and not long"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault to plant.

    Attributes:
        name: what is wrong then.
        file: that holds it, from the project's root.
        becomes: what stands in place of `is_`, wherever that stands in the file.
        tests: paths, one of whose tests must fail.
    """

    name: str
    file: str
    is_: str = msgspec.field(name="is")
    becomes: str
    tests: str


FAULTS = msgspec.yaml.decode(Path(__file__).with_name("faults.yaml").read_bytes(), type=list[Fault])


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what tests without an engine need."""
    copy = tmp_path_factory.mktemp("planted") / "tree"
    copy.mkdir()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    return copy


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_noticed(fault: Fault, tree: Path) -> None:
    file = tree / fault.file
    as_is = file.read_text()
    assert fault.is_ in as_is, f"{fault.file} holds no {fault.is_!r} any more"
    file.write_text(as_is.replace(fault.is_, fault.becomes))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-m", _MARKERS, *fault.tests.split()],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), "HYPOTHESIS_PROFILE": "default"},
            capture_output=True,
            check=False,
        )
    finally:
        file.write_text(as_is)
    last = done.stdout.decode()[-2000:]
    assert done.returncode == _FAILED, f"{fault.file}: {fault.tests} passes all the same\n{last}"
