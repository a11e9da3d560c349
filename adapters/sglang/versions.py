"""Table of SGLang versions that this adapter was run with or compared with."""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

_ROUTES = {"0.5.18": "parameters replaced in the controller", "0.5.20": "policy protocol"}
_OVERLAY = (
    "tests marked `every_version` on CPU, its wheel over the packages of 0.5.23: EAGLE, NGRAM"
)
_EXECUTED = {
    "0.5.20": _OVERLAY,
    "0.5.21": _OVERLAY,
    "0.5.22": _OVERLAY,
    "0.5.23": "all of `tests/sglang` on CPU: greedy and sampled, each algorithm with TP = 2",
}
_METHODS = {
    _OVERLAY: ("EAGLE", "NGRAM"),
    _EXECUTED["0.5.23"]: ("EAGLE", "EAGLE3", "STANDALONE", "NGRAM"),
}


def _row(version: str) -> KnownVersion:
    return KnownVersion(
        version=version,
        route=_ROUTES["0.5.18" if version < "0.5.20" else "0.5.20"],
        checked=_EXECUTED.get(version, "source of the wheel against `facts`; never executed"),
        methods=_METHODS.get(_EXECUTED.get(version, ""), ()),
    )


VERSIONS = VersionTable(
    engine="SGLang",
    go_on="unset ADAPTIVE_SPEC_CONFIG; see docs/sglang.md",
    rows=tuple(map(_row, ("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"))),
)
