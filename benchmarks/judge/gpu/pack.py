"""Pack vLLM for a Hopper machine without a network, as one file that fits into one upload.

    python -m benchmarks.judge.gpu.pack OUT [--vllm 0.32.0] [--limit-mib 64]

writes OUT/site.tar.xz, a site folder for CPython 3.12 beside torch, triton, transformers and numba:
vLLM's Python files, the compiled parts that a dense bf16 model with FlashAttention 3 needs, and the
small dependencies of `wheels.txt`. Device code of other GPUs than sm_90 is zeroed, so that it
compresses, and with it the PTX: no Marlin. Left out besides: FlashAttention 2, DeepGEMM, FlashMLA,
flashinfer. Together with this checkout the file must stay below the limit of one upload. Needs pip
with PyPI, strip, xz, 2 GB of disk and 10 minutes; a second run takes what it finds under
OUT/downloads.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
VLLM = "0.32.0"
SITE, DOWNLOADS, PACKED = "site", "downloads", "site.tar.xz"
LIMIT_MIB = 64.0
COMPILED = (
    *("_C_stable_libtorch.", "_vllm_fa3_C.", "_moe_C_stable_libtorch.", "cumem_allocator."),
    *("spinloop.", "fs_io_C."),
)
"""Beginnings of the names of vLLM's libraries that are kept."""
TEXT = (".py", ".json", ".jinja", ".jinja2", ".txt", ".toml", ".cfg")
NOT_NEEDED = ("pycountry/locales", "mistral_common/data")
COMPRESSION = "--x86 --lzma2=preset=9e,dict=128MiB"
"""Of xz; a tenth smaller than its default, and no slower to unpack."""
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (35, 34, 31, 28, 27, 24, 17, 12, 5)]
LEGACY_PLATFORMS = ["manylinux2014_x86_64", "manylinux1_x86_64"]
FATBIN_MAGIC = 0xBA55ED50
CODE_KINDS = (1, 2)
"""PTX and machine code, as entries of a fat binary name them."""
SM_90 = 90


def download(names: Sequence[str], folder: Path) -> None:
    """Download wheels for CPython 3.12 on x86-64 Linux, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.whl")):
        return
    command = [
        *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
        *("--python-version", "3.12", "--implementation", "cp", "-d", str(folder)),
    ]
    for platform in (*PLATFORMS, *LEGACY_PLATFORMS):
        command += ["--platform", platform]
    subprocess.run([*command, *names], check=True)


def requirements(text: str) -> list[str]:
    """Requirements of a file with comments."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def unzip_vllm(wheel: Path, site: Path) -> None:
    """Unpack the kept parts of vLLM's wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            name = Path(member).name
            compiled = member.endswith(".so") and name.startswith(COMPILED)
            if compiled or member.endswith(TEXT) or ".dist-info/" in member:
                archive.extract(member, site)


def unzip(wheels: Iterable[Path], site: Path) -> None:
    """Unpack wheels as pip would, and remove what is not needed."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    for data in site.glob("*.data/*lib"):
        shutil.copytree(data, site, dirs_exist_ok=True)
    for name in NOT_NEEDED:
        remove(site / name)
    for tests in [path for path in site.rglob("tests") if path.is_dir()]:
        if "vllm" not in tests.relative_to(site).parts:
            remove(tests)


def remove(path: Path) -> None:
    """Remove a file or a folder, which may not exist."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sections(image: bytes) -> list[tuple[str, int, int]]:
    """Name, offset and size of the sections of an ELF file."""
    (start,) = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    found = []
    for index in range(count):
        name, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", image, start + index * 64)
        found.append((name, offset, size))
    strings = found[names][1]
    return [
        (image[strings + n : image.index(b"\0", strings + n)].decode(), offset, size)
        for n, offset, size in found
    ]


def zero_other_gpus(image: bytearray, offset: int, size: int) -> int:
    """Zero device code of other architectures in a section `.nv_fatbin`; returns bytes zeroed."""
    zeroed, at = 0, offset
    while at < offset + size:
        if struct.unpack_from("<I", image, at)[0] != FATBIN_MAGIC:
            at += 8
            continue
        _, header, length = struct.unpack_from("<HHQ", image, at + 4)
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, entry_header, code = struct.unpack_from("<HHIQ", image, entry)
            (architecture,) = struct.unpack_from("<I", image, entry + 28)
            if architecture != SM_90 and kind in CODE_KINDS:
                image[entry + entry_header : entry + entry_header + code] = bytes(code)
                zeroed += code
            entry += entry_header + code
        at = end
    return zeroed


def only_sm90(library: Path) -> int:
    """Strip a shared object and zero device code of other GPUs; returns bytes zeroed."""
    subprocess.run(["strip", str(library)], check=True)
    image = bytearray(library.read_bytes())
    zeroed = sum(
        zero_other_gpus(image, offset, size)
        for name, offset, size in sections(bytes(image))
        if name == ".nv_fatbin"
    )
    if zeroed:
        library.write_bytes(image)
    return zeroed


def travelling() -> list[Path]:
    """List the checkout's committed and new files, which travel beside the packed site folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def mebibytes(paths: Iterable[Path]) -> float:
    """Size of files, MiB."""
    return sum(path.stat().st_size for path in paths) / 2**20


def main(arguments: list[str] | None = None) -> int:
    """Pack; returns 1 if the result is larger than the limit."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--vllm", default=VLLM)
    parser.add_argument("--limit-mib", type=float, default=LIMIT_MIB)
    options = parser.parse_args(arguments)
    site, downloads = options.out / SITE, options.out / DOWNLOADS
    packed = options.out / PACKED
    download([f"vllm=={options.vllm}"], downloads / "vllm")
    download(requirements((HERE / "wheels.txt").read_text("utf-8")), downloads / "others")
    remove(site)
    unzip_vllm(next((downloads / "vllm").glob("vllm-*.whl")), site)
    unzip((downloads / "others").glob("*.whl"), site)
    for library in site.rglob("*.so*"):
        zeroed = only_sm90(library)
        if zeroed:
            print(f"{library.name}: {zeroed >> 20} MiB of other GPUs zeroed", flush=True)
    command = f"tar -C '{site}' --sort=name -cf - . | xz {COMPRESSION} > '{packed}'"
    subprocess.run(command, shell=True, check=True)
    sizes = mebibytes([packed]), mebibytes(travelling())
    print(f"{packed.name} {sizes[0]:.1f} MiB, this checkout {sizes[1]:.1f} MiB")
    if (total := sum(sizes)) > options.limit_mib:
        print(f"error: {total:.1f} MiB is more than the limit of {options.limit_mib:g}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
