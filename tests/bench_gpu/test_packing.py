"""Packing for a machine without a network, as far as it goes without one's own network."""

import os
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.judge.gpu.pack import (
    FATBIN_MAGIC,
    LIMIT_MIB,
    ROOT,
    mebibytes,
    travelling,
    zero_other_gpus,
)
from benchmarks.judge.gpu.unpack import register_plugin, restore_links, unpack

PTX, CODE, OTHER = 1, 2, 9
PACKED_MIB = 41.2
"""Of vLLM 0.32.0 and its dependencies; it was 41.0."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose links did not survive the way."""
    out = tmp_path_factory.mktemp("project")
    for path in travelling():
        target = out / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return out


def entry(kind: int, architecture: int, code: bytes) -> bytes:
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 0, 64, len(code))
    struct.pack_into("<I", header, 28, architecture)
    return bytes(header) + code


def fat_binary(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", FATBIN_MAGIC, 1, 16, len(body)) + body


def test_only_code_of_other_gpus_is_zeroed() -> None:
    kept = [entry(CODE, 90, b"hopper!!"), entry(OTHER, 80, b"notcode!")]
    gone = [entry(CODE, 80, b"ampere!!"), entry(PTX, 80, b"ptx code")]
    section = fat_binary(kept[0], gone[0]) + bytes(16) + fat_binary(gone[1], kept[1])
    image = bytearray(b"before.." + section + b"after...")
    zeroed = zero_other_gpus(image, 8, len(section))
    assert zeroed == 16
    assert b"hopper!!" in image
    assert b"notcode!" in image
    assert b"ampere!!" not in image
    assert b"ptx code" not in image
    assert (image[:8], image[-8:]) == (b"before..", b"after...")


def test_the_checkout_leaves_room_for_the_packed_site() -> None:
    files = travelling()
    assert ROOT / "benchmarks/judge/first_call.sh" in files
    assert ROOT / "benchmarks/bench_pair/weights/target/model.safetensors" in files
    assert mebibytes(files) < LIMIT_MIB - PACKED_MIB


def test_what_travelled_is_importable_and_registers_the_plugin(
    project: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    restore_links(project)
    restore_links(project)
    register_plugin(project, site)
    check = (
        "from importlib.metadata import entry_points\n"
        "import adaptive_spec.adapters.vllm.plugin, adaptive_spec.sim, benchmarks.judge.gpu.main\n"
        "(plugin,) = entry_points(group='vllm.general_plugins', name='adaptive_spec')\n"
        "assert plugin.value == 'adaptive_spec.adapters.vllm.plugin:register', plugin\n"
        "assert len(entry_points(group='adaptive_spec.policies')) >= 5\n"
        "print(adaptive_spec.__file__)\n"
    )
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", check],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project), str(site), *libraries])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parents[1] == project


def test_half_a_packed_site_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    packed = tmp_path / "site.tar.xz"
    packed.write_bytes(b"\xfd7zXZ\x00 cut off")
    for _ in range(2):
        with pytest.raises(tarfile.ReadError):
            unpack(packed, tmp_path / "site")
