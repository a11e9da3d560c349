"""Contract of a drafter: cost, memory and acceptance of its drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
import numpy as np

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.profile_file import MeasuredDraft


class DraftCost(MeasuredDraft, frozen=True, kw_only=True):
    """Seconds of drafting with B requests whose contexts sum to C, D deep.

        seconds(D >= 1) = proposal + proposal_per_request B
                          + passes (pass_ + pass_per_request B + pass_per_context_token C)

    where passes is D, or `fixed_passes` for a drafter that always makes its whole proposal
    (trees, blocks, heads).

    Attributes:
        fixed_passes: passes of every proposal, however deep it is asked for; None: as many
            as the depth.
    """

    fixed_passes: int | None = None

    def seconds(self, depth: int, batch_size: float, context_tokens: float) -> float:
        """Seconds to draft `depth` >= 1 deep."""
        passes = depth if self.fixed_passes is None else self.fixed_passes
        return (
            self.proposal
            + self.proposal_per_request * batch_size
            + passes * self._pass(batch_size, context_tokens)
        )

    def warm_seconds(self, batch_size: float, context_tokens: float) -> float:
        """Seconds of the one pass that keeps the drafter in step where nothing is drafted."""
        return (
            self.proposal
            + self.proposal_per_request * batch_size
            + self._pass(batch_size, context_tokens)
        )

    def _pass(self, batch_size: float, context_tokens: float) -> float:
        return (
            self.pass_
            + self.pass_per_request * batch_size
            + self.pass_per_context_token * context_tokens
        )


class Drafter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of drafting: what it costs, and how its drafts are accepted.

    As it stands, a chain without weights or KV of its own, accepted as recorded. Fields of the
    families are their options.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    """Paper, repository or measurement its cost and acceptance structure follow."""

    off_pass: ClassVar[bool] = True
    """At K = 0 one pass still runs, unless OFF-cold, to keep the drafter's state in step."""
    stale_after_cold: ClassVar[bool] = True
    """Requests that lived through an OFF-cold step can't be drafted for any more."""
    depth_follows: ClassVar[bool] = True
    """Drafting less deep costs less. False where the whole proposal is always made."""
    acceptance_list: ClassVar[str] = "eagle"
    """Which list of a file with several drafters' acceptance is this one's: eagle, ngram, ..."""

    def cost_on(self, hardware: Hardware) -> DraftCost:
        """Cost of drafting on this hardware; by default nothing."""
        return DraftCost()

    def extra_tokens(self, k: int) -> int:
        """Tokens a request adds to the verify pass beyond its K drafts and the bonus position.

        0 for all but Lookahead decoding, whose window rides in the same pass.
        """
        return 0

    def tree_nodes(self, ks: Sequence[int]) -> tuple[int, ...]:
        """Return `Capability.tree_nodes` of these K; empty where K is no depth of a tree."""
        return ()

    def most_drafts(self, depth: int) -> int:
        """The largest K that makes sense with acceptance data of this depth.

        The smaller of the depth and the drafter's own limit for chains; the number of its nodes
        for a token tree, whose K counts nodes and may exceed the depth.
        """
        return depth

    def weight_bytes(self, hardware: Hardware) -> float:
        """Memory of its weights, which the KV pool loses."""
        return 0.0

    def kv_share(self, hardware: Hardware) -> float:
        """KV bytes it keeps per token, over the target's."""
        return 0.0

    def shape(self, data: AcceptanceData, random: np.random.Generator) -> AcceptanceData:
        """Acceptance data as this drafter's structure turns it.

        A tree drafter adds `tree_sizes`, one that cannot always draft, or has a limit of its own,
        adds `proposed`. What was recorded already stays as it is.
        """
        return data


def limited_to(data: AcceptanceData, most: int) -> AcceptanceData:
    """The data of a drafter that proposes at most so many drafts in a chain."""
    if most >= data.depth:
        return data
    proposed = np.full(len(data.accepted), most, dtype=np.uint8)
    if data.proposed is not None:
        proposed = np.minimum(proposed, data.proposed)
    return replace(
        data,
        accepted=np.minimum(data.accepted, np.uint8(most)),
        depth=most,
        proposed=proposed,
        confidence=None if data.confidence is None else data.confidence[:, :most],
    )
