"""Table of SGLang versions that this adapter was run with or compared with."""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

_ROUTES = {"0.5.18": "parameters replaced in the controller", "0.5.20": "policy protocol"}
_EXECUTED = {
    "0.5.20": "greedy output on CPU before plans were made ahead: EAGLE, EAGLE3, STANDALONE, NGRAM",
    "0.5.22": "`test_same_output` on CPU, greedy: EAGLE, EAGLE3, STANDALONE, NGRAM",
    "0.5.23": "all of `tests/sglang` on CPU: the same four, sampled as well, each with TP = 2",
}


def _row(version: str) -> KnownVersion:
    return KnownVersion(
        version=version,
        route=_ROUTES["0.5.18" if version < "0.5.20" else "0.5.20"],
        checked=_EXECUTED.get(version, "source of the wheel against `facts`; never executed"),
        executed=version in _EXECUTED,
    )


VERSIONS = VersionTable(
    engine="SGLang",
    go_on="unset ADAPTIVE_SPEC_CONFIG; see docs/sglang.md",
    rows=tuple(map(_row, ("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"))),
)
