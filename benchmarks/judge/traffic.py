"""Requests to an engine: clients in a closed loop, a number that changes, or arrivals in time.

Streams of several kinds run side by side: clients that wait, conversations, bursts.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.sim.data_folder import data_folder
from adaptive_spec.sim.load.trace_files import read_azure, read_mooncake
from adaptive_spec.step import IntArray

from .engines import Engine
from .records import lines
from .script import DRAFT, EMITTED, Lines

TOKENS = 64
"""Size of the vocabulary (`engines.write_model`)."""
PAUSE_SECONDS = 1.0
"""Virtual time between two loads, so that the adapter sees an idle engine."""
LUMP_SECONDS = 3.0
"""Mooncake's conversation trace has 1,180 distinct times in 12,031 rows: they are floored to
multiples of 3 seconds. Each lump is spread over its 3 seconds."""
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of clients that send a number of requests.

    Attributes:
        clients: of the closed loop.
        requests: sent in this piece.
        records: what they play; empty: those of the traffic.
    """

    clients: Positive
    requests: Positive
    records: tuple[str, ...] = ()


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arrivals of a public trace, at another speed.

    Attributes:
        trace: ``azure-conv``, ``azure-code``, ``mooncake``.
        rate: requests per second in the mean.
        requests: the first ones.
        lengths: prompts and answers have the trace's lengths, at most `longest` of an answer.
    """

    trace: str
    rate: float
    requests: Positive
    lengths: bool = True


class _Answers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text and lengths of requests.

    Attributes:
        records: what the drafter does; of several, requests play one after the other in turn.
        lengths: of answers: ``records`` for each record's own, ``lognormal`` for a log-normal
            distribution of mean `mean`, or ``even`` for half to one and a half times the mean.
        mean: tokens of an answer.
        longest: bound of an answer (tokens).
        prompts: tokens of each prompt; 0: the record's own, or 64.
    """

    records: tuple[str, ...] = ()
    lengths: str = "records"
    mean: int = 64
    longest: int = 2048
    prompts: int = 0


