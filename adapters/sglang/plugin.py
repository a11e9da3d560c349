"""Entry point of `sglang.srt.plugins`: runs in every SGLang process, before anything is built.

SGLang logs what a plugin raises and goes on without it, so every refusal is said here in one line.
Not switched on: nothing of SGLang is imported or changed. Hooks go into scheduler processes, those
of the HTTP routes wherever arguments are checked; the algorithm ADAPTIVE_NGRAM is registered
wherever they are read.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import sys
from typing import TYPE_CHECKING

from adaptive_spec.errors import AdaptiveSpecError

if TYPE_CHECKING:
    from adaptive_spec.adapters.sglang.settings import Source

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
    from adaptive_spec.config import mistaken_names

    try:
        settings = requested()
    except AdaptiveSpecError:
        with contextlib.suppress(AdaptiveSpecError):
            _source()  # a server launched with ADAPTIVE_NGRAM starts all the same
        raise
    if settings is None:
        for sentence in mistaken_names({}):
            logging.getLogger("sglang.adaptive_spec").warning("adaptive_spec: %s", sentence)
        return
    source = _source(allow_untested=settings.config.allow_untested)
    from adaptive_spec.policy import configured_policy

    configured_policy(settings.config)
    from adaptive_spec.adapters.sglang import facts, installation

    if facts.HTTP in source.features:
        installation.install_routes()
    if _SCHEDULER_MODULE in sys.modules:
        installation.install(settings, source)


def _source(*, allow_untested: bool = True) -> Source:
    """Check the installed SGLang, and register ADAPTIVE_NGRAM where its source allows that.

    Raises UnsupportedEngineError, one line, if the adapter cannot run.
    """
    from adaptive_spec.adapters.sglang import facts
    from adaptive_spec.adapters.sglang.settings import Source
    from adaptive_spec.adapters.sglang.versions import VERSIONS

    version = importlib.metadata.version("sglang")
    warning = VERSIONS.admit(version, allow_untested=allow_untested)
    report = facts.SOURCE.require([facts.BASE])
    if facts.NGRAM in report.available:
        from adaptive_spec.adapters.sglang.ngram_algorithm import register_algorithm

        register_algorithm()
    return Source(features=report.available, missing=report.missing, warning=warning)
