"""Entry point of `sglang.srt.plugins`: runs in every SGLang process, before anything is built.

SGLang logs what a plugin raises and goes on without it, so every refusal is said here in one line.
Not switched on: nothing of SGLang is imported or changed. Hooks go into scheduler processes only;
the algorithm ADAPTIVE_NGRAM is registered wherever arguments are read.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys

from adaptive_spec.errors import AdaptiveSpecError, UnsupportedEngineError

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

    settings = requested()
    if settings is None:
        return
    from adaptive_spec.adapters.sglang import signatures
    from adaptive_spec.adapters.sglang.versions import require_in_range
    from adaptive_spec.policy import configured_policy

    require_in_range(importlib.metadata.version("sglang"))
    folder = signatures.installed_folder()
    if folder is None:
        raise UnsupportedEngineError("the source of SGLang is not where its package says")
    features = signatures.available_features(folder)
    configured_policy(settings.config)
    if signatures.NGRAM in features:
        from adaptive_spec.adapters.sglang.ngram_algorithm import register_algorithm

        register_algorithm()
    if _SCHEDULER_MODULE in sys.modules:
        from adaptive_spec.adapters.sglang.hooks import install

        install(settings, features)
