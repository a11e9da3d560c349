"""Modules of SGLang for comparisons: skipped without SGLang, never where they must be there."""

import importlib
import os
from typing import Any

import pytest


def upstream_module(name: str) -> Any:
    """A module of SGLang; skips the test file where it can't be imported.

    With SGLANG_USE_CPU_ENGINE, as the project's SGLang stage sets it, that is an error.
    """
    try:
        return importlib.import_module(name)
    except Exception as error:
        # Not only ImportError: a half-usable installation fails in many ways.
        if os.environ.get("SGLANG_USE_CPU_ENGINE"):
            raise
        pytest.skip(f"{name} can't be imported: {error!r:.200}", allow_module_level=True)
