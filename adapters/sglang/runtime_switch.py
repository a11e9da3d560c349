"""The operator's switch while the server runs: a number for ``/set_internal_state``.

    {"server_args": {"adaptive_spec_mode": 1}}        0 off, 1 shadow, 2 on

SGLang sends the request to every rank's scheduler in the same turn of its loop. Its values are
numbers only.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from adaptive_spec.adapters.sglang.steps import StepDriver

KEY = "adaptive_spec_mode"
SwitchMode: TypeAlias = Literal["off", "shadow", "on"]
MODES: tuple[SwitchMode, ...] = ("off", "shadow", "on")
_LOG = logging.getLogger("sglang.adaptive_spec")


def set_internal_state(own: Callable[[Any], Any], request: Any, driver: StepDriver | None) -> Any:
    """Take our key out of a request, then let SGLang handle the rest.

    Args:
        own: SGLang's answer to a request.
        request: SGLang's SetInternalStateReq.
        driver: ours; None if nothing is attached.
    """
    mode, rest = None, request
    try:
        mode, rest = _asked(request, driver)
    except Exception as error:  # SGLang answers as without us
        _LOG.error("adaptive_spec: the switch: %s: %s", type(error).__name__, error)
    answer = own(rest)
    if mode is not None and driver is not None and getattr(answer, "updated", False):
        driver.set_mode(mode)
    return answer


def _asked(request: Any, driver: StepDriver | None) -> tuple[SwitchMode | None, Any]:
    """Return the requested mode, None if it is absent or refused, and the request for SGLang.

    With a mode that can't be had our key stays in it: SGLang refuses a key it doesn't know.
    """
    wanted = request.server_args.get(KEY)
    if wanted is None or driver is None:
        return None, request
    if wanted not in range(len(MODES)):
        _LOG.warning("adaptive_spec: %s=%s: give 0 (off), 1 (shadow) or 2 (on)", KEY, wanted)
        return None, request
    mode = MODES[int(wanted)]
    if mode == "on" and driver.only_watch:
        _LOG.warning("adaptive_spec: mode stays shadow, not tested with: %s", driver.only_watch)
        return None, request
    rest = copy.copy(request)
    rest.server_args = {key: value for key, value in request.server_args.items() if key != KEY}
    return mode, rest
