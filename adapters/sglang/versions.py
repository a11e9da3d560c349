"""Which SGLang this adapter was written for, and what was executed."""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

VERSIONS = VersionTable(
    engine="SGLang",
    go_on="unset ADAPTIVE_SPEC_CONFIG; see docs/sglang.md",
    rows=(
        KnownVersion(
            version="0.5.14",
            route="parameters replaced in the controller; no NGRAM",
            checked="source of the wheel against `facts`; never executed",
            executed=False,
        ),
        KnownVersion(
            version="0.5.18",
            route="parameters replaced in the controller",
            checked="source of the wheel against `facts`; never executed",
            executed=False,
        ),
        KnownVersion(
            version="0.5.20",
            route="policy protocol",
            checked="executed on CPU, greedy only: EAGLE, EAGLE3, STANDALONE, NGRAM",
            executed=True,
        ),
        KnownVersion(
            version="0.5.23",
            route="policy protocol",
            checked="executed on CPU, sampled as well: the same four; each with TP = 2",
            executed=True,
        ),
    ),
)
