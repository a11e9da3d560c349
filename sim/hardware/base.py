"""Step times, memory and layers of a model on a machine."""

from __future__ import annotations

from bisect import bisect_right

from adaptive_spec.sim.hardware.profile_file import ANY_DRAFTER, HardwareProfile, MeasuredDraft


class Hardware:
    """Step times of one target model on one machine: seconds, tokens, bytes.

    Attributes are those of the `HardwareProfile` it is made from, and the formula stands there.
    Plain floats and one bisection: about a microsecond per call, and the engine loop makes some
    hundred thousand of them.
    """

    def __init__(self, profile: HardwareProfile) -> None:
        self.profile = profile
        self.name = profile.name
        self.source = profile.source
        self.memory_bytes = profile.memory_bytes
        self.weight_bytes = profile.weight_bytes
        self.kv_bytes_per_token = profile.kv_bytes_per_token
        self.layers = profile.layers
        self.token_buckets = tuple(profile.token_buckets)
        self.outside_graph_seconds = profile.outside_graph_seconds
        self.verify_per_context_token = profile.verify_per_context_token
        self.any_draft = profile.any_draft
        self.any_draft_per_request = profile.any_draft_per_request
        self._drafts = profile.drafts
        self._knots, self._starts, self._slopes = _segments(profile)
        self._prefill_in_curve = profile.prefill_in_curve
        self._per_batch_token = profile.per_batch_token
        self._per_request = profile.per_request
        self._host, self._host_per_request = profile.host, profile.host_per_request
        self._per_context = profile.per_context_token
        self._per_prefill = profile.per_prefill_token
        self._per_prefill_context = profile.per_prefill_context_token

    def verify_seconds(
        self,
        batch_size: float,
        batch_tokens: float,
        context_tokens: float,
        prefill_tokens: float,
        prefill_context_tokens: float,
    ) -> float:
        """Duration of a target pass and the engine's own overhead, without drafting.

        Host work that overlaps with the pass is the duration where it takes longer. Arguments are
        those of `pass_with_overhead`.
        """
        seconds = self.pass_with_overhead(
            batch_size, batch_tokens, context_tokens, prefill_tokens, prefill_context_tokens
        )
        host = self._host + self._host_per_request * batch_size
        return seconds if seconds > host else host

    def pass_with_overhead(
        self,
        batch_size: float,
        batch_tokens: float,
        context_tokens: float,
        prefill_tokens: float,
        prefill_context_tokens: float,
    ) -> float:
        """Duration of a target pass, and of the engine's work that does not overlap with it.

        Args:
            batch_size: decoding requests B.
            batch_tokens: their tokens N = B + sum K, padded to a bucket if the engine pads.
            context_tokens: sum of their context lengths.
            prefill_tokens: prompt tokens in the same pass.
            prefill_context_tokens: for each prompt token, the tokens before it, summed.
        """
        tokens = batch_tokens + prefill_tokens if self._prefill_in_curve else batch_tokens
        segment = bisect_right(self._knots, tokens)
        seconds = (
            self._starts[segment]
            + self._slopes[segment] * tokens
            + self._per_batch_token * batch_tokens
            + self._per_request * batch_size
            + self._per_context * context_tokens
        )
        if prefill_tokens:
            seconds += (
                self._per_prefill * prefill_tokens
                + self._per_prefill_context * prefill_context_tokens
            )
        return seconds

    def pass_seconds(self, share: float, batch_size: float, context_tokens: float) -> float:
        """A decode pass of a network with this share of the target's weights, launches included.

        Used to price drafters that nobody has measured here.
        """
        whole = self.pass_with_overhead(batch_size, batch_size, context_tokens, 0, 0)
        return share * (whole - self.profile.overhead) + self.profile.draft_pass_overhead

    def measured_draft(self, drafter: str) -> MeasuredDraft | None:
        """Measured cost of this drafter, or of the one that ran in an unnamed recording."""
        return self._drafts.get(drafter) or self._drafts.get(ANY_DRAFTER)


def _segments(profile: HardwareProfile) -> tuple[list[int], list[float], list[float]]:
    """Knots, and for each of the len + 1 segments around them: value at 0 tokens, slope."""
    constant = profile.overhead + profile.fixed
    knots, values = profile.tokens, profile.seconds
    if not knots:
        return [], [constant], [profile.per_token]
    starts, slopes = [constant + values[0]], [profile.per_token]
    for i in range(1, len(knots)):
        slope = (values[i] - values[i - 1]) / (knots[i] - knots[i - 1])
        starts.append(constant + values[i] - slope * knots[i])
        slopes.append(profile.per_token + slope)
    starts.append(starts[-1])
    slopes.append(slopes[-1])
    return knots, starts, slopes
