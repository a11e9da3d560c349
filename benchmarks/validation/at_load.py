"""V9: throughput with drafts over that without, by clients and K, where nobody here tuned.

The tables stand in ``speculation_at_load.json``, each with its address and date, and with its role:
rows of a table to fit on are never counted. The H100's and the RTX 3090's rows to validate on never
changed a figure; how the H100's runs are simulated was chosen with all of them in view.
The price of attention, the host's seconds and the prompts' lengths on the A100 were first estimated
with all three workloads in view, and then set on gsm8k.

Fitted, on the tables that say so: the host's seconds of vLLM 0.23 (H100, gsm8k, runs without
drafts); the seconds of a drafter pass of the audit (H100, gsm8k, one request). On the A100's gsm8k
`verify_attention` of FlashAttention 2 (2.1) and the host's seconds of vLLM 0.24 (.5 ms a step,
46 us a request) had been fitted; the profile's round figures have replaced them.

Stated: accepted lengths (each table), prompt and output lengths, step times of the profiles. Of the
audit on the H100 its scripts and raw files also give the batches, which texts its counters count
together, and by how much its requests differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.hardware.base import Hardware
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, MeasuredDraft
from adaptive_spec.sim.hardware.registry import hardware_profile
from adaptive_spec.sim.load.base import ClosedLoad, Load
from adaptive_spec.sim.load.request import Request
from adaptive_spec.sim.result import Result
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

_PLAIN_FITTED = ("H100, vLLM, EAGLE-3, gsm8k, one request", "H100, vLLM, EAGLE-3, gsm8k")
"""Tables whose throughput without drafts the host's seconds of vLLM 0.23 were fitted on."""
_FEWEST = 512
"""Requests of a cell, so that few of them do not decide."""

