"""One unit of a sweep's work: a policy, or the oracles, on one cell. Runs in any process."""

from __future__ import annotations

import msgspec

from adaptive_spec.sim.oracle import Oracles, consult
from adaptive_spec.sim.policy_choice import parse_policy
from adaptive_spec.sim.result import Result
from adaptive_spec.sim.scenario import Scenario, simulate
from adaptive_spec.sim.sweep.cells import CellName


class _OfCell(msgspec.Struct, frozen=True):
    """A cell and a policy; `policy` is None for the oracles."""

    cell: CellName
    policy: str | None

    @property
    def key(self) -> RunKey:
        """Identifies it within the sweep."""
        return self.cell, self.policy

    @property
    def text(self) -> str:
        """Name in messages."""
        return f"{self.cell.text} / {self.policy or 'oracles'}"


class Task(_OfCell, frozen=True):
    """One run of a sweep.

    Attributes:
        cell: where its result belongs.
        policy: its name in results; None: the oracles.
        choice: the policy as the configuration writes it; empty for the oracles.
        scenario: what to simulate.
        digest: of all that the outcome depends on.
        foresight: the oracles include it.
    """

    choice: str
    scenario: Scenario
    digest: str
    foresight: bool = True

    def execute(self) -> Outcome:
        """Return the outcome. What fails is told in it, so that others go on."""
        try:
            if self.policy is None:
                oracles = consult(self.scenario, foresight=self.foresight)
                return Outcome(cell=self.cell, oracles=oracles, digest=self.digest)
            result = simulate(self.scenario, parse_policy(self.choice))
            result = msgspec.structs.replace(result, policy=self.policy)
            return Outcome(cell=self.cell, policy=self.policy, result=result, digest=self.digest)
        except Exception as error:
            return self.failed(_one_line(error))

    def failed(self, error: str) -> Outcome:
        """Return the outcome of a task that came to nothing."""
        return Outcome(cell=self.cell, policy=self.policy, error=error)


RunKey = tuple[CellName, str | None]


class Outcome(_OfCell, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a task: a result, oracles, or one line that says what went wrong."""

    policy: str | None = None
    result: Result | None = None
    oracles: Oracles | None = None
    error: str | None = None
    digest: str = ""


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
