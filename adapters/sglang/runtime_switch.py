"""The operator's switch while the server runs: a number for ``/set_internal_state``.

    {"server_args": {"adaptive_spec_mode": 1}}        0 off, 1 shadow, 2 on

SGLang sends the request to every rank's scheduler in the same turn of its loop. Its values are
numbers only.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any, Literal

from adaptive_spec.adapters.sglang.steps import StepDriver

KEY = "adaptive_spec_mode"
MODES: tuple[Literal["off"], Literal["shadow"], Literal["on"]] = ("off", "shadow", "on")
_LOG = logging.getLogger("sglang.adaptive_spec")


def set_internal_state(
    own: Callable[..., Any], owner: Any, request: Any, driver: StepDriver | None
) -> Any:
    """Take our key out of a request, then let SGLang handle the rest.

    Args:
        own: SGLang's method.
        owner: its object.
        request: SGLang's SetInternalStateReq.
        driver: ours; None if nothing is attached.
    """
    wanted = request.server_args.get(KEY)
    if wanted is None or driver is None:
        return own(owner, request)
    if wanted not in range(len(MODES)):
        _LOG.warning("adaptive_spec: %s=%s: give 0 (off), 1 (shadow) or 2 (on)", KEY, wanted)
        return own(owner, request)  # SGLang refuses a key it doesn't know
    mode = MODES[int(wanted)]
    if mode == "on" and driver.only_watch:
        _LOG.warning("adaptive_spec: mode stays shadow, not tested with: %s", driver.only_watch)
        return own(owner, request)
    rest = copy.copy(request)
    rest.server_args = {key: value for key, value in request.server_args.items() if key != KEY}
    answer = own(owner, rest)
    if answer.updated:
        driver.set_mode(mode)
        _LOG.info("adaptive_spec: mode is now %s", mode)
    return answer
