"""A load described in a YAML file: changing rates, changing concurrency, tenants.

Exactly one of the three keys at the top::

    rate:                       # an open load whose rate varies
      base: gamma:5:2           # any open load; a factor multiplies its rate
      pieces:
        - {seconds: 300, from: 1, to: 10}    # ramp
        - {seconds: 60, at: 10}              # hold
        - {seconds: 5, at: 100}              # burst
      repeat: true

    rate:
      base: trace.csv
      bursts: {every: 120, seconds: 5, factor: 8}    # at random times

    concurrency:                # a closed loop whose number of clients varies
      pieces: [{seconds: 60, from: 1, to: 64}, {seconds: 60, at: 4}]

    tenants:
      - {name: chat, load: poisson:3, task: prose, tpot_ms: 50}
      - name: batch
        load: closed:8          # or a description such as this one
        prompt_tokens: 2000
        output_tokens: {mean: 300, cv: 1.5, most: 4096}

Paths start from the folder of the YAML file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from adaptive_spec.bounded_read import decode_yaml, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.load.arrivals import NonNegative, Piece, Positive
from adaptive_spec.sim.load.request import LogNormalTokens, Tokens


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Bursts(_Strict, frozen=True, kw_only=True):
    """Bursts at random times; see `arrivals.random_bursts`."""

    every: Positive
    seconds: Positive
    factor: Positive


class _Lengths(_Strict, frozen=True, kw_only=True):
    prompt_tokens: Tokens | LogNormalTokens | None = None
    """None: as the requests of the load have it."""
    output_tokens: Tokens | LogNormalTokens | None = None


class Rate(_Lengths, frozen=True, kw_only=True):
    """An open load whose rate varies."""

    base: str = "poisson:1"
    pieces: tuple[Piece, ...] = ()
    repeat: bool = False
    bursts: Bursts | None = None

    def __post_init__(self) -> None:
        if bool(self.pieces) == (self.bursts is not None):
            raise ValueError("give either `pieces` or `bursts`")


class Concurrency(_Lengths, frozen=True, kw_only=True):
    """A closed loop whose number of clients varies."""

    pieces: tuple[Piece, ...]
    repeat: bool = False


class Tenant(_Lengths, frozen=True, kw_only=True):
    """One of several tenants that share the server. What is None is left as the load has it.

    Attributes:
        name: unique; the beginning of its requests' ids.
        load: when its requests come, and how long they are.
        task: label of its requests. One that followed a record of another label follows any
            record with this label.
        tpot_ms: milliseconds per output token asked for.
        temperature: sampling temperature.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    load: str | Description
    task: str | None = None
    tpot_ms: Positive | None = None
    temperature: NonNegative | None = None


class Description(_Strict, frozen=True, kw_only=True):
    """Exactly one of these."""

    rate: Rate | None = None
    concurrency: Concurrency | None = None
    tenants: tuple[Tenant, ...] | None = None

    def __post_init__(self) -> None:
        if sum(getattr(self, name) is not None for name in self.__struct_fields__) != 1:
            raise ValueError("give exactly one of " + ", ".join(self.__struct_fields__))


_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "pieces": Piece,
    "bursts": Bursts,
    "rate": Rate,
    "concurrency": Concurrency,
    "tenants": Tenant,
    "load": Description,
    "prompt_tokens": LogNormalTokens,
    "output_tokens": LogNormalTokens,
}


def read_description(path: Path) -> Description:
    """Read and check a YAML file.

    Raises ConfigError in one line: not readable, not YAML, an unknown or missing key, or a value
    that cannot be used, with the keys there are.
    """
    try:
        value = decode_yaml(read_small_file(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    try:
        return msgspec.convert(value, Description)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}; {_keys(str(error))}") from error


def _keys(message: str) -> str:
    """The keys of the object that a msgspec message speaks of."""
    where = message.rpartition("`$")[2] if "`$" in message else ""
    names = [name for name in re.findall(r"[a-z_]+", where) if name in _STRUCTS]
    struct = _STRUCTS[names[-1]] if names else Description
    return "keys are " + ", ".join(each.encode_name for each in msgspec.structs.fields(struct))