Cell = tuple[int, int, float, float]
"""Clients, K, accepted length, published ratio of throughputs."""


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One published table.

    Attributes:
        name: GPU, engine, drafter, text.
        address: where it is published.
        measured: date, as far as it is known.
        role: of all its rows.
        hardware: profile that runs it; a file's path is relative to this folder.
        drafter: name with options.
        draft_pass: fitted seconds of a pass, instead of the profile's.
        prompt_tokens, output_tokens: of each request.
        batches: sizes of the batches that a run submits one after the other, by the clients of
            the row; without them the load is a closed loop.
        cached_prompt_tokens: what is left to compute of the first batch's prompts, which ran
            before and stand in the prefix cache.
        deviation: by which the logit of the hazard differs between requests.
        mean_length: over all steps, or over requests.
        measure: what the ratio is of, throughput or 1 / mean time per output token.
        counted_after: tables whose texts ran before on the same server. Its counters ran on, and
            accepted lengths are means over all texts until then.
        plain: tokens per second without drafts, by clients; for information.
        also_on: other profiles of the same machine, for information.
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
    prompt_tokens: int
    output_tokens: int
    batches: dict[int, tuple[int, ...]] = {}
    cached_prompt_tokens: int | None = None
    deviation: float = 0.0
    mean_length: Literal["steps", "requests"] = "steps"
    measure: Literal["throughput", "1 / TPOT"] = "throughput"
    counted_after: tuple[str, ...] = ()
    plain: dict[int, float] = {}
    also_on: tuple[str, ...] = ()
    note: str = ""
    rows: tuple[Cell, ...]

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of all profiles that run it."""
        return (self.hardware, *self.also_on)

    def name_on(self, profile: str) -> str:
        """Name of the table as this profile runs it."""
        return self.name if profile == self.hardware else f"{self.name}, {profile}"

    def arms(self, clients: int) -> Arms:
        """Return both arms at this number of clients."""
        in_a_run = sum(self.batches[clients]) if self.batches else 4 * clients
        requests = math.ceil(_FEWEST / in_a_run) * in_a_run
        return Arms(
            load=lambda: self._load(requests, clients),
            lengths=(self.output_tokens,) * requests,
            profile=self.profile(),
            drafter=drafter(self.drafter),
            deviation=self.deviation,
        )

    def profile(self) -> HardwareProfile:
        """The machine; with a fitted pass, that is the drafter's at one request."""
        file = FILE.parent / self.hardware
        profile = hardware_profile(str(file) if file.is_file() else self.hardware)
        if self.draft_pass is None:
            return profile
        without = msgspec.structs.replace(profile, drafts={})
        cost = drafter(self.drafter).cost_on(Hardware(without))
        fitted = MeasuredDraft(
            pass_=self.draft_pass - cost.pass_per_request,
            pass_per_request=cost.pass_per_request,
            pass_per_context_token=cost.pass_per_context_token,
            source="fitted at one request; growth with requests and context as computed",
        )
        return msgspec.structs.replace(profile, drafts={"eagle": fitted})

    def score(self, result: Result) -> float:
        """Return the two quantities of the ratio."""
        if self.measure == "throughput":
            return result.throughput_tok_s
        tpot = result.tpot_ms.mean
        assert tpot is not None, "requests have more than one token"
        return 1.0 / tpot

    def own_length(self, clients: int, k: int) -> float:
        """Accepted length of this text alone.

        Every text runs as many requests as its batches hold, and those of the first batch once
        more beforehand. All are of one length, so a request takes steps in inverse proportion to
        its accepted length.
        """
        length = self._length(clients, k)
        if not self.counted_after:
            return length
        tables = {table.name: table for table in published()}
        before = [tables[name] for name in self.counted_after]
        earlier = sum(table._requests_run(clients) for table in before)
        mine = self._requests_run(clients)
        steps = (earlier + mine) / length - earlier / before[-1]._length(clients, k)
        return mine / steps

    def _length(self, clients: int, k: int) -> float:
        (found,) = [row[2] for row in self.rows if row[:2] == (clients, k)]
        return found

    def _requests_run(self, clients: int) -> int:
        sizes = self.batches[clients]
        return sizes[0] + sum(sizes)

    def _load(self, requests: int, clients: int) -> Load:
        lengths = (self.output_tokens,) * requests
        if not self.batches:
            return ClosedLoad(one_per_record(lengths, self.prompt_tokens), clients)
        sizes = self.batches[clients]
        return Batches(self._in_batches(lengths, sizes), sizes)

    def _in_batches(self, lengths: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[Request]:
        in_cache = self.cached_prompt_tokens or self.prompt_tokens
        run = [in_cache] * sizes[0] + [self.prompt_tokens] * sum(sizes[1:])
        return one_per_record(lengths, run * (len(lengths) // len(run)))


@cache
def published() -> tuple[Published, ...]:
    """Return all tables of the file."""
    return msgspec.json.decode(FILE.read_bytes(), type=tuple[Published, ...])


def rows(data_folder: Path) -> list[Row]:
    """Every cell of every table. The figures stand in the file beside this one."""
    del data_folder
    return [row for table in published() for row in (*rows_of(table), *_on_others(table))]


def rows_of(table: Published) -> list[Row]:
    """The cells of one table."""
    arms = {clients: table.arms(clients) for clients, *_ in table.rows}
    plain = {clients: each.plain() for clients, each in arms.items()}
    fitted = "fitted on" if table.role == "fit" else ""
    found = [
        compared(
            table.name,
            f"{clients} clients, no drafts, tok/s",
            measured,
            plain[clients].throughput_tok_s,
            counted=False,
            note="fitted on" if table.name in _PLAIN_FITTED else "for information",
        )
        for clients, measured in table.plain.items()
    ]
    for clients, k, _, ratio in table.rows:
        speculating = arms[clients].speculating(
            k, table.own_length(clients, k), of_requests=table.mean_length == "requests"
        )
        found.append(
            compared(
                table.name,
                f"{clients} clients, K = {k}",
                ratio,
                table.score(speculating) / table.score(plain[clients]),
                counted=not fitted,
                bound=BOUND,
                note=fitted,
            )
        )
    return found


def _on_others(table: Published) -> list[Row]:
    """The same cells with other profiles of the machine, not counted."""
    found = []
    for profile in table.also_on:
        other = msgspec.structs.replace(
            table, name=table.name_on(profile), hardware=profile, plain={}
        )
        for row in rows_of(other):
            note = row.note or "for information"
            found.append(msgspec.structs.replace(row, counted=False, note=note))
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
