"""On the GPU machine: unpack what `pack` made, and put the project beside it.

    python3 benchmarks/gpu/unpack.py SITE.tar.xz SITE_FOLDER

Needs only the standard library of Python 3.11 or later. The project is copied into the site folder
as its wheel would be, entry points included, since the machine may lack pip's build tools; what is
complete already is left alone, but the project is always copied anew.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DONE = ".unpacked"


def unpack(packed: Path, site: Path) -> None:
    """Unpack the packed site folder, once."""
    if (site / DONE).exists():
        return
    site.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "r:xz") as archive:
        archive.extractall(site, filter="data")
    (site / DONE).touch()


def install_project(root: Path, site: Path) -> None:
    """Copy the project's packages into a site folder and name its entry points.

    Raises FileNotFoundError if a package that pyproject.toml lists is not there.
    """
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    folders = {"adaptive_spec": "adaptive_spec"} | project["tool"]["setuptools"]["package-dir"]
    shutil.rmtree(site / "adaptive_spec", ignore_errors=True)
    for package in project["tool"]["setuptools"]["packages"]:
        top = max((name for name in folders if f"{package}.".startswith(f"{name}.")), key=len)
        inside = package[len(top) :].strip(".").replace(".", "/")
        source = root / folders[top] / inside
        target = site / package.replace(".", "/")
        target.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, target / path.name)
        for pattern in project["tool"]["setuptools"]["package-data"].get(package, ()):
            for path in source.glob(pattern):
                (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / path.relative_to(source))
    _write_metadata(project["project"], site)


def _write_metadata(project: dict[str, Any], site: Path) -> None:
    info = site / "adaptive_spec-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = {"console_scripts": project["scripts"]} | project["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()), "")
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


def main() -> int:
    """Unpack and install."""
    packed, site = Path(sys.argv[1]), Path(sys.argv[2])
    unpack(packed, site)
    install_project(ROOT, site)
    print(f"{site} is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
