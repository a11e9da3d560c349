"""Entry point of `sglang.srt.plugins`: runs in every SGLang process, before anything is built.

SGLang logs what a plugin raises and goes on without it, so every refusal is said here in one line.
Not switched on: nothing of SGLang is imported or changed. Hooks go into scheduler processes only;
the algorithm ADAPTIVE_NGRAM is registered wherever arguments are read.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import sys

from adaptive_spec.errors import AdaptiveSpecError

_SCHEDULER_MODULE = "sglang.srt.managers.scheduler"


def register() -> None:
    """Register hooks and algorithm, if something is switched on."""
    log = logging.getLogger("sglang.adaptive_spec")
    try:
        _register()
    except AdaptiveSpecError as error:
        log.error("adaptive_spec: nothing is switched on: %s", error)
    except Exception as error:
        log.error(
            "adaptive_spec: cannot attach to this SGLang (%s: %s), nothing is switched on; run "
            "`adaptive-spec doctor`",
            type(error).__name__,
            error,
        )


def _register() -> None:
    from adaptive_spec.adapters.sglang.settings import requested

    try:
        settings = requested()
    except AdaptiveSpecError:
        with contextlib.suppress(AdaptiveSpecError):
            _features()  # a server launched with ADAPTIVE_NGRAM starts all the same
        raise
    if settings is None:
        return
    features = _features()
    from adaptive_spec.policy import configured_policy

    configured_policy(settings.config)
    if _SCHEDULER_MODULE in sys.modules:
        from adaptive_spec.adapters.sglang.installation import install

        install(settings, features)


def _features() -> frozenset[str]:
    """What this SGLang allows; where it allows ADAPTIVE_NGRAM, that is registered.

    Raises UnsupportedEngineError, one line, for an SGLang that we don't know.
    """
    from adaptive_spec.adapters.sglang import facts
    from adaptive_spec.adapters.sglang.versions import VERSIONS

    VERSIONS.admit(importlib.metadata.version("sglang"), allow_untested=False)
    features = facts.SOURCE.require([facts.BASE]).available
    if facts.NGRAM in features:
        from adaptive_spec.adapters.sglang.ngram_algorithm import register_algorithm

        register_algorithm()
    return features
