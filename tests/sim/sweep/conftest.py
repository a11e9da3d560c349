from pathlib import Path

import pytest

from tests.sim.sweep.fake_sweep import call, write_sweep


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """The directory of the tiny sweep, run to its end; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    result = call(write_sweep(folder), "--output", folder / "out", "--jobs", 1)
    assert result.exit_code == 0, result.output
    (folder / "output.txt").write_text(result.stdout)
    return folder / "out"
