"""The words in which a load is given on the command line.

::

    closed:N          N clients, each sending its next request when its last one has ended
    poisson:RATE      RATE requests per second
    gamma:RATE:CV     the same with intervals of this coefficient of variation
    FILE              arrivals from a file or a directory, see `file_format`

``@`` and options may follow all but ``closed``, such as ``trace.csv@rate=1.3,first=600``:

======================  ====================================================================
``rate=FACTOR``         faster by this factor: arrival times are divided by it
``skip=SECONDS``        leave out what arrives in these first seconds
``first=SECONDS``       keep what arrives in this many seconds after that, by the load's own time
``closed=N``            only the lengths, sent by N clients in a closed loop
``unit=s``, ``unit=ms``  of the times in JSON lines, where a file does not tell
======================  ====================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.trace_files import Unit

FORMS = (
    "closed:N, poisson:RATE, gamma:RATE:CV or FILE, with @rate=FACTOR, @skip=SECONDS, "
    "@first=SECONDS, @closed=N or @unit=s behind it if wanted"
)
MOST_CLIENTS = 1_000_000


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options behind ``@``; see the module."""

    rate: float = 1.0
    skip: float = 0.0
    first: float = math.inf
    closed: int | None = None
    unit: Unit | None = None


@dataclass(frozen=True)
class Closed:
    """``closed:N``."""

    clients: int


@dataclass(frozen=True)
class Steady:
    """``poisson:RATE`` and ``gamma:RATE:CV``."""

    rate: float
    cv: float
    options: LoadOptions = field(default_factory=LoadOptions)


@dataclass(frozen=True)
class FromFile:
    """``FILE``."""

    path: Path
    options: LoadOptions = field(default_factory=LoadOptions)


def parse_text(text: str, folder: Path) -> Closed | Steady | FromFile:
    """Parse the text of a load.

    Args:
        text: as in the module's table.
        folder: what a relative path starts from.

    Raises ConfigError naming the text and the forms there are.
    """
    if found := existing_path(text, folder):
        path, behind = found
        return FromFile(path, _options(text, behind[1:]) if behind else LoadOptions())
    body, at, tail = text.partition("@")
    kind, _, arguments = body.partition(":")
    options = _options(text, tail) if at else LoadOptions()
    if kind == "closed":
        if at:
            raise ConfigError(f"load {text!r}: closed:N takes no options")
        return Closed(_clients(text, arguments))
    if kind == "poisson":
        return Steady(_positive(text, "RATE", arguments), 1.0, options)
    if kind == "gamma":
        rate, _, cv = arguments.partition(":")
        return Steady(_positive(text, "RATE", rate), _positive(text, "CV", cv), options)
    raise ConfigError(f"load {text!r}: neither a file nor one of the forms {FORMS}")


def existing_path(text: str, folder: Path) -> tuple[Path, str] | None:
    """Return the path that a text begins with, and its options from the ``@`` on; None if none is.

    A path may hold an ``@`` of its own: the longest one that exists counts.
    """
    end = len(text)
    while end > 0:
        try:
            if (folder / text[:end]).exists():
                return folder / text[:end], text[end:]
        except OSError:  # such as a name that is too long
            pass
        end = text.rfind("@", 0, end)
    return None


def _options(text: str, tail: str) -> LoadOptions:
    values: dict[str, float | int | str] = {}
    for part in tail.replace("@", ",").split(","):
        name, _, value = part.partition("=")
        if name in values:
            raise ConfigError(f"load {text!r}: option {name!r} is given twice")
        if name == "closed":
            values[name] = _clients(text, value)
        elif name == "unit" and value in get_args(Unit):
            values[name] = value
        elif name == "unit":
            raise ConfigError(f"load {text!r}: unit is s or ms, not {value!r}")
        elif name == "skip" and value.strip() in {"0", "0.0"}:
            values[name] = 0.0
        elif name in {"rate", "first", "skip"}:
            values[name] = _positive(text, name, value)
        else:
            raise ConfigError(
                f"load {text!r}: no option {name!r}; there are rate, skip, first, closed, unit"
            )
    return msgspec.convert(values, LoadOptions)


def _positive(text: str, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise ConfigError(
            f"load {text!r}: {name} must be a number above 0, got {value!r}; forms: {FORMS}"
        )
    return number


def _clients(text: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= MOST_CLIENTS):
        raise ConfigError(
            f"load {text!r}: N must be a whole number from 1 to {MOST_CLIENTS:,}, got {value!r}; "
            f"forms: {FORMS}"
        )
    return int(value)
