"""On the GPU machine: unpack what `pack` made, and make this checkout importable beside it.

    python3 benchmarks/judge/gpu/unpack.py SITE.tar.xz SITE_FOLDER

Afterwards PYTHONPATH=CHECKOUT:SITE_FOLDER has vLLM with our plugin. Needs only the standard library
of Python 3.11 or later: the machine may lack pip's build tools. What was unpacked before is left
alone.
"""

from __future__ import annotations

import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DONE = ".unpacked"


def unpack(packed: Path, site: Path) -> None:
    """Unpack the packed site folder, once."""
    if (site / DONE).exists():
        return
    site.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "r:xz") as archive:
        archive.extractall(site, filter="data")
    (site / DONE).touch()


def restore_links(root: Path) -> None:
    """Link the folders that belong inside the package: links may not survive an upload."""
    for name, folder in _project(root)["tool"]["setuptools"]["package-dir"].items():
        link = root / name.replace(".", "/")
        if (link / "__init__.py").exists():
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / folder, target_is_directory=True)


def register_plugin(root: Path, site: Path) -> None:
    """Name the project's entry points in a site folder, as its installed wheel would."""
    project = _project(root)["project"]
    info = site / "adaptive_spec-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = {"console_scripts": project["scripts"]} | project["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), "")
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def _project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def main() -> int:
    """Unpack, link, register."""
    packed, site = Path(sys.argv[1]), Path(sys.argv[2])
    unpack(packed, site)
    restore_links(ROOT)
    register_plugin(ROOT, site)
    print(f"{site} is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
