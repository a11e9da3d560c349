import contextlib
import os
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):
    from hypothesis import settings

    # Machines that run the tests are shared: the time of one example says nothing.
    settings.register_profile("project", deadline=None, max_examples=60)
    # `make check` tries fewer examples than `make test`; tests that want more say so as a multiple.
    settings.register_profile("quick", deadline=None, max_examples=20)
    settings.load_profile("quick" if os.environ.get("ADAPTIVE_SPEC_QUICK") else "project")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data() -> Path:
    """The public data folder; tests that need it are skipped where there is none."""
    named = os.environ.get("ADAPTIVE_SPEC_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no public data in {folder}: set ADAPTIVE_SPEC_DATA")
    return folder
