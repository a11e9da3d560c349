"""Options of a `vllm serve` command by name, read without vLLM."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from adaptive_spec.bounded_read import decode_json, decode_yaml, read_small_file
from adaptive_spec.errors import ConfigError

_SHORT = {"-sc": "--speculative-config"}
_MOST_BYTES = 1 << 20


def given_options(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of long options, those of `--config FILE` included.

    JSON objects are decoded, and `--speculative-config.method ngram` is an object with `method`.

    Raises ConfigError if the file cannot be read.
    """
    options: dict[str, Any] = {}
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        name, *path = name.split(".")
        name = _SHORT.get(name, name).lstrip("-").replace("_", "-")
        following = words[place + 1 : place + 2]
        value = value if equals else following[0] if following else ""
        if not path:
            options[name] = _decoded(value)
            continue
        inner = options if isinstance(options.setdefault(name, {}), dict) else {}
        for step in (name, *path[:-1]):
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else {}
        if isinstance(inner, dict):
            inner[path[-1]] = _decoded(value)
    if file := options.get("config"):
        options = _of_file(str(file)) | options
    return options


def _of_file(path: str) -> dict[str, Any]:
    try:
        content = decode_yaml(read_small_file(path, _MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"--recipe: --config {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ConfigError(f"--recipe: --config {path}: no YAML that can be read: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--recipe: --config {path}: not an object with options")
    return {str(name).replace("_", "-"): _decoded(each) for name, each in content.items()}


def _decoded(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError):  # vLLM says what is wrong with it
            return decode_json(value)
    return value
