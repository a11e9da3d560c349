"""The configuration gate: what happens where vLLM's configuration is created and we are asked for.

Our configuration is validated first, then vLLM resolves its own, then our scheduler class is named
in it and our settings ride along as an attribute, which reaches EngineCore by pickling. `plugin`
wraps the function and calls the gate.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from adaptive_spec.adapters.vllm import KEY, graph_ladder, own_scheduler, varlen_graphs
from adaptive_spec.adapters.vllm.capability import MISSING, Support, detect
from adaptive_spec.adapters.vllm.draft_signal.worker import WORKERS
from adaptive_spec.adapters.vllm.facts import ALONE, BASE, LADDER, SOURCE, VARLEN
from adaptive_spec.adapters.vllm.hooks import ATTRIBUTE
from adaptive_spec.adapters.vllm.metrics import show_figures
from adaptive_spec.adapters.vllm.spans import annotate_spans
from adaptive_spec.adapters.vllm.versions import VERSIONS
from adaptive_spec.adapters.vllm.worker_facts import SIGNAL, V2_SIGNAL
from adaptive_spec.config import Config, config_from_environment, parse_config
from adaptive_spec.errors import missing_extra
from adaptive_spec.operation.output_file import unwritable
from adaptive_spec.policy import configured_policy, refuse_biased
from adaptive_spec.step import Level

_SCHEDULERS = "adaptive_spec.adapters.vllm.schedulers"
_LOG = logging.getLogger("vllm.adaptive_spec")


def gated_config(original: Callable[..., Any], arguments: Any, *args: Any, **kwargs: Any) -> Any:
    """Create vLLM's configuration, with our scheduler in it if that is asked for.

    Args:
        original: vLLM's `EngineArgs.create_engine_config`.
        arguments: vLLM's EngineArgs.
        *args: further arguments of `original`.
        **kwargs: likewise.
    """
    given = arguments.additional_config
    config = requested_config(given)
    if config is not None and config.mode != "off":
        missing = _require_usable(config)
    # Out of sight while vLLM resolves its configuration: additional_config enters the hash
    # of its compile cache.
    arguments.additional_config = _without_key(given)
    if config is not None and config.mode == "on" and config.take_over:
        speculation = arguments.speculative_config
        arguments.speculative_config = _without_adaptive_verification(speculation)
    try:
        vllm_config = original(arguments, *args, **kwargs)
    finally:
        arguments.additional_config = given
    if config is not None and config.mode != "off":
        setattr(vllm_config.scheduler_config, MISSING, missing)
        switch_on(vllm_config, config, own_sizes=_own_sizes(arguments))
        if hasattr(vllm_config.scheduler_config, ATTRIBUTE):
            show_figures(vllm_config)
            annotate_spans(vllm_config)
    return vllm_config


def requested_config(additional_config: object) -> Config | None:
    """The configuration asked for: the key in additional_config, else the environment.

    Raises ConfigError, one line naming the key and the remedy.
    """
    if isinstance(additional_config, Mapping) and KEY in additional_config:
        return parse_config(additional_config[KEY], source=f"--additional-config {KEY}")
    return config_from_environment()


def switch_on(vllm_config: Any, config: Config, *, own_sizes: bool = False) -> None:
    """Name our scheduler in a resolved configuration that leaves something to decide.

    Args:
        vllm_config: vLLM's, resolved.
        config: ours.
        own_sizes: the user has given the sizes of CUDA graphs to capture; they stay.

    Raises ConfigError, one line, if the two configurations contradict each other.
    """
    support = detect(vllm_config)
    if support.capability is None:
        _LOG.warning("adaptive_spec: nothing is switched on: %s", support.inert)
        return
    refuse_biased(configured_policy(config), support.capability)
    scheduler_config = vllm_config.scheduler_config
    name = "AdaptiveAsyncScheduler" if scheduler_config.async_scheduling else "AdaptiveScheduler"
    if (given := scheduler_config.scheduler_cls) is not None:
        name = own_scheduler.over(given, asynchronous=bool(scheduler_config.async_scheduling))
    acts = config.mode == "on" or config.shadow_share > 0.0
    if acts and not support.shadow and ALONE not in support.missing:
        try:
            _prepare_graphs(vllm_config, config, support, own_sizes)
        except Exception as error:
            # One K per batch runs all the same, only not in full graphs.
            _LOG.warning(
                "adaptive_spec: no ladder is captured (%s: %s)", type(error).__name__, error
            )
        support = detect(vllm_config, expected=True)
    # On the nested object: vLLM copies VllmConfig field by field and stumbles over strangers.
    setattr(scheduler_config, ATTRIBUTE, config)
    scheduler_config.scheduler_cls = f"{_SCHEDULERS}.{name}"
    try:
        _name_our_worker(vllm_config, support, config)
    except Exception as error:
        _LOG.warning(
            "adaptive_spec: confidence is not read and no drafts are copied (%s: %s)",
            type(error).__name__,
            error,
        )


def _name_our_worker(vllm_config: Any, support: Support, config: Config) -> None:
    """Let workers show confidence and copy drafts, where a request's K can follow from them."""
    capability, parallel = support.capability, vllm_config.parallel_config
    assert capability is not None
    of_use = config.confidence and not {SIGNAL, V2_SIGNAL} & set(support.missing)
    of_use |= config.second_source is not None
    of_use &= not support.shadow and capability.level is not Level.UNIFORM
    # Ray calls the model runner past the worker. A worker class of the user's stays.
    of_use &= parallel.distributed_executor_backend != "ray"
    if of_use and parallel.worker_cls in WORKERS:
        parallel.worker_cls = WORKERS[parallel.worker_cls]


