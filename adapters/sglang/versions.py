"""Table of SGLang versions that this adapter was run with or compared with."""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

_CALLER = "parameters replaced in the controller"
_PROTOCOL = "policy protocol"
_SOURCE = "source of the wheel against `facts`; never executed"


def _row(version: str, route: str, checked: str = _SOURCE) -> KnownVersion:
    executed = checked != _SOURCE
    return KnownVersion(version=version, route=route, checked=checked, executed=executed)


VERSIONS = VersionTable(
    engine="SGLang",
    go_on="unset ADAPTIVE_SPEC_CONFIG; see docs/sglang.md",
    rows=(
        _row("0.5.18", _CALLER),
        _row("0.5.19", _CALLER),
        _row("0.5.20", _PROTOCOL),
        _row("0.5.21", _PROTOCOL),
        _row("0.5.22", _PROTOCOL),
        _row(
            "0.5.23",
            _PROTOCOL,
            "all of `tests/sglang` on CPU: EAGLE, EAGLE3, STANDALONE, NGRAM; each with TP = 2",
        ),
    ),
)