class Stream(_Answers, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests of one kind, beside those of other streams.

    Attributes:
        requests: in all.
        clients: of a closed loop; 0: the requests arrive in time.
        turns: requests of a conversation. The prompt of each goes on from the last answer, and the
            engine has kept what it read and wrote before.
        wait: mean seconds between an answer and its client's next request; exponential.
        rate: lowest and highest number of arrivals per second, between which it swings.
        period: seconds of a swing.
        burst: requests that arrive at once.
    """

    requests: Positive
    clients: int = 0
    turns: Positive = 1
    wait: float = 0.0
    rate: tuple[float, float] = (1.0, 1.0)
    period: float = 60.0
    burst: Positive = 1


class Traffic(_Answers, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The load: requests, prompts and lengths.

    Attributes:
        pieces: of a closed loop; a client sends its next request when its last one is answered.
        arrivals: in place of `pieces`.
        streams: in place of both.
    """

    pieces: tuple[Piece, ...] = ()
    arrivals: Arrivals | None = None
    streams: tuple[Stream, ...] = ()

    @property
    def changes(self) -> bool:
        """Return whether the number of clients changes."""
        return len({piece.clients for piece in self.pieces}) != 1

    @property
    def timed(self) -> bool:
        """Return whether requests come at times of their own, and not just after answers."""
        by_time = any(stream.wait or not stream.clients for stream in self.streams)
        return self.arrivals is not None or by_time

    @property
    def cached(self) -> bool:
        """Return whether prompts begin with what the engine has kept."""
        return any(stream.turns > 1 for stream in self.streams)

    @property
    def requests(self) -> int:
        """Requests in all."""
        if self.arrivals is not None:
            return self.arrivals.requests
        by_pieces = sum(piece.requests for piece in self.pieces)
        return by_pieces + sum(stream.requests for stream in self.streams)


class Job(NamedTuple):
    """A request: the stretch of the records that it plays, and its tokens.

    Attributes:
        history: tokens that the prompt begins with, of earlier turns.
        arrival: seconds from the load's begin.
        after: number of the request whose answer comes before; -1: none.
        wait: seconds since that answer.
    """

    prompt: int
    tokens: int
    lines: Lines
    start: int
    arrival: float = 0.0
    after: int = -1
    wait: float = 0.0
    history: Sequence[int] = ()


_DRAWN_BY = ("pieces", "arrivals", "records", "lengths", "mean", "longest", "prompts")
"""Fields that the draws of a load depend on, beside its streams. The order is part of it."""
SPREAD = 1.0
"""Standard deviation of the logarithm of log-normal lengths: the longest tenth is 3.6 times the
median."""


def jobs(traffic: Traffic, method: str, kmax: int, seed: int) -> list[Job]:
    """Return all requests; same arguments, same requests, whatever answers them.

    Raises DataError where records or a trace are not there.
    """
    shape = {name: getattr(traffic, name) for name in _DRAWN_BY}
    if traffic.streams:
        shape["streams"] = traffic.streams
    digest = zlib.crc32(msgspec.json.encode(shape))
    random = np.random.default_rng([seed, digest])
    made: list[Job] = []
    for stream in traffic.streams:
        known = [lines(name, method, kmax) for name in stream.records or traffic.records]
        made += _stream(stream, known, len(made), random)
    if made:
        return made
    pieces: Sequence[tuple[int, tuple[str, ...]]] = [
        (piece.requests, piece.records or traffic.records) for piece in traffic.pieces
    ] or [(traffic.requests, traffic.records)]
    arrived = None if traffic.arrivals is None else _arrivals(traffic.arrivals, random)
    for requests, names in pieces:
        known = [lines(name, method, kmax) for name in names]
        for number in range(requests):
            at = None if arrived is None else arrived[len(made)]
            made.append(_job(traffic, known[number % len(known)], random, at))
    return made


def _job(
    traffic: _Answers, played: Lines, random: np.random.Generator, at: _Arrival | None = None
) -> Job:
    data = played.data
    record = int(random.integers(0, data.records))
    start, own = int(data.offsets[record]), int(data.lengths[record])
    tokens = own + 1
    if traffic.lengths == "lognormal":
        drawn = random.lognormal(np.log(traffic.mean) - SPREAD**2 / 2, SPREAD)
        tokens = max(round(float(drawn)), 4)
    elif traffic.lengths == "even":
        tokens = int(random.integers(traffic.mean // 2, traffic.mean * 3 // 2 + 1))
    elif traffic.lengths != "records":
        raise DataError(f"lengths {traffic.lengths!r}: there are records, lognormal, even")
    prompt = traffic.prompts or int(data.prompt_tokens[record]) or 64
    if at is None:
        return Job(prompt, min(tokens, traffic.longest), played, start)
    if at.prompt:
        prompt, tokens = at.prompt, max(at.tokens, 2)
    return Job(prompt, min(tokens, traffic.longest), played, start, at.seconds)


def _stream(
    stream: Stream, known: Sequence[Lines], first: int, random: np.random.Generator
) -> list[Job]:
    """Return the requests of a stream; `first` is the number of the first one."""
    made: list[Job] = []
    clients, seconds = stream.clients, 0.0
    for number in range(stream.requests):
        job = _job(stream, known[number % len(known)], random)
        if not clients:
            if not number % stream.burst:
                seconds = _next_arrival(stream, seconds, random)
            made.append(job._replace(arrival=seconds))
            continue
        round_, history = number // clients, list[int]()
        if number >= clients:
            wait = float(random.exponential(stream.wait)) if stream.wait else 0.0
            job = job._replace(after=first + number - clients, wait=wait)
        if stream.turns > 1 and round_ % stream.turns:
            before = made[number - clients]
            history = [*before.history, *[DRAFT] * (before.prompt - len(before.history))]
            history += [EMITTED] * before.tokens
        elif stream.turns > 1:  # two tokens tell the conversations apart
            name = first + number
            history = [name % TOKENS, name // TOKENS % TOKENS]
        made.append(job._replace(prompt=len(history) + job.prompt, history=history))
    return made


def _next_arrival(stream: Stream, seconds: float, random: np.random.Generator) -> float:
    """Return the next time of a Poisson process whose rate swings as a sine does, by thinning."""
    low, high = stream.rate
    while True:
        seconds += float(random.exponential(1.0 / high))
        swing = 0.5 - 0.5 * math.cos(2.0 * math.pi * seconds / stream.period)
        if random.random() * high <= low + (high - low) * swing:
            return seconds


class _Arrival(NamedTuple):
    seconds: float
    prompt: int
    tokens: int


_TRACES = {
    "azure-conv": "azure_llm_2023_conv.csv.gz",
    "azure-code": "azure_llm_2023_code.csv.gz",
    "mooncake": "mooncake_conversation_trace.jsonl.gz",
}
LONGEST_PROMPT, _LONGEST_OF_TRACE = 131_072, 32_768
"""Prompt tokens of a cell, and of a request of a public trace, which is cut there."""


def _arrivals(given: Arrivals, random: np.random.Generator) -> list[_Arrival]:
    if given.trace not in _TRACES:
        raise DataError(f"no trace {given.trace!r}; there are: {', '.join(_TRACES)}")
    file = data_folder() / "load" / _TRACES[given.trace]
    read = read_mooncake if given.trace == "mooncake" else read_azure
    rows = []
    for row in read(file):
        rows.append(row)
        if len(rows) == given.requests:
            break
    if len(rows) < given.requests:
        raise DataError(f"{file}: {len(rows)} requests, not {given.requests}")
    times = np.array([row.arrival for row in rows])
    if given.trace == "mooncake":
        times = np.sort(times + random.uniform(0.0, LUMP_SECONDS, len(times)))
    times -= times[0]
    times *= given.requests / given.rate / times[-1]
    prompts: IntArray = np.array([row.prompt_tokens for row in rows])
    answers: IntArray = np.array([row.output_tokens for row in rows])
    return [
        _Arrival(
            float(time),
            max(min(int(prompt), _LONGEST_OF_TRACE), 1) if given.lengths else 0,
            int(tokens) if given.lengths else 0,
        )
        for time, prompt, tokens in zip(times, prompts, answers, strict=True)
    ]


class Served(NamedTuple):
    """Result of a load.

    Attributes:
        sent: steps until the last request was sent.
        first_token: [R] seconds until each request's first token.
        per_token: [R] seconds per token after the first.
    """

    sent: int
    first_token: list[float]
    per_token: list[float]


def serve(engine: Engine, traffic: Traffic, made: Sequence[Job]) -> Served:
    """Have a load answered by an idle engine."""
    recorder = engine.recorder
    clock = recorder.clock
    clock.advance(PAUSE_SECONDS)
    began, live, sent, total = clock(), set[str](), 0, len(made)
    last_sent = 0
    came: dict[str, float] = {}
    first: dict[str, float] = {}
    first_token, per_token = [0.0] * total, [0.0] * total
    limits = list(_limits(traffic.pieces))
    due = [] if limits else [(began + j.arrival, n) for n, j in enumerate(made) if j.after < 0]
    heapify(due)
    next_of = {job.after: number for number, job in enumerate(made)}

    def send(number: int, at: float) -> None:
        nonlocal sent, last_sent
        job, name = made[number], f"q{number}"
        came[name] = at
        engine.submit(name, job.prompt, job.tokens, job.lines, job.start, job.history)
        live.add(name)
        sent += 1
        if sent == total:
            last_sent = len(recorder.completed)

    while live or sent < total:
        if due and not live:
            # Rounded down, the time could stay short of the arrival: a step of no length more.
            clock.advance(max(due[0][0] - clock(), 0.0) + 1e-9)
        while due and due[0][0] <= clock():
            at, number = heappop(due)
            send(number, at)
        while limits and sent < total and len(live) < limits[sent]:
            send(sent, clock())
        for name, tokens, finished in engine.step():
            number = int(name[1:])
            if tokens and name not in first:
                first[name] = clock()
                first_token[number] = clock() - came[name]
            if finished:
                live.discard(name)
                rest = max(made[number].tokens - 1, 1)
                per_token[number] = (clock() - first[name]) / rest
                if (following := next_of.get(number)) is not None:
                    heappush(due, (clock() + made[following].wait, following))
    engine.drain()
    return Served(last_sent, first_token, per_token)


def _limits(pieces: Sequence[Piece]) -> Iterator[int]:
    """Number of clients by number of requests sent."""
    for piece in pieces:
        for _ in range(piece.requests):
            yield piece.clients
