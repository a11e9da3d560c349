"""A sweep's policy texts, with what stands for the cell put in.

::

    ${folder}        folder of the configuration
    ${acceptance}    names of the cell on its axes
    ${drafter}
    ${hardware}
"""

from __future__ import annotations

import re
from pathlib import Path

from adaptive_spec.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def cell_text(policy: str, folder: Path, acceptance: str, drafter: str, hardware: str) -> str:
    """The policy text of a cell. Raises ConfigError for a variable that is not there.

    Args:
        policy: as written.
        folder: of the configuration.
        acceptance: name of the cell's acceptance set.
        drafter: its drafter.
        hardware: its hardware.
    """
    names = {
        "folder": str(folder.resolve()),
        "acceptance": acceptance,
        "drafter": drafter,
        "hardware": hardware,
    }

    def value(match: re.Match[str]) -> str:
        if match[1] in names:
            return names[match[1]]
        known = ", ".join(f"${{{name}}}" for name in names)
        raise ConfigError(f"policy {policy!r}: no variable {match[0]}; there are {known}")

    return _VARIABLE.sub(value, policy)
