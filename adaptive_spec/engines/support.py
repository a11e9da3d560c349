"""Control that an engine's configuration allows, the controller for it, and the start line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

import adaptive_spec
from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.operation.output_file import unwritable
from adaptive_spec.step import Capability


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """Control that an engine's configuration allows.

    Attributes:
        capability: control options; None if the adapter stays inert.
        method: the engine's name of the speculation method.
        scheduling: the engine's name of its step scheduling, such as ``async``.
        inert: reason why the adapter stays inert; empty if it does not.
        shadow: features that force shadow mode; empty if decisions may act.
        notes: further notes for the start line.
    """

    capability: Capability | None
    method: str = ""
    scheduling: str = ""
    inert: str = ""
    shadow: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def controller_for(
    support: Support,
    config: Config,
    logger: logging.Logger,
    *,
    missing: Mapping[str, str] | None = None,
    identity: Callable[[], Mapping[str, object]] | None = None,
) -> Controller:
    """Build the controller that a configuration asks for, as far as the engine's setup allows.

    Args:
        support: has a capability; what it says of shadow mode overrides the configuration.
        config: of the operator.
        logger: of the engine.
        missing: see `Controller`.
        identity: reads the server and model that learned state belongs to; None: no state is
            saved. What it raises is logged, and no state is saved.

    Raises PolicyError or ConfigError, one line, for the operator.
    """
    assert support.capability is not None, support.inert
    if support.shadow:
        config = msgspec.structs.replace(config, mode="shadow")
    return Controller.from_config(
        config,
        support.capability,
        only_watch=", ".join(support.shadow),
        missing=missing,
        identity=None if identity is None else _identity(identity, support, logger),
        logger=logger,
    )


def _identity(
    read: Callable[[], Mapping[str, object]], support: Support, logger: logging.Logger
) -> dict[str, str] | None:
    """Return the names and values that learned state belongs to; None if the engine hides them."""
    try:
        found = {
            **read(),
            "adaptive_spec": adaptive_spec.__version__,
            "method": support.method,
            "capability": msgspec.json.encode(support.capability).decode(),
        }
        return {name: str(value) for name, value in found.items()}
    except Exception as error:  # no state is no reason not to steer
        logger.warning("adaptive_spec: no identity: %s: %s", type(error).__name__, error)
        return None


def start_line(
    support: Support,
    controller: Controller,
    *,
    details: Iterable[str],
    remarks: Iterable[str] = (),
) -> str:
    """Return the line that an adapter logs at start-up.

    Args:
        support: control that the configuration allows.
        controller: of the engine.
        details: the engine's own ``name=value`` pairs.
        remarks: further parts of the line; outputs that cannot be written follow them.
    """
    capability = controller.capability
    pairs = (
        f"mode={controller.mode}",
        f"policy={controller.policy.name}",
        f"method={support.method}",
        f"Kmax={capability.max_draft_tokens}",
        f"capability={capability.level.name}",
        f"ladder={','.join(str(k) for k in capability.uniform_values)}",
        f"scheduling={support.scheduling}",
        *details,
    )
    parts = [f"adaptive_spec: {' '.join(pairs)}"]
    if support.shadow:
        parts.append(f"watching only (shadow), not tested with: {', '.join(support.shadow)}")
    if support.notes:
        parts.append(f"note: {', '.join(support.notes)}")
    return "; ".join((*parts, *remarks, *unwritable(controller.config)))
