"""A sweep's policy texts, with what stands for the cell put in.

::

    ${folder}        folder of the configuration
    ${acceptance}    names of the cell on its axes
    ${drafter}
    ${hardware}
    ${tuned:NAME}    what the file `tuned` says under NAME for the cell's acceptance, drafter and
                     hardware, as JSON

The file `tuned` is JSON: ``{"NAME": {"ACCEPTANCE / DRAFTER / HARDWARE": value}}``; ``*`` matches
any name. A baseline that its authors tune, or that profiles its engine at start-up, gets the same
values here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.bounded_read import decode_json, read_small_file
from adaptive_spec.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_TUNED = "tuned:"

Tuned = dict[str, dict[str, Any]]


class PolicyTexts:
    """Substitution of a cell's values in policy texts.

    Args:
        file: of the configuration.
        tuned: file with tuned values, from the configuration's folder, or None.

    Raises ConfigError if that file can't be read.
    """

    def __init__(self, file: Path, tuned: str | None) -> None:
        self._folder = file.resolve().parent
        self.tuned_file = None if tuned is None else self._folder / tuned
        self._tuned: Tuned = {} if self.tuned_file is None else _read(self.tuned_file)

    def text(self, policy: str, acceptance: str, drafter: str, hardware: str) -> str:
        """The policy text of a cell.

        Raises ConfigError for a variable or value that is not there.
        """
        names = {
            "folder": str(self._folder),
            "acceptance": acceptance,
            "drafter": drafter,
            "hardware": hardware,
        }

        def value(match: re.Match[str]) -> str:
            variable = match[1]
            if variable in names:
                return names[variable]
            if variable.startswith(_TUNED):
                key = variable.removeprefix(_TUNED)
                return self._value(key, (acceptance, drafter, hardware), policy)
            known = ", ".join(f"${{{name}}}" for name in (*names, "tuned:NAME"))
            raise ConfigError(f"policy {policy!r}: no variable {match[0]}; there are {known}")

        return _VARIABLE.sub(value, policy)

    def _value(self, key: str, place: tuple[str, str, str], policy: str) -> str:
        found = self._tuned.get(key)
        if found is None:
            where = self.tuned_file or "the configuration, which names no file `tuned`"
            raise ConfigError(f"policy {policy!r}: no tuned value {key!r} in {where}")
        for pattern, value in found.items():
            parts = tuple(part.strip() for part in pattern.split(" / "))
            matches = (part in ("*", name) for part, name in zip(parts, place, strict=False))
            if len(parts) == len(place) and all(matches):
                return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        raise ConfigError(
            f"policy {policy!r}: {self.tuned_file}: {key!r} has no value for {' / '.join(place)}"
        )


def _read(file: Path) -> Tuned:
    try:
        tuned: Tuned = decode_json(read_small_file(file), Tuned)
    except OSError as error:
        raise ConfigError(f"tuned values {str(file)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{file}: not tuned values by name and cell: {error}") from error
    return tuned
