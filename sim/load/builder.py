"""Builder of loads from command-line texts and descriptions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import msgspec
import numpy as np

from adaptive_spec.errors import ConfigError
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.load.arrivals import (
    arriving,
    gamma_arrivals,
    lump_seconds,
    piecewise,
    random_bursts,
    reshaped,
    sliced,
    spread_lumps,
)
from adaptive_spec.sim.load.base import ClosedLoad, Load, OpenLoad, TenantMix, VaryingClosedLoad
from adaptive_spec.sim.load.description import (
    Concurrency,
    Description,
    Rate,
    Tenant,
    read_description,
)
from adaptive_spec.sim.load.load_text import (
    Closed,
    FromFile,
    LoadOptions,
    Steady,
    parse_text,
)
from adaptive_spec.sim.load.request import Request, TokenLaw, requests_of, with_lengths
from adaptive_spec.sim.load.step_trace import read_step_trace
from adaptive_spec.sim.load.trace_files import (
    SAMPLE,
    LoadFormat,
    format_of,
    read_azure,
    read_burstgpt,
    read_mooncake,
)

_DEEPEST = 8


@dataclass(frozen=True)
class Open:
    """Requests in order of arrival, before they become a load."""

    requests: Iterator[Request]
    endless: bool = False


@dataclass(frozen=True, eq=False)
class Builder:
    """Builder of one load.

    Attributes:
        data: whose records the requests follow, where no file gives lengths.
        seed: each use spawns a part of its own.
        folder: what relative paths start from.
        task: follow records with this label only, where there are any.
        prompt, output: laws that replace lengths; None leaves them.
        level: descriptions within descriptions so far.
        notes: what was done to files, in words; filled while loads are built.
    """

    data: AcceptanceData
    seed: np.random.SeedSequence
    folder: Path = Path()
    task: str = ""
    prompt: TokenLaw | None = None
    output: TokenLaw | None = None
    level: int = 0
    notes: list[str] = field(default_factory=list)

    def load(self, text: str) -> Load:
        """The load these words mean. Raises ConfigError or DataError."""
        parsed = parse_text(text, self.folder)
        if isinstance(parsed, Closed):
            return ClosedLoad(self._records(), parsed.clients, endless=True)
        if isinstance(parsed, Steady):
            return _with_options(text, self._steady(parsed), parsed.options)
        if format_of(parsed.path) is not LoadFormat.DESCRIPTION:
            return _with_options(text, self._file(text, parsed), parsed.options)
        description = self._described(parsed.path)
        inside = replace(self, folder=parsed.path.parent, level=self.level + 1)
        if description.rate is not None and parsed.options.unit is None:
            return _with_options(text, inside._rate(description.rate), parsed.options)
        if parsed.options != LoadOptions():
            raise ConfigError(
                f"load {text!r}: options are for open loads; write them to the loads in the file"
            )
        return inside.described(description)

    def described(self, description: Description) -> Load:
        """The load of a description."""
        if description.tenants is not None:
            return TenantMix([(each, self._tenant(each)) for each in description.tenants])
        if description.concurrency is not None:
            return self._concurrency(description.concurrency)
        assert description.rate is not None
        stream = self._rate(description.rate)
        return OpenLoad(stream.requests, endless=stream.endless)

    def _rate(self, rate: Rate) -> Open:
        inside = self._with_laws(rate.prompt_tokens, rate.output_tokens)
        base = inside.load(rate.base)
        if not isinstance(base, OpenLoad):
            raise ConfigError(f"`rate.base` is {rate.base!r}: it must be an open load")
        bursts = rate.bursts
        if bursts is None:
            pieces = piecewise(rate.pieces, repeat=rate.repeat)
            endless = base.endless and rate.repeat
        else:
            pieces = random_bursts(bursts.every, bursts.seconds, bursts.factor, self._random())
            endless = base.endless
        return Open(reshaped(_drained(base), pieces), endless)

    def _concurrency(self, concurrency: Concurrency) -> Load:
        inside = self._with_laws(concurrency.prompt_tokens, concurrency.output_tokens)
        return VaryingClosedLoad(
            inside._records(), concurrency.pieces, repeat=concurrency.repeat, endless=True
        )

    def _tenant(self, tenant: Tenant) -> Load:
        inside = self._with_laws(tenant.prompt_tokens, tenant.output_tokens)
        inside = replace(inside, task=self.task if tenant.task is None else tenant.task)
        load = tenant.load
        return inside.load(load) if isinstance(load, str) else inside.described(load)

    def _steady(self, steady: Steady) -> Open:
        times = gamma_arrivals(steady.rate, steady.cv, self._random())
        return Open(arriving(self._records(), times), endless=True)

    def _file(self, text: str, given: FromFile) -> Open:
        path, kind, unit = given.path, format_of(given.path), given.options.unit
        if kind in (LoadFormat.MOONCAKE, LoadFormat.BAILIAN):
            if given.options.closed is not None:  # arrivals are not used
                requests = read_mooncake(path, "ms")
            else:
                if unit is None and kind is LoadFormat.BAILIAN:
                    unit = "s"
                requests = self._without_lumps(path, read_mooncake(path, unit))
        elif unit is not None:
            raise ConfigError(f"load {text!r}: unit is for JSON lines; the times here have one")
        elif kind is LoadFormat.AZURE:
            requests = read_azure(path)
        elif kind is LoadFormat.BURSTGPT:
            requests = read_burstgpt(path)
        else:
            requests = read_step_trace(path)
        return Open(self._lengths(requests))

    def _without_lumps(self, path: Path, requests: Iterator[Request]) -> Iterator[Request]:
        """Mooncake's conversation trace has 12,031 requests at 1,180 times, 3 seconds apart."""
        head = list(islice(requests, SAMPLE))
        requests = chain(head, requests)
        seconds = lump_seconds([request.arrival for request in head])
        if not seconds:
            return requests
        self.notes.append(
            f"{path}: {len(head) / len({each.arrival for each in head}):.0f} requests arrive at "
            f"once every {seconds:g} s, as its times are rounded; they are spread over the "
            f"{seconds:g} s"
        )
        return spread_lumps(requests, seconds, self._random())

    def _described(self, path: Path) -> Description:
        if self.level >= _DEEPEST:
            raise ConfigError(f"{path}: descriptions name each other more than {_DEEPEST} deep")
        return read_description(path)

    def _records(self) -> Iterator[Request]:
        return self._lengths(requests_of(self.data, seed=self._child(), task=self.task))

    def _lengths(self, requests: Iterator[Request]) -> Iterator[Request]:
        if self.prompt is None and self.output is None:
            return requests
        return with_lengths(requests, self.prompt, self.output, self._random())

    def _with_laws(self, prompt: TokenLaw | None, output: TokenLaw | None) -> Builder:
        return replace(
            self,
            prompt=self.prompt if prompt is None else prompt,
            output=self.output if output is None else output,
        )

    def _child(self) -> np.random.SeedSequence:
        return self.seed.spawn(1)[0]

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(self._child())


