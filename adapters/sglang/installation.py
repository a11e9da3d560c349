"""Places of our hooks in SGLang, and the check that SGLang has applied them."""

from __future__ import annotations

import importlib.util
import logging
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

from adaptive_spec.adapters.sglang import facts, hooks
from adaptive_spec.adapters.sglang.settings import Settings, Source

_LOG = logging.getLogger("sglang.adaptive_spec")
_SRT = "sglang.srt."
_MANAGERS = _SRT + "managers."
_SPECULATIVE = _SRT + "speculative."
_EAGLE = _SPECULATIVE + "eagle_worker_v2."
_EXTEND = _EAGLE + "EagleDraftWorker._draft_extend_for_decode"


class Hook(NamedTuple):
    """Hook of SGLang: target, function, and moment (a member of SGLang's HookType)."""

    target: str
    function: Callable[..., Any]
    when: str


def hooks_for(settings: Settings, features: frozenset[str]) -> list[Hook]:
    """Return the hooks of the features that are available and asked for."""
    scheduler = _MANAGERS + "scheduler.Scheduler."
    controller = _SPECULATIVE + "adaptive_runtime_state.AdaptiveController.__init__"
    results = _MANAGERS + "scheduler_components.batch_result_processor."
    resolve = results + "SchedulerBatchResultProcessor._resolve_spec_v2_tokens"
    standalone = _SPECULATIVE + "standalone_worker_v2.StandaloneWorkerV2.__init__"
    forward = _EAGLE + "EAGLEWorkerV2.forward_batch_generation"
    all_hooks = (
        (facts.BASE, Hook(controller, hooks.after_controller_init, "AFTER")),
        (facts.BASE, Hook(scheduler + "__init__", hooks.after_scheduler_init, "AFTER")),
        (facts.BASE, Hook(scheduler + "run_batch", hooks.before_run_batch, "BEFORE")),
        (facts.BASE, Hook(scheduler + "process_batch_result", hooks.after_process, "AFTER")),
        (facts.BASE, Hook(resolve, hooks.before_resolve, "BEFORE")),
        (facts.STANDALONE, Hook(standalone, hooks.after_worker_init, "AFTER")),
        (facts.TREES, Hook(_EAGLE + "EAGLEWorkerV2.__init__", hooks.after_worker_init, "AFTER")),
        (facts.CONFIDENCE, Hook(_EXTEND, hooks.before_extend, "BEFORE")),
        (facts.CONFIDENCE, Hook(_EXTEND, hooks.after_extend, "AFTER")),
        (facts.PLANNING_AHEAD, Hook(forward, hooks.after_forward, "AFTER")),
        (facts.HTTP, Hook(_internal_state(), hooks.around_get_internal_state, "AROUND")),
    )
    wanted = features if settings.confidence else features - {facts.CONFIDENCE}
    return [hook for feature, hook in all_hooks if feature in wanted]


def install(settings: Settings, source: Source) -> None:
    """Register the hooks, and check them once SGLang has applied them."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    wanted = hooks_for(settings, source.features)
    for hook in wanted:
        HookRegistry.register(hook.target, hook.function, HookType[hook.when])
    _check_after(HookRegistry, wanted)
    # Last: whatever raises before leaves hooks that do nothing.
    hooks.SHARED.settings, hooks.SHARED.source = settings, source


def install_routes() -> None:
    """Have the HTTP server's routes added in the process that will be one, whichever it is."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    target = _SRT + "server_args.ServerArgs.check_server_args"
    HookRegistry.register(target, hooks.after_arguments_checked, HookType.AFTER)


def not_applied(wanted: list[Hook]) -> list[str]:
    """Return the targets without our hook; SGLang only logs that it could not apply one."""
    missing = []
    for target in {hook.target for hook in wanted}:
        functions = {hook.function for hook in wanted if hook.target == target}
        try:
            found = _hooked_with(pkgutil.resolve_name(target))
        except (ImportError, AttributeError):
            found = set()
        if not functions <= found:
            missing.append(target)
    return sorted(missing)


def _check_after(registry: Any, wanted: list[Hook]) -> None:
    """Check the hooks when SGLang has applied them, right after the plugins have run."""
    own = vars(registry)["apply_hooks"]

    def apply_hooks() -> None:
        registry.apply_hooks = own
        registry.apply_hooks()
        missing = not_applied(wanted)
        targets = len({hook.target for hook in wanted})
        hooks.SHARED.applied = f"{targets - len(missing)}/{targets}"
        if missing:
            hooks.SHARED.settings = None
            _LOG.error(
                "adaptive_spec: nothing is switched on: SGLang did not apply our hooks to %s; "
                "its log says why",
                ", ".join(missing),
            )

    registry.apply_hooks = apply_hooks


def _hooked_with(function: Any) -> set[Any]:
    """Return the hooks that SGLang's registry wrapped around a function."""
    found: set[Any] = set()
    while function is not None:
        for cell in getattr(function, "__closure__", None) or ():
            found.add(cell.cell_contents)
        function = getattr(function, "__wrapped__", None)
    return found


def _internal_state() -> str:
    components = _MANAGERS + "scheduler_components"
    if importlib.util.find_spec(components + ".internal_state") is None:
        return _MANAGERS + "scheduler.Scheduler.get_internal_state"
    return components + ".internal_state.SchedulerInternalStateController.get_internal_state"
