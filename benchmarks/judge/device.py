"""A device: the seconds of what an engine ran in a step.

The seconds are those of the simulator's hardware profiles (`adaptive_spec.sim.hardware`) and
drafters (`adaptive_spec.sim.drafters`), by the simulator's own formula. A user's own profile, made
by ``adaptive-spec profile`` from a trace, is a device, too.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

import msgspec

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.step_time import StepTime
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.step import Capability, Level
from benchmarks.profiles import published_profile

GraphKind = Literal["eager", "varlen", "ragged", "uniform", "ladder", "batches"]


class Work(msgspec.Struct, array_like=True):
    """One engine step: its batch, tokens and passes.

    Attributes:
        requests: decoding requests B.
        tokens: their tokens in the target's pass, B + verified drafts.
        context: tokens in the KV cache of the decoding requests, summed.
        prefill: prompt tokens in the same pass.
        prefill_context: for each prompt token, the tokens before it, summed.
        least_k, most_k: fewest and most drafts verified for a decoding request.
        drafting: requests that the drafter drafts for at the end of the step.
        passes: passes of the drafter that were executed; for a drafter without a model, the
            drafts that its proposer was called for.
        emitted: tokens that the step emitted.
    """

    requests: int = 0
    tokens: int = 0
    context: int = 0
    prefill: int = 0
    prefill_context: int = 0
    least_k: int = 0
    most_k: int = 0
    drafting: int = 0
    passes: int = 0
    emitted: int = 0


class Graphs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Captured graphs of the target's pass.

    =========  ==================================  ======================  =====================
    kind       K of the requests of a batch        tokens are padded to    a batch whose K differ
    =========  ==================================  ======================  =====================
    eager      free                                nothing                 costs no more
    varlen     free                                the next captured size  costs no more
    ragged     free                                the next captured size  pays `ragged_penalty`
    uniform    one for all of them, 0 to Kmax      the next captured size  pays `ragged_penalty`
    ladder     one for all of them, of `ladder`    the next captured size  pays `ragged_penalty`
    batches    one for all of them, of `ladder`    the next captured       does not occur
                                                   batch, times K + 1
    =========  ==================================  ======================  =====================

    A step with prompt tokens, or beyond the last captured size, runs outside of the graphs.

    Attributes:
        sizes: captured sizes (tokens; `batches`: requests); None: those of the hardware profile.
        ladder: K values of the kinds `ladder` and `batches`.
        ragged_penalty: extra time of a pass whose K differ (0.1: 10 percent).
    """

    kind: GraphKind = "varlen"
    sizes: tuple[int, ...] | None = None
    ladder: tuple[int, ...] = ()
    ragged_penalty: float = 0.0


