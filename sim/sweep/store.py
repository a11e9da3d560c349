"""The directory of a sweep: its finished runs."""

from __future__ import annotations

import fcntl
import os
from operator import attrgetter
from pathlib import Path

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.line_file import KeyedFile
from adaptive_spec.sim.sweep.input_files import RUNS
from adaptive_spec.sim.sweep.task import Outcome

LOCK = "sweep.lock"
RESULTS_JSON, RESULTS_CSV = "results.json", "results.csv"


class Store:
    """The directory of a sweep. One process writes to it at a time.

    Args:
        directory: made if it is not there.
        fresh: drop what an earlier sweep has left in it.

    Attributes:
        runs: finished ones.

    Raises ConfigError if the directory can't be used or is in use.
    """

    def __init__(self, directory: Path, *, fresh: bool = False) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"--output {str(directory)!r}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if fresh:
                for name in (RUNS, RESULTS_JSON, RESULTS_CSV):
                    (directory / name).unlink(missing_ok=True)
            self.runs = KeyedFile(directory / RUNS, Outcome, attrgetter("key"))
        except BlockingIOError as error:
            os.close(self._lock)
            raise ConfigError(
                f"{directory}: another sweep is writing here; wait for it or use another --output"
            ) from error
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Let another process write here."""
        os.close(self._lock)
