"""Materialise the bench models as complete model folders.

    python benchmarks/bench_pair/build.py OUT_DIR [--only NAME ...]

makes a folder OUT_DIR/NAME of each model, with config, tokenizer and bf16 weights.  A folder made
earlier from the same inputs is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "benchmarks.bench_pair"

from .names import HERE, MODELS, TOKENIZER, WEIGHTS

FINGERPRINT = "fingerprint.txt"
SOURCES = {
    "target_big": ("target",),
    "draft_poor": ("draft",),
    "mtp": ("target", "mtp"),
}
"""Folders of `weights` from which a model is computed; any other is a copy of its own."""


class BuildError(RuntimeError):
    """The models can't be built here; the message says what to do."""


def fingerprint(name: str) -> str:
    """Digest of everything that model `name` is made from, this code included."""
    folders = [*(WEIGHTS / source for source in SOURCES.get(name, (name,))), TOKENIZER]
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    digest = hashlib.sha256(name.encode())
    for path in (*files, HERE / "build.py", HERE / "transformations.py"):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def is_current(folder: Path, wanted: str) -> bool:
    """Return whether `folder` was completed from the inputs whose digest is `wanted`."""
    try:
        return (folder / FINGERPRINT).read_text() == wanted
    except OSError:
        return False


def write_model(name: str, folder: Path) -> None:
    """Write model `name` into the empty `folder`."""
    for path in sorted(TOKENIZER.iterdir()):
        shutil.copyfile(path, folder / path.name)
    if name not in SOURCES:
        for path in sorted((WEIGHTS / name).iterdir()):
            shutil.copyfile(path, folder / path.name)
        return
    try:
        from safetensors.torch import load_file, save_file

        from . import transformations
    except ImportError as error:
        raise BuildError(f"{name} is computed with torch and safetensors: {error}") from error
    sources = [WEIGHTS / source for source in SOURCES[name]]
    loaded = [load_file(source / "model.safetensors") for source in sources]
    config = json.loads((sources[0] / "config.json").read_text(encoding="utf-8"))
    tensors, config = transformations.derive(name, loaded, config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def build_one(
    name: str, out_dir: Path, wanted: str, write: Callable[[str, Path], None] = write_model
) -> Path:
    """Make OUT_DIR/name with `write` unless it is current; it appears complete or not at all."""
    final = out_dir / name
    if is_current(final, wanted):
        return final
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=out_dir))
    try:
        made = scratch / "made"
        made.mkdir()
        write(name, made)
        (made / FINGERPRINT).write_text(wanted)
        if final.exists():
            final.replace(scratch / "stale")
        try:
            made.replace(final)
        except OSError:  # another build put the same model there first
            if not is_current(final, wanted):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return final


def build(out_dir: Path, names: Sequence[str] | None = None) -> dict[str, Path]:
    """Make the named models (all by default) under `out_dir`; returns their folders."""
    wanted = MODELS if names is None else tuple(names)
    unknown = sorted(set(wanted) - set(MODELS))
    if unknown:
        raise BuildError(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    fingerprints = {name: fingerprint(name) for name in wanted}
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        return {name: build_one(name, out_dir, fingerprints[name]) for name in wanted}
    except OSError as error:
        raise BuildError(f"can't write models under {out_dir}: {error}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=MODELS)
    arguments = parser.parse_args()
    try:
        folders = build(arguments.out_dir, arguments.only)
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    for name, folder in folders.items():
        print(f"{name}: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