def _with_options(text: str, stream: Open, options: LoadOptions) -> Load:
    requests, endless = stream.requests, stream.endless
    if msgspec.structs.replace(options, unit=None) != LoadOptions():
        requests = sliced(requests, skip=options.skip, first=options.first, rate=options.rate)
        endless = endless and options.first == math.inf
    load: Load
    if options.closed is not None:
        load = ClosedLoad(requests, options.closed, endless=endless)
    else:
        load = OpenLoad(requests, endless=endless)
    if load.next_arrival() == math.inf:
        raise ConfigError(f"load {text!r}: no request arrives in the time asked for")
    return load


def _drained(load: OpenLoad) -> Iterator[Request]:
    while load.next_arrival() < math.inf:
        yield load.take_request()


def parse_load(
    text: str, data: AcceptanceData, *, seed: int, notes: list[str] | None = None
) -> Load:
    """The load that ``--load`` names.

    Args:
        text: ``closed:N``, ``poisson:RATE``, ``gamma:RATE:CV`` or a file, with options; see
            `load_text`. The format of a file is found from its content, see `file_format`.
        data: acceptance data; requests without lengths of their own follow its records.
        seed: of everything random in the load. Same seed, same requests.
        notes: what was done to its files, in words, is appended.

    Raises ConfigError for words or a description that cannot be used, and DataError, here or while
    requests are taken, for a file that is missing or damaged; one line, naming file and row.
    """
    if seed < 0:
        raise ConfigError(f"the seed must be 0 or more, got {seed}")
    sequence = np.random.SeedSequence(seed)
    return Builder(data, sequence, notes=[] if notes is None else notes).load(text)
