"""Control that an engine's configuration allows, and the line about it at start-up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

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


def start_line(
    support: Support,
    capability: Capability,
    *,
    mode: str,
    policy: str,
    details: Iterable[str],
    remarks: Iterable[str] = (),
) -> str:
    """Return the line that an adapter logs at start-up.

    Args:
        support: control that the configuration allows.
        capability: control options that the controller uses.
        mode: ``on`` or ``shadow``.
        policy: name of the policy.
        details: the engine's own ``name=value`` pairs.
        remarks: further parts of the line, at its end.
    """
    pairs = (
        f"mode={mode}",
        f"policy={policy}",
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
    return "; ".join((*parts, *remarks))