def _own_sizes(engine_arguments: Any) -> bool:
    """Has the user given `cudagraph_capture_sizes`?"""
    compilation = engine_arguments.compilation_config
    return bool(
        getattr(engine_arguments, "cudagraph_capture_sizes", None)
        or getattr(compilation, "cudagraph_capture_sizes", None)
    )


def _prepare_graphs(vllm_config: Any, config: Config, support: Support, own_sizes: bool) -> None:
    """Request graphs that take every K; capture a ladder of K where none are expected."""
    lacks = getattr(vllm_config.scheduler_config, MISSING, {})
    refusal = varlen_graphs.can_be_asked(vllm_config)
    if not config.varlen_graphs:
        refusal = "`varlen_graphs` is false"
    elif VARLEN in lacks:
        refusal = f"this vLLM lacks {VARLEN}"
    if refusal:
        varlen_graphs.refuse(vllm_config, refusal)
    else:
        refusal = varlen_graphs.expected_refusal(vllm_config)
        varlen_graphs.ask_workers(vllm_config, refusal)
    if not refusal:
        if not own_sizes:
            varlen_graphs.cover_every_batch(vllm_config)
        _LOG.info("adaptive_spec: decode graphs that take every K are asked for")
    if LADDER not in support.missing and graph_ladder.can_capture(vllm_config):
        _capture_ladder(vllm_config, own_sizes, drafts_only=not refusal)


def _capture_ladder(vllm_config: Any, own_sizes: bool, *, drafts_only: bool) -> None:
    if own_sizes and not drafts_only:
        _LOG.warning(
            "adaptive_spec: only K = %d has full CUDA graphs: cudagraph_capture_sizes are given, "
            "and the ladder needs sizes of its own; leave them out to capture it",
            vllm_config.num_speculative_tokens,
        )
        return
    before = len(vllm_config.compilation_config.cudagraph_capture_sizes)
    ladder = graph_ladder.capture(vllm_config, drafts_only=drafts_only)
    if ladder is None:
        _LOG.warning(
            "adaptive_spec: only the configured K have full CUDA graphs: those of others would not "
            "fit beside them (max_num_seqs, or 1 + K without a small common multiple)"
        )
        return
    values = ", ".join(map(str, ladder.values))
    if drafts_only:
        _LOG.info("adaptive_spec: draft loops are captured for depth %s", values)
        return
    _LOG.info(
        "adaptive_spec: %d decode graphs are captured, for K = %s; the sizes are %d, of vLLM's %d",
        ladder.graphs,
        values,
        len(vllm_config.compilation_config.cudagraph_capture_sizes),
        before,
    )


def _require_usable(config: Config) -> dict[str, str]:
    """Raise now what would otherwise only fail in EngineCore, seconds later and further away.

    Returns the features that this vLLM's source lacks -> what is missing.
    """
    import vllm

    warning = VERSIONS.admit(vllm.__version__, allow_untested=config.allow_untested)
    missing = _missing_features(SOURCE.installed_folder())
    configured_policy(config)
    if config.second_source is not None and find_spec("arctic_inference") is None:
        raise missing_extra("adaptive_spec `second_source` needs arctic-inference", "lookup")
    for sentence in (*([warning] if warning else []), *unwritable(config)):
        _LOG.warning("adaptive_spec: %s", sentence)
    return missing


@functools.cache
def _missing_features(package: Path | None) -> dict[str, str]:
    return SOURCE.require([BASE], package).missing


def _without_adaptive_verification(speculation: Any) -> Any:
    """The user's --speculative-config, in which vLLM trims nothing by itself."""
    if isinstance(speculation, Mapping) and speculation.get("enable_adaptive_verification"):
        _LOG.info("adaptive_spec: takes over from enable_adaptive_verification, which is off")
        return {**speculation, "enable_adaptive_verification": False}
    return speculation


def _without_key(additional_config: Any) -> Any:
    if isinstance(additional_config, Mapping) and KEY in additional_config:
        return {key: value for key, value in additional_config.items() if key != KEY}
    return additional_config
