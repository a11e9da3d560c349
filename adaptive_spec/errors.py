"""Exceptions that the package raises on purpose.

    AdaptiveSpecError
    ├── ConfigError              a key, file or value the user can correct
    ├── DataError                a data file that is missing, damaged or of another format
    ├── PolicyError              a policy that cannot be found, built or restored
    └── UnsupportedEngineError   an engine version or set-up we have not tested

Messages are one line, name the offending key or file and give the remedy.
"""

from __future__ import annotations


class AdaptiveSpecError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(AdaptiveSpecError):
    """The configuration cannot be used; the message names the key and the remedy."""


class DataError(AdaptiveSpecError):
    """A data file cannot be read; the message names the file and, where possible, the row."""


class PolicyError(AdaptiveSpecError):
    """A policy cannot be found, built or restored."""


class UnsupportedEngineError(AdaptiveSpecError):
    """The engine's version or set-up is outside what has been tested."""


def described(error: BaseException) -> str:
    """Return type and text of an error of anybody's code. Never raises, as its `str` may."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def missing_extra(sentence: str, extra: str) -> ConfigError:
    """Return the error for a package that is not installed.

    Args:
        sentence: what needs which package.
        extra: of this project's, which brings it. The project is not on PyPI: a checkout is needed.
    """
    return ConfigError(f"{sentence}: pip install '.[{extra}]' in a checkout of adaptive-spec")
