from __future__ import annotations

import contextlib
import os

with contextlib.suppress(ImportError):
    from hypothesis import settings

    # Machines that run the tests are shared: the time of one example says nothing.
    settings.register_profile("project", deadline=None, max_examples=60)
    # `make check` tries fewer examples than `make test`; tests that want more say so as a multiple.
    settings.register_profile("quick", deadline=None, max_examples=20)
    settings.load_profile("quick" if os.environ.get("ADAPTIVE_SPEC_QUICK") else "project")
