"""Bad input is refused in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def refused(error: Any, *said: object, match: str | None = None) -> Iterator[None]:
    """Check that what runs within raises this error, in one line.

    Args:
        error: its type, or a tuple of types.
        said: what the line holds, each as text.
        match: a regular expression that the line meets.
    """
    with pytest.raises(error, match=match) as caught:
        yield
    line = str(caught.value)
    assert "\n" not in line
    for part in said:
        assert str(part) in line, line
