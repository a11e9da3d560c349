"""The directory of a sweep: what it is of, and its finished runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from adaptive_spec import __version__
from adaptive_spec.bounded_read import DECODE_ERRORS, read_small_file
from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.line_file import LineFile, write_whole
from adaptive_spec.sim.sweep.cells import Cell
from adaptive_spec.sim.sweep.config import SweepConfig
from adaptive_spec.sim.sweep.input_files import SWEEP_HEADER, digest_of
from adaptive_spec.sim.sweep.task import Outcome

HEADER, RUNS, LOCK = SWEEP_HEADER, "runs.jsonl", "sweep.lock"
RESULTS_JSON, RESULTS_CSV = "results.json", "results.csv"


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the sweep whose runs a directory holds.

    Attributes:
        schema: version of the format.
        version: of this package.
        digest: of configuration, version and contents of the files that are read.
        config: the configuration.
    """

    schema: Literal[1] = 1
    version: str
    digest: str
    config: SweepConfig


def header_of(config: SweepConfig, cells: tuple[Cell, ...], folder: Path) -> Header:
    """The header of a sweep. Raises DataError if a file that it names can't be read."""
    identity = msgspec.json.encode((__version__, config, digest_of(config, cells, folder)))
    digest = hashlib.blake2b(identity, digest_size=16).hexdigest()
    return Header(version=__version__, digest=digest, config=config)


class Store:
    """The directory of a sweep. One process writes to it at a time.

    Args:
        directory: made if it is not there.
        header: of the sweep that is going to run.
        fresh: drop what an earlier sweep has left in it.

    Raises ConfigError if the directory can't be used, is in use, or holds another sweep.
    """

    def __init__(self, directory: Path, header: Header, *, fresh: bool = False) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"--output {str(directory)!r}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(
                f"{directory}: another sweep is writing here; wait for it or use another --output"
            ) from error
        try:
            self._open(header, fresh=fresh)
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, header: Header, *, fresh: bool) -> None:
        if fresh:
            for name in (HEADER, RUNS, RESULTS_JSON, RESULTS_CSV):
                (self.directory / name).unlink(missing_ok=True)
        there = self.directory / HEADER
        if there.exists():
            _check_same(there, header)
        else:
            if (self.directory / RUNS).exists():
                raise ConfigError(
                    f"{self.directory}: {RUNS} without {HEADER}: unknown what it belongs to; use "
                    "--fresh to drop it, or another --output"
                )
            write_whole(there, msgspec.json.format(msgspec.json.encode(header)) + b"\n")
        self._runs = LineFile(self.directory / RUNS, Outcome)
        self.finished = {outcome.key: outcome for outcome in self._runs}

    def add(self, outcome: Outcome) -> None:
        """Keep a finished run. When this returns it is on the disk."""
        self._runs.append(outcome)
        self.finished[outcome.key] = outcome

    def close(self) -> None:
        """Let another process write here."""
        os.close(self._lock)


def _check_same(path: Path, header: Header) -> None:
    remedy = "use --fresh to drop the old runs, or another --output"
    try:
        old = msgspec.json.decode(read_small_file(path), type=Header)
    except (OSError, *DECODE_ERRORS) as error:
        raise ConfigError(f"{path}: not the header of a sweep ({error}); {remedy}") from error
    if old.digest == header.digest:
        return
    if old.version != header.version:
        what = f"version {old.version} made the runs, this is {header.version}"
    else:
        fields = [field.name for field in msgspec.structs.fields(SweepConfig)]
        changed = [
            name for name in fields if getattr(old.config, name) != getattr(header.config, name)
        ]
        what = f"changed since: {', '.join(changed)}" if changed else "a data file has changed"
    raise ConfigError(f"{path.parent}: holds runs of another configuration, {what}; {remedy}")
