"""The two arms of a published comparison, run through the engine loop: with and without drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from adaptive_spec.policies.off import OffOptions, OffPolicy
from adaptive_spec.policies.static import StaticOptions, StaticPolicy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.hazard import constant_model, generate
from adaptive_spec.sim.drafters.base import Drafter
from adaptive_spec.sim.drafters.none import NoDrafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.coefficients import CoefficientHardware
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.load.base import Load
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.results.result import Result

_SEED = 1


class Arms(msgspec.Struct, frozen=True, kw_only=True):
    """What both arms share.

    Attributes:
        load: makes the load anew for each run.
        lengths: output tokens of each acceptance record; requests name their record.
        profile: the machine; what only drafts cost stands in it.
        drafter: of the arm that speculates.
        options: engine settings; Kmax is set for each run.
    """

    load: Callable[[], Load]
    lengths: tuple[int, ...]
    profile: HardwareProfile
    drafter: Drafter
    options: EngineOptions = EngineOptions()

    def plain(self) -> Result:
        """Without a drafter."""
        return self._run(self.data(0.5, 1), 0)

    def speculating(self, k: int, accepted_length: float) -> Result:
        """With fixed K, and this many tokens per step in the mean, the bonus token included."""
        return self._run(self.data(constant_hazard(accepted_length, k), k), k)

    def at_depth_of(self, accepted_length: float, known_k: int, k: int) -> Result:
        """With fixed K, and the hazard that gives this accepted length at another K."""
        return self._run(self.data(constant_hazard(accepted_length, known_k), k), k)

    def data(self, hazard: float, depth: int) -> AcceptanceData:
        """Independent acceptance at one hazard, on records of these lengths."""
        lengths = np.array(self.lengths, dtype=np.int64)
        return generate(constant_model(hazard), depth=depth, seed=_SEED, output_tokens=lengths)

    def _run(self, data: AcceptanceData, k: int) -> Result:
        engine = Engine(
            self.load(),
            data,
            self.drafter if k else NoDrafter(),
            CoefficientHardware(self.profile),
            StaticPolicy(StaticOptions(k=k)) if k else OffPolicy(OffOptions()),
            # Real engines do not shrink K before the pool runs out.
            msgspec.structs.replace(self.options, max_draft_tokens=max(k, 1), memory_guard=False),
        )
        return engine.run()


def constant_hazard(accepted_length: float, k: int) -> float:
    """The hazard h with 1 + h + ... + h^K = `accepted_length`; 0..1."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        length = sum(middle**j for j in range(k + 1))
        low, high = (middle, high) if length < accepted_length else (low, middle)
    return (low + high) / 2.0


def one_per_record(lengths: Sequence[int], prompt_tokens: int) -> Iterator[Request]:
    """Request n follows record n to its end."""
    for number, length in enumerate(lengths):
        yield Request(
            id=str(number),
            arrival=0.0,
            prompt_tokens=prompt_tokens,
            output_tokens=length,
            record=number,
        )
