"""A copy of those files of an engine that facts are about, to plant changes in."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptive_spec.engines import source_check
from adaptive_spec.engines.source_check import EngineSource
from adaptive_spec.engines.source_facts import files_of


class PlantedTree:
    """The copy; whole again after each test, with the files that are as they were parsed once.

    Attributes:
        folder: the package's.
    """

    def __init__(self, source: EngineSource, folder: Path) -> None:
        installed = source.installed_folder()
        assert installed is not None
        self.folder, self._installed = folder, installed
        files = set().union(*(files_of(fact) for some in source.facts.values() for fact in some))
        self._files = [file for file in files if (installed / file).exists()]
        self._changed = set(self._files)

    def plant(self, file: str, pattern: str, replacement: str) -> None:
        """Replace a regular expression in a file; "*": in all that have it."""
        planted = 0
        for each in self._files if file == "*" else [file]:
            path = self.folder / each
            text, count = re.subn(pattern, replacement, path.read_text(encoding="utf-8"))
            if count:
                path.write_text(text, encoding="utf-8")
                self._changed.add(each)
            planted += count
        assert planted, "nothing was planted"

    def used(self, monkeypatch: pytest.MonkeyPatch) -> Iterator["PlantedTree"]:
        """For a fixture: hand it out, whole."""
        monkeypatch.setattr(source_check, "forget_files", lambda: None)
        for file in self._changed:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._installed / file, self.folder / file)
        self._changed.clear()
        yield self