class Device(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine with a model.

    Attributes:
        name: in results.
        title: for people.
        hardware: name of a hardware profile, a JSON file, or a roofline; as `--hardware` of the
            simulator.
        graphs: of the target's pass.
    """

    name: str
    title: str = ""
    hardware: str
    graphs: Graphs = Graphs()

    def capability(self, found: Capability) -> Capability:
        """The control that an adapter has on this device, where it found `found` on a CPU."""
        from adaptive_spec.adapters.vllm.varlen_graphs import PRIOR_PENALTY

        kind = self.graphs.kind
        one_k = kind in ("uniform", "ladder")
        # What an adapter assumes of batches whose K differ; here they cost no more.
        assumed = PRIOR_PENALTY if kind == "varlen" else self.graphs.ragged_penalty
        return msgspec.structs.replace(
            found,
            level=Level.UNIFORM if one_k else found.level,
            ladder=self.graphs.ladder if kind == "ladder" else (),
            token_buckets=self._hardware().token_buckets,
            ragged_penalty=0.0 if kind == "eager" else assumed,
        )

    def _hardware(self) -> Hardware:
        profile = hardware_profile(self.hardware)
        if self.graphs.kind == "eager":
            profile = msgspec.structs.replace(profile, token_buckets=[])
        elif self.graphs.sizes is not None:
            each = [k + 1 for k in self.graphs.ladder] if self.graphs.kind == "batches" else [1]
            sizes = {size * tokens for size in self.graphs.sizes for tokens in each}
            profile = msgspec.structs.replace(profile, token_buckets=sorted(sizes))
        return Hardware(profile)

    def charge(self, method: str) -> Charge:
        """Return the price list of this device for a drafter, by vLLM's method name.

        Raises ConfigError for an unknown method or hardware.
        """
        if method not in DRAFTERS:
            raise ConfigError(f"no drafter {method!r}; there are: {', '.join(DRAFTERS)}")
        return Charge(self._hardware(), method, self.graphs)


DRAFTERS = {
    "none": "none",
    "draft_model": "draft_model",
    "draft_poor": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle:head=0.25",
    "eagle_tree": "eagle2_tree:levels=5,branching=4,nodes=7",
    "mtp": "mtp",
    "ngram": "ngram",
    "suffix": "suffix",
}
"""The simulator's drafter whose cost a method has. EAGLE-3 has a quarter of the vocabulary."""

DEVICES = {
    each.name: each
    for each in (
        Device(
            name="h100-8b", title="H100, Llama 3.1 8B", hardware=published_profile("h100-llama-8b")
        ),
        Device(
            name="h100-moe",
            title="H100, Qwen3 30B-A3B",
            hardware=published_profile("h100-qwen3-30b-a3b"),
        ),
        Device(
            name="h100-70b",
            title="4 H100, Llama 3.1 70B",
            hardware=published_profile("h100-llama-70b-tp4"),
        ),
        Device(
            name="a100-8b", title="A100, Llama 3.1 8B", hardware=published_profile("a100-llama-8b")
        ),
        Device(
            name="l40s-8b", title="L40S, Llama 3.1 8B", hardware=published_profile("l40s-llama-8b")
        ),
    )
}


def device(name: str) -> Device:
    """Return a device by name; a hardware profile or its file is a device, too.

    Raises ConfigError if there is none.
    """
    if name in DEVICES:
        return DEVICES[name]
    profile = hardware_profile(name)
    return Device(name=name, title=profile.name, hardware=name)


class Charge:
    """Seconds of engine steps with one drafter on one device.

    The target's pass is priced with the tokens of all requests, padded as `Graphs` says, the
    drafter by its executed passes. Work of the host that the profile holds is included, the
    computing time of adaptive-spec is not.
    """

    def __init__(self, hardware: Hardware, method: str, graphs: Graphs) -> None:
        priced = drafter(DRAFTERS[method])
        free = graphs.kind in ("eager", "varlen")
        self.step_time = StepTime(hardware, priced, 0.0 if free else graphs.ragged_penalty)
        # A pass that did not run costs nothing, also of a tree.
        self._draft_cost = msgspec.structs.replace(priced.cost_on(hardware), fixed_passes=None)
        self._ladder = frozenset(graphs.ladder) if graphs.kind == "ladder" else None
        self._batches = (graphs.sizes or ()) if graphs.kind == "batches" else ()

    def seconds(self, work: Work) -> float:
        """Return the seconds of a step."""
        tokens = work.tokens
        if self._batches and work.requests and work.requests <= self._batches[-1]:
            captured = self._batches[bisect_left(self._batches, work.requests)]
            tokens = captured * (work.most_k + 1)
        off_ladder = self._ladder is not None and work.most_k not in self._ladder
        seconds = self.step_time.verify(
            work.requests,
            tokens,
            work.context,
            work.prefill,
            work.prefill_context,
            any_draft=work.most_k > 0,
            ragged=work.most_k > 0 and (work.least_k < work.most_k or off_ladder),
        )
        if work.passes and work.drafting:
            seconds += self._draft_cost.seconds(work.passes, work.drafting, work.context)
        return seconds
