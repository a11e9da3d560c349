"""Location of the public traces and measurements, which are not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from adaptive_spec.errors import DataError

ENVIRONMENT_VARIABLE = "ADAPTIVE_SPEC_DATA"
BESIDE_THE_PROJECT = Path("../shared/data")


def data_folder(given: Path | None = None) -> Path:
    """The folder given, else ``ADAPTIVE_SPEC_DATA``, else ``../shared/data``.

    Raises DataError if there is no such folder.
    """
    if given is not None:
        folder, origin = given, "--data"
    elif named := os.environ.get(ENVIRONMENT_VARIABLE):
        folder, origin = Path(named), ENVIRONMENT_VARIABLE
    else:
        folder, origin = BESIDE_THE_PROJECT, "default"
    if not folder.is_dir():
        raise DataError(
            f"no data folder {str(folder)!r} ({origin}): give one with --data DIR or "
            f"{ENVIRONMENT_VARIABLE}"
        )
    return folder
