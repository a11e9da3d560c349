"""The cells of the judge, read from `cells.yaml`: traffic on a device with a drafter.

Groups have equal weight, and were fixed before anything was tuned on them. A cell that came later
stands in a group whose name begins with ``later``; such groups are reported apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from adaptive_spec.errors import ConfigError

from .engines import SGLANG, VLLM, EngineKind, Name
from .sglang_scheduler import LAUNCHED
from .traffic import LONGEST_PROMPT, Arrivals, Piece, Stream, Traffic

FILE = Path(__file__).with_name("cells.yaml")
LATER = "later"
Measured = Literal["", "loaded", "whole"]
TPOT = "tpot"


class _Common(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that all cells of an entry of the file share.

    Attributes:
        kv_tokens: room in the KV cache; 0: enough.
        neighbour: on the device; see `clock.Noise`.
        kmax: `num_speculative_tokens`.
        ahead, fixed_depth, fillers, engine: see `EngineKind`.
        second_source: our own rule looks drafts up, too, where records say what is found.
        measured: what arms are compared by, where `measure` would choose another way.
        extra: it is run with ``--all`` only.
        quick: it is one of the gate's (`gate`).
    """

    kv_tokens: int = 0
    neighbour: tuple[float, ...] = ()
    kmax: int = 7
    ahead: bool = False
    fixed_depth: bool = False
    fillers: bool = False
    second_source: bool = False
    engine: Name = VLLM
    measured: Measured = ""
    extra: bool = False
    quick: bool = False


class Cell(_Common, frozen=True, kw_only=True):
    """One comparison.

    Attributes:
        group: of equal weight with the others.
        name: unique.
        device: on whose clock.
        method: of drafting.
        traffic: what clients ask for.
        noise: standard deviation of the logarithm of step times.
    """

    group: str
    name: str
    device: str
    method: str
    traffic: Traffic
    noise: float = 0.0

    @property
    def kind(self) -> EngineKind:
        """The engine that it runs on."""
        return EngineKind(
            self.method,
            self.kmax,
            self.ahead,
            self.fixed_depth,
            self.fillers,
            self.engine,
            self.traffic.cached,
        )

    @property
    def constant(self) -> bool:
        """Return whether so many clients ask all the time."""
        return not self.traffic.timed and not self.traffic.changes

    @property
    def measure(self) -> str:
        """Return the measure by which arms are compared.

        ``loaded``: tokens per second until the last request was sent, where the number of clients
        is constant; ``whole``: until the last answer; ``tpot``: mean time per token of
        requests that come at times of their own, which every arm answers as they come.
        """
        if self.traffic.timed:
            return TPOT
        return self.measured or ("loaded" if self.constant else "whole")


class _Entry(_Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells of a group: every device with every method, records and number of clients.

    Attributes:
        load: name of the traffic, where it has no number of clients.
        clients: of constant loads.
        pieces: (clients, requests[, records]) of a load that changes.
        requests: of constant loads; 0: four for each client, 40 at least.
    """

    devices: tuple[str, ...]
    methods: tuple[str, ...] = ("eagle",)
    records: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    pieces: tuple[tuple[Any, ...], ...] = ()
    arrivals: Arrivals | None = None
    streams: tuple[Stream, ...] = ()
    load: str = ""
    requests: int = 0
    lengths: str = "records"
    mean: int = 64
    longest: int = 2048
    prompts: int = 0
    noise: tuple[float, ...] = (0.0,)


def load_cells(file: Path = FILE) -> list[Cell]:
    """Read all cells, in the file's order. Raises ConfigError naming what is wrong."""
    try:
        groups = msgspec.yaml.decode(file.read_bytes(), type=dict[str, list[_Entry]])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{file.name}: {error}") from error
    found = [
        cell for group, entries in groups.items() for entry in entries for cell in _of(group, entry)
    ]
    for cell in found:
        if cell.engine == SGLANG and LAUNCHED.get(cell.method) != cell.kmax:
            known = ", ".join(f"{method} with kmax {k}" for method, k in LAUNCHED.items())
            raise ConfigError(f"{file.name}: {cell.name!r}: SGLang's cells are {known}")
        if len(cell.neighbour) not in (0, 3):
            raise ConfigError(f"{file.name}: {cell.name!r}: `neighbour` has three numbers")
        if cell.engine == SGLANG and cell.traffic.cached:
            raise ConfigError(f"{file.name}: {cell.name!r}: SGLang's cells have no conversations")
        # The scheduler would never admit it: `engines.MAX_MODEL_LEN`.
        if cell.traffic.prompts > LONGEST_PROMPT:
            raise ConfigError(
                f"{file.name}: {cell.name!r} has prompts of over {LONGEST_PROMPT} tokens"
            )
    names = [cell.name for cell in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{file.name}: two cells are named {name!r}")
    return found


def _of(group: str, entry: _Entry) -> Iterator[Cell]:
    played: tuple[tuple[str, ...], ...] = tuple((name,) for name in entry.records)
    if entry.mixed:
        played = (entry.mixed,)
    rows = itertools.product(
        entry.devices, entry.methods, played or ((),), entry.noise, entry.clients or (0,)
    )
    for device, method, records, noise, clients in rows:
        pieces = [Piece(piece[0], piece[1], tuple(piece[2:])) for piece in entry.pieces]
        if clients:
            pieces = [Piece(clients, entry.requests or max(4 * clients, 40))]
        words: list[str] = [] if entry.engine == VLLM else [entry.engine]
        words += [device, method, "+".join(records), entry.load, f"{clients}" if clients else ""]
        words += [f"noise {noise:g}"] if noise else []
        yield Cell(
            group=group,
            name=" ".join(filter(None, words)),
            device=device,
            method=method,
            noise=noise,
            **{field: getattr(entry, field) for field in _Common.__struct_fields__},
            traffic=Traffic(
                pieces=tuple(pieces),
                arrivals=entry.arrivals,
                streams=entry.streams,
                records=records,
                lengths=entry.lengths,
                mean=entry.mean,
                longest=entry.longest,
                prompts=entry.prompts,
            ),
        )
