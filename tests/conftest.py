from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    from hypothesis import settings

    # Machines that run the tests are shared: the time of one example says nothing.
    settings.register_profile("project", deadline=None)
    settings.load_profile("project")
