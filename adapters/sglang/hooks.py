"""Functions that SGLang's hooks call; `installation` places them, PATCHES.md has the reasons.

SGLang's registry wraps its own functions and calls these before or after them. Exceptions of
SGLang pass through unchanged; ours do not get out. There is one scheduler per process, so what
the hooks share is in one object.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from adaptive_spec.adapters.sglang.arms import give_controller
from adaptive_spec.adapters.sglang.attach import Attached, attach
from adaptive_spec.adapters.sglang.endpoint import answered, serve
from adaptive_spec.adapters.sglang.settings import Settings, Source
from adaptive_spec.adapters.sglang.steered_params import SteeredParams

LOG = logging.getLogger("sglang.adaptive_spec")


class Shared:
    """State that the hooks of this process share.

    Attributes:
        settings: what was asked for; None: nothing is switched on.
        source: what this SGLang allows.
        attached: what hangs on the scheduler; None before it is built, or where it is left alone.
        reason: why a draft worker got no parameters of ours.
        applied: hooks applied, of how many; empty before that is known.
    """

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.source = Source()
        self.attached: Attached | None = None
        self.reason = ""
        self.applied = ""


SHARED = Shared()


def contained(hook: Callable[..., None]) -> Callable[..., None]:
    """Wrap a hook so that it neither raises nor changes arguments or results of SGLang's function.

    What goes wrong is counted where there is a controller, and said once of each kind.
    """
    said: set[type[Exception]] = set()

    @functools.wraps(hook)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            hook(*args, **kwargs)
        except Exception as error:
            if SHARED.attached is not None:
                SHARED.attached.driver.fault(hook.__name__, error)
            elif type(error) not in said:
                said.add(type(error))
                LOG.error("adaptive_spec: %s: %s: %s", hook.__name__, type(error).__name__, error)

    return wrapper


@contained
def after_controller_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Put our parameters in front of those of a new `AdaptiveController`."""
    if SHARED.settings is not None and not isinstance(self.params, SteeredParams):
        self.params = SteeredParams(self.params)


@contained
def after_worker_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Give a new worker of STANDALONE, or of trees, the controller that EAGLE's chains have."""
    if SHARED.settings is not None:
        SHARED.reason = give_controller(self, SHARED.settings, SHARED.source.features)


@contained
def after_scheduler_init(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Attach to a new scheduler."""
    if SHARED.settings is not None and SHARED.attached is None:
        SHARED.attached = attach(
            self, SHARED.settings, SHARED.source, reason=SHARED.reason, hooks=SHARED.applied
        )


@contained
def before_run_batch(self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Decide for a batch that is about to run."""
    attached = SHARED.attached
    if attached is not None:
        attached.driver.before_run(batch)


@contained
def after_forward(result: Any, self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Use the time in which the device works on a launched batch."""
    if SHARED.attached is not None:
        SHARED.attached.driver.think(batch)


@contained
def before_resolve(self: Any, result: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Read the results of a decode step from the CPU."""
    if SHARED.attached is not None:
        SHARED.attached.driver.read(result, batch)


@contained
def after_process(done: Any, self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Learn from a batch whose results have been processed."""
    attached = SHARED.attached
    if attached is not None:
        attached.driver.applied(batch)
        attached.housekeeping(time.monotonic())


@contained
def before_extend(self: Any, *args: Any, **kwargs: Any) -> None:
    """Let the confidence tap listen to draft-extend."""
    tap = SHARED.attached.confidence if SHARED.attached is not None else None
    if tap is not None:
        tap.watch_graphs(getattr(self, "cuda_graph_runner_for_draft_extend", None))
        tap.before_extend()


@contained
def after_extend(result: Any, self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
    """Let the confidence tap read what draft-extend left."""
    tap = SHARED.attached.confidence if SHARED.attached is not None else None
    if tap is not None:
        tap.after_extend(batch)


def around_get_internal_state(
    own: Callable[..., Any], self: Any, recv_req: Any, *args: Any, **kwargs: Any
) -> Any:
    """Answer the requests for a state that come from our routes."""
    try:
        answer = answered(recv_req, SHARED.attached)
    except Exception as error:
        LOG.error("adaptive_spec: the status: %s: %s", type(error).__name__, error)
        answer = None
    return own(self, recv_req, *args, **kwargs) if answer is None else answer


@contained
def after_arguments_checked(result: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Add our routes to the HTTP server of this process, if it is one."""
    serve(self)
