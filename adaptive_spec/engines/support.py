"""What an engine's configuration allows, and the one line that says so at start-up."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adaptive_spec.step import Capability


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a configuration.

    Attributes:
        capability: what may be decided; None where there is nothing to decide (inert).
        method: the engine's name of the speculation method.
        scheduling: how steps follow each other, in the engine's word, such as ``async``.
        inert: why nothing is switched on; empty if something is.
        shadow: why we only watch; empty if we may act.
        notes: what else the start line should say.
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
    """Return one line: what is steered, how, and what isn't.

    Args:
        support: what was found.
        capability: the controller's.
        mode: ``on`` or ``shadow``.
        policy: name of the policy.
        details: the engine's own ``name=value`` pairs.
        remarks: what follows after a semicolon each, behind the reasons for watching only.
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
