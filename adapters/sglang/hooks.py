"""Our hooks in SGLang, and the check that they were applied. What and why: PATCHES.md.

SGLang's registry wraps its own functions and calls these before or after them. Exceptions of
SGLang pass through unchanged; ours do not get out. There is one scheduler per process, so what
the hooks share is in one object.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import pkgutil
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from adaptive_spec.adapters.sglang import signatures
from adaptive_spec.adapters.sglang.attach import Attached, attach
from adaptive_spec.adapters.sglang.capability import unsupported_here
from adaptive_spec.adapters.sglang.own_schedule import FixedSchedule
from adaptive_spec.adapters.sglang.runtime_switch import set_internal_state
from adaptive_spec.adapters.sglang.settings import Settings
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.errors import AdaptiveSpecError

LOG = logging.getLogger("sglang.adaptive_spec")

_SRT = "sglang.srt."
_EAGLE = _SRT + "speculative.eagle_worker_v2.EagleDraftWorker._draft_extend_for_decode"


class Hook(NamedTuple):
    """One hook: where, what, and when (a member of SGLang's HookType)."""

    target: str
    function: Callable[..., Any]
    when: str


class Shared:
    """What the hooks of this process share.

    Attributes:
        settings: what was asked for; None: nothing is switched on.
        features: what this SGLang's source allows.
        attached: what hangs on the scheduler; None before it is built, or where it is left alone.
        reason: why a draft worker got no parameters of ours.
        applied: hooks applied, of how many; empty before that is known.
    """

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.features: frozenset[str] = frozenset()
        self.attached: Attached | None = None
        self.reason = ""
        self.applied = ""


SHARED = Shared()


def contained(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook that neither raises nor changes what SGLang's function gets or returns."""

    @functools.wraps(hook)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except AdaptiveSpecError as error:
            LOG.error("adaptive_spec: nothing is switched on: %s", error)
        except Exception as error:
            LOG.error(
                "adaptive_spec: hook %s failed (%s: %s)",
                hook.__name__,
                type(error).__name__,
                error,
            )

    return wrapper


@contained
def after_controller_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """`AdaptiveController` is built: it asks us, and we know whom to ask instead."""
    if SHARED.settings is not None and not isinstance(self.params, SteeredParams):
        self.params = SteeredParams(self.params)


@contained
def after_standalone_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """A STANDALONE worker is built: give it the controller that EAGLE's has."""
    if SHARED.settings is None:
        return
    from sglang.srt.speculative import adaptive_runtime_state, adaptive_spec_params

    SHARED.reason = unsupported_here(self.server_args)
    if self.topk != 1:
        SHARED.reason = "STANDALONE needs --speculative-eagle-topk 1"
    if SHARED.reason:
        return
    path = getattr(self.server_args, "speculative_adaptive_config", None)
    candidates = adaptive_spec_params.resolve_candidate_steps_from_config(cfg_path=path)
    params = SteeredParams(FixedSchedule(self.speculative_num_steps, candidates))
    # Not through its constructor: before 0.5.20 that builds parameters of its own.
    controller_class = adaptive_runtime_state.AdaptiveController
    controller = controller_class.__new__(controller_class)
    controller.worker, controller.params, controller._states = self, params, {}
    self.adaptive_controller = controller


@contained
def after_scheduler_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """The scheduler is built: attach to it."""
    if SHARED.settings is not None and SHARED.attached is None:
        SHARED.attached = attach(
            self, SHARED.settings, SHARED.features, reason=SHARED.reason, hooks=SHARED.applied
        )


@contained
def before_run_batch(self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """A batch is about to run."""
    attached = SHARED.attached
    if attached is not None:
        attached.driver.before_run(batch)
        if attached.trim is not None:
            attached.trim.step()


@contained
def before_resolve(self: Any, result: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Results of a decode step are on the CPU."""
    if SHARED.attached is not None:
        SHARED.attached.driver.read(result, batch)


@contained
def after_process(done: Any, self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """The results of a batch have been processed."""
    attached = SHARED.attached
    if attached is not None:
        attached.driver.applied(batch)
        if attached.metrics is not None:
            attached.metrics.refresh(time.monotonic())


@contained
def before_extend(self: Any, *args: Any, **kwargs: Any) -> None:
    """Draft-extend begins."""
    tap = SHARED.attached.confidence if SHARED.attached is not None else None
    if tap is not None:
        tap.watch_graphs(getattr(self, "cuda_graph_runner_for_draft_extend", None))
        tap.before_extend()


@contained
def after_extend(result: Any, self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Draft-extend has run."""
    tap = SHARED.attached.confidence if SHARED.attached is not None else None
    if tap is not None:
        tap.after_extend(batch)


def around_set_internal_state(own: Callable[..., Any], self: Any, request: Any) -> Any:
    """The operator sets a value while the server runs."""
    driver = SHARED.attached.driver if SHARED.attached is not None else None
    return set_internal_state(own, self, request, driver)


def hooks_for(settings: Settings, features: frozenset[str]) -> list[Hook]:
    """The hooks for what was asked for and what this SGLang has."""
    speculative, managers = _SRT + "speculative.", _SRT + "managers."
    found = [
        Hook(
            speculative + "adaptive_runtime_state.AdaptiveController.__init__",
            after_controller_init,
            "AFTER",
        ),
        Hook(managers + "scheduler.Scheduler.__init__", after_scheduler_init, "AFTER"),
        Hook(managers + "scheduler.Scheduler.run_batch", before_run_batch, "BEFORE"),
        Hook(managers + "scheduler.Scheduler.process_batch_result", after_process, "AFTER"),
        Hook(
            managers + "scheduler_components.batch_result_processor."
            "SchedulerBatchResultProcessor._resolve_spec_v2_tokens",
            before_resolve,
            "BEFORE",
        ),
    ]
    if signatures.STANDALONE in features:
        target = speculative + "standalone_worker_v2.StandaloneWorkerV2.__init__"
        found.append(Hook(target, after_standalone_init, "AFTER"))
    if settings.confidence and signatures.CONFIDENCE in features:
        found += [Hook(_EAGLE, before_extend, "BEFORE"), Hook(_EAGLE, after_extend, "AFTER")]
    if signatures.RUNTIME_SWITCH in features:
        found.append(Hook(_internal_state_target(), around_set_internal_state, "AROUND"))
    return found


def install(settings: Settings, features: frozenset[str]) -> None:
    """Register the hooks, and check them once SGLang has applied them."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    wanted = hooks_for(settings, features)
    for hook in wanted:
        HookRegistry.register(hook.target, hook.function, HookType[hook.when])
    SHARED.settings, SHARED.features = settings, features
    _check_after(HookRegistry, wanted)


def not_applied(wanted: list[Hook]) -> list[str]:
    """Targets without our hook. SGLang logs a failure to apply one and goes on."""
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
    """Look at the hooks when SGLang has applied them: right after the plugins have run."""
    own = vars(registry)["apply_hooks"]

    def apply_hooks() -> None:
        registry.apply_hooks = own
        registry.apply_hooks()
        missing = not_applied(wanted)
        targets = len({hook.target for hook in wanted})
        SHARED.applied = f"{targets - len(missing)}/{targets}"
        if missing:
            SHARED.settings = None
            LOG.error(
                "adaptive_spec: nothing is switched on: SGLang did not apply our hooks to %s; "
                "its log says why",
                ", ".join(missing),
            )

    registry.apply_hooks = apply_hooks


def _hooked_with(function: Any) -> set[Any]:
    """The hooks that SGLang's registry wrapped around a function."""
    found: set[Any] = set()
    while function is not None:
        for cell in getattr(function, "__closure__", None) or ():
            found.add(cell.cell_contents)
        function = getattr(function, "__wrapped__", None)
    return found


def _internal_state_target() -> str:
    components = _SRT + "managers.scheduler_components"
    if importlib.util.find_spec(components + ".internal_state") is None:
        return _SRT + "managers.scheduler.Scheduler.set_internal_state"
    return components + ".internal_state.SchedulerInternalStateController.set_internal_state"
