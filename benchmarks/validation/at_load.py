"""V9: throughput with drafts over that without, by clients and K, where nobody here tuned.

The tables stand in ``speculation_at_load.json``, each with its address and date, and with its role:
rows of a table to fit on are never counted. The H100's rows to validate on never changed a figure.
The price of attention, the host's seconds and the prompts' lengths on the A100 were first estimated
with all three workloads in view, and then set on gsm8k.

Fitted, on the tables that say so: `verify_attention` of FlashAttention 2 and the host's seconds
per step and request of vLLM 0.24 (A100, gsm8k); the seconds of a drafter pass of the audit (H100,
gsm8k, one request). Stated: accepted lengths (each table), prompt and output lengths, step times of
the profiles. A cell's acceptance has one hazard.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.profile_file import HardwareProfile
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.load.base import ClosedLoad, Load
from benchmarks.validation.arms import Arms, Batches, one_per_record
from benchmarks.validation.row import Check, Row, compared

TITLE = "Speculation at load, by clients and K"
FILE = Path(__file__).with_name("speculation_at_load.json")
BOUND = 0.10
WITHIN = 0.8
"""Share of the cells that the bound must hold."""
MEAN_BOUND = 0.03
LOADED = 32
"""Clients from which the mean signed error counts."""
BEST_K_BOUND = 0.02

_WAVES = 4
_FEWEST = 24

Cell = tuple[int, int, float, float]
"""Clients, K, accepted length, published ratio of throughputs."""


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published table.

    Attributes:
        name: GPU, engine, drafter, text.
        address: where it is published.
        measured: date, as far as it is known.
        role: of all its rows.
        hardware: profile that runs it.
        drafter: name with options.
        draft_pass: fitted seconds of a pass, instead of the profile's.
        arrivals: a closed loop, or whole batches.
        prompt_tokens, output_tokens: of each request.
        note: what a reader must know.
        rows: the cells.
    """

    name: str
    address: str
    measured: str
    role: Literal["fit", "validate"]
    hardware: str
    drafter: str
    draft_pass: float | None = None
    arrivals: Literal["closed", "batches"]
    prompt_tokens: int
    output_tokens: int
    note: str = ""
    rows: tuple[Cell, ...]

    def arms(self, clients: int) -> Arms:
        """Return both arms at this number of clients."""
        lengths = (self.output_tokens,) * max(_FEWEST, _WAVES * clients)
        return Arms(
            load=lambda: self._load(lengths, clients),
            lengths=lengths,
            profile=self.profile(),
            drafter=drafter(self.drafter),
        )

    def profile(self) -> HardwareProfile:
        """The machine, with the fitted pass if there is one."""
        profile = hardware_profile(self.hardware)
        if self.draft_pass is None:
            return profile
        measured = msgspec.structs.replace(
            profile.drafts["eagle"], proposal=0.0, pass_=self.draft_pass
        )
        return msgspec.structs.replace(profile, drafts={"eagle": measured})

    def _load(self, lengths: tuple[int, ...], clients: int) -> Load:
        requests = one_per_record(lengths, self.prompt_tokens)
        if self.arrivals == "batches":
            return Batches(requests, clients)
        return ClosedLoad(requests, clients)


def published() -> tuple[Published, ...]:
    """Return all tables of the file."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[Published, ...])


def rows(data_folder: Path) -> list[Row]:
    """Every cell of every table. The figures stand in the file beside this one."""
    del data_folder
    return [row for table in published() for row in rows_of(table)]


def rows_of(table: Published) -> list[Row]:
    """The cells of one table."""
    plain: dict[int, float] = {}
    found = []
    for clients, k, accepted_length, ratio in table.rows:
        arms = table.arms(clients)
        if clients not in plain:
            plain[clients] = arms.plain().throughput_tok_s
        fitted = table.role == "fit"
        found.append(
            compared(
                table.name,
                f"{clients} clients, K = {k}",
                ratio,
                arms.speculating(k, accepted_length).throughput_tok_s / plain[clients],
                counted=not fitted,
                bound=BOUND,
                note="fitted on" if fitted else "",
            )
        )
    return found


def clients_of(row: Row) -> int:
    """Clients of a row, out of its label."""
    return int(row.label.split()[0])


def checks(rows: list[Row]) -> list[Check]:
    """Return the four demands of the issue that asked for this table."""
    counted = [row for row in rows if row.counted]
    inside = sum(abs(row.error) <= BOUND for row in counted) / max(len(counted), 1)
    loaded = [row.error for row in counted if clients_of(row) >= LOADED]
    mean = sum(loaded) / max(len(loaded), 1)
    losses = _best_k_losses(counted)
    missed = [(where, loss) for where, loss in losses.items() if loss > BEST_K_BOUND]
    off = [row for row in counted if row.published < 1.0]
    wrong = [row for row in off if row.simulated >= 1.0]
    return [
        Check(
            demand=f"{WITHIN:.0%} of {len(counted)} cells within {BOUND:.0%}",
            found=f"{inside:.0%}",
            passed=inside >= WITHIN,
        ),
        Check(
            demand=f"mean signed error of {len(loaded)} cells from {LOADED} clients on within "
            f"{MEAN_BOUND:.0%}",
            found=f"{mean:+.1%}",
            passed=bool(loaded) and abs(mean) <= MEAN_BOUND,
        ),
        Check(
            demand=f"best K right at {len(losses)} loads, or within {BEST_K_BOUND:.0%} of the best",
            found="; ".join(f"{where}: {loss:.1%} below" for where, loss in missed) or "all",
            passed=bool(losses) and not missed,
        ),
        Check(
            demand=f"off where the table says off, {len(off)} cells",
            found="; ".join(f"{row.table}, {row.label}: {row.simulated:.3f}" for row in wrong)
            or "all below 1",
            passed=not wrong,
        ),
    ]


def _best_k_losses(rows: list[Row]) -> dict[str, float]:
    """Return what the K that is best in the simulation loses in the table; 0 is off, at ratio 1."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(f"{row.table}, {row.label.split(',')[0]}", []).append(row)
    losses = {}
    for where, group in groups.items():
        chosen = max(group, key=lambda row: row.simulated)
        gained = chosen.published if chosen.simulated > 1.0 else 1.0
        losses[where] = 1.0 - gained / max(1.0, *(row.published for row in group))
    return losses
