"""Guard: hands the server back to the engine's own K where the policy measurably loses.

One watch covers all loads, and one each class of load. A watch keeps two confidence sequences of
the last hour, begun half an hour apart. It hands back when one of them lies below -`TOLERANCE`, by
which blocks may differ from whole runs. The k-th sequence of a watch may err with probability
ERROR / watches / (k (k + 1)), which sums up to ERROR over the life of a server: as long as the
policy is not slower by more than that, it is never handed back with probability 1 - ERROR at least.

While a watch has handed back, the policy runs in the blocks. It comes back when a sequence since
then lies above -`TOLERANCE`.
"""

from __future__ import annotations

from adaptive_spec.audit.confidence_sequence import Interval, Sequence
from adaptive_spec.audit.gain import Difference

ERROR = 0.001
"""Probability that a policy is ever handed back that loses no more than `TOLERANCE`."""
TOLERANCE = 0.01
"""Loss (of ln tokens per second) that is no reason to hand back, or to stay so."""
RETURN_ERROR = 0.05
"""Probability that a policy that loses more than that comes back at some time of an hour."""
_HALF_SECONDS = 1800.0
"""Half of the time that a sequence lasts (seconds)."""
ALL = -1
"""The watch of all loads; others go by their class."""
_WATCHES = 11.0
"""All loads, and ten classes up to 512 requests."""


class Recent:
    """Two sequences, half an hour apart; the older one covers half an hour to an hour."""

    def __init__(self) -> None:
        self.begun = 0
        self.since = 0.0
        """Time of the older one's beginning (seconds)."""
        self._begun: list[tuple[int, float, Sequence]] = []

    def add(self, found: Difference) -> None:
        """Add a difference; begin a sequence where the youngest is half an hour old."""
        if not self._begun or found.now - self._begun[-1][1] >= _HALF_SECONDS:
            self.begun += 1
            self._begun = [*self._begun[-1:], (self.begun, found.now, Sequence())]
            self.since = self._begun[0][1]
        for _, _, sequence in self._begun:
            sequence.add(found.value, found.weight)

    @property
    def sequences(self) -> list[Sequence]:
        """Both sequences, the older one first; none before the first difference."""
        return [sequence for _, _, sequence in self._begun]

    @property
    def older(self) -> Sequence:
        """The one with more observations."""
        return self._begun[0][2] if self._begun else Sequence()

    def intervals(self, error: float) -> list[Interval]:
        """Return the intervals that err with these probabilities, summed over all sequences."""
        found = (
            sequence.interval(error / (number * (number + 1.0)))
            for number, _, sequence in self._begun
        )
        return [interval for interval in found if interval is not None]

    def restart(self) -> None:
        """Forget what has been measured; errors go on adding up."""
        self._begun = []


class Guard:
    """Decides who runs outside of blocks.

    Attributes:
        handed_back: watches that have handed back, `ALL` or a class of load.
        times: how often a watch has handed back.
    """

    def __init__(self) -> None:
        self.handed_back: set[int] = set()
        self.times = 0
        self.watches: dict[int, Recent] = {}
        self._faster: set[int] = set()

    def add(self, found: Difference) -> list[tuple[int, bool]]:
        """Add a difference; return watches that change: which, and whether it hands back."""
        changes = []
        for key in (ALL, found.load):
            watch = self.watches.setdefault(key, Recent())
            watch.add(found)
            away = key in self.handed_back
            if away:
                back = (sequence.interval(RETURN_ERROR) for sequence in watch.sequences)
                changed = any(each is not None and each.low > -TOLERANCE for each in back)
            else:
                # One side of an interval is missed half as often as both.
                bounds = watch.intervals(2.0 * ERROR / _WATCHES)
                changed = any(interval.high < -TOLERANCE for interval in bounds)
            if changed:
                self.handed_back ^= {key}
                self.times += not away
                watch.restart()
                changes.append((key, not away))
        bound = self.watches[found.load].older.interval(RETURN_ERROR)
        if bound is not None and bound.low > 0.0:
            self._faster.add(found.load)
        else:
            self._faster.discard(found.load)
        return changes

    def hands_back(self, load: int) -> bool:
        """Return whether the engine's own K runs at a load outside of blocks.

        A loss over all loads leaves the policy where it is measurably faster.
        """
        if load in self.handed_back:
            return True
        return ALL in self.handed_back and load not in self._faster
