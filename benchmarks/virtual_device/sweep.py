"""Which runs a page needs, in the order of their value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from adaptive_spec.adapters.vllm.graph_ladder import capture_sizes, rungs

from .arms import (
    BOTH,
    GOODPUT,
    KMAX,
    NONE,
    SGLANG_LIST,
    SGLANG_RULE,
    STATIC,
    Arm,
    parse_arm,
    warm,
)
from benchmarks.judge.device import DEVICES, Device, Graphs
from .runs import RunKey
from .setup import SGLANG, V1, V1_ASYNC, V2, Setup
from .traffic import MIXED, Load
from .worker import Task

REQUESTS = {1: 24, 4: 64, 16: 160, 64: 384, 128: 640, 256: 1024}
"""Requests of a closed loop by number of clients: 120 steps or more with K = 3."""
FEW_LOADS = {n: REQUESTS[n] for n in (1, 16, 64)}
QUICK_REQUESTS = {1: 8, 16: 96, 64: 192}
MOST_CLIENTS = 256
LADDER = rungs(KMAX, (), most=MOST_CLIENTS)
LARGEST_CAPTURED = 512
"""Tokens; vLLM's default on Hopper."""
VLLM_SIZES = (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_CAPTURED + 1, 16))
"""Captured sizes as vLLM chooses them, in tokens."""
GRAPHS = {
    "uniform": Graphs(kind="uniform"),
    "varlen": Graphs(kind="varlen", sizes=VLLM_SIZES),
    "ladder": Graphs(
        kind="ladder",
        ladder=LADDER,
        sizes=tuple(capture_sizes(LADDER, MOST_CLIENTS, LARGEST_CAPTURED)),
    ),
}
"""Graphs of an arm that has others than its device. The ladder's are those that the adapter
captures where attention has no graphs for batches whose K differ."""


@dataclass(frozen=True)
class Section:
    """Cells of one table.

    Attributes:
        name: as on the command line.
        methods: drafters.
        clients: of the closed loops, and their requests.
        arms: names; a policy that is cold is named, a warm one follows from it.
        devices: names.
        tables: vLLM's table, tuned on the static arms.
        others: loads beside the closed loops.
        engine: and how it schedules.
        kinds: of prompts.
        temperature: of sampling.
        seeds: of the prompts' order.
    """

    name: str
    methods: tuple[str, ...]
    clients: dict[int, int]
    arms: tuple[str, ...]
    devices: tuple[str, ...] = ("h100-8b",)
    tables: bool = False
    others: tuple[Load, ...] = ()
    engine: str = V1
    kinds: tuple[str, ...] = (MIXED,)
    temperature: float = 0.0
    seeds: tuple[int, ...] = field(default=(7,))

    def loads(self) -> Iterator[Load]:
        """All loads of the section."""
        for kind in self.kinds:
            for seed in self.seeds:
                how = dict(kind=kind, temperature=self.temperature, seed=seed)
                for clients, requests in self.clients.items():
                    # A run is known by the name of its load.
                    usual = REQUESTS[clients] == requests
                    name = str(clients) if usual else f"{clients} ({requests} requests)"
                    yield Load(name=name, pieces=((clients, requests),), **how)
                for load in self.others:
                    yield msgspec.structs.replace(load, **how)

    def key(self, method: str, arm: str, device: str, load: Load) -> RunKey:
        """The run of one of its cells; the steps of a fixed arm are those of every device."""
        adapts = parse_arm(arm).adapts or load.arrivals
        return RunKey(
            engine=self.engine,
            method=NONE if arm == NONE else method,
            arm=arm,
            device=device if adapts else "",
            load=load.name,
            kind=load.kind,
            temperature=load.temperature,
            seed=load.seed,
        )


RAMP = Load(name="1-256-1", pieces=((1, 12), (16, 96), (256, 1024), (16, 96), (1, 12)))
ASKED_AGAIN = tuple(
    Load(name=f"{clients} again", pieces=((clients, 2 * distinct),), distinct=distinct)
    for clients, distinct in ((1, 24), (16, 96), (64, 256))
)
"""Every prompt is asked twice."""
KINDS = ("code", "prose", "json", "log", "random")
ALL_KINDS = (MIXED, *KINDS)
CHAINS = ("draft_model", "mtp", "eagle3", "ngram")
POLICIES = "linucb", "regression", "thompson", "ucb"
TWO_DEVICES = ("h100-8b", "h100-moe")

SECTIONS = {
    section.name: section
    for section in (
        Section("main", CHAINS, REQUESTS, (NONE, *STATIC, GOODPUT), TWO_DEVICES, tables=True),
        Section(
            "no-gain",
            ("draft_poor",),
            {n: REQUESTS[n] for n in (16, 64, 128)},
            (NONE, *STATIC, GOODPUT),
        ),
        Section(
            "granularity",
            ("draft_model",),
            {n: REQUESTS[n] for n in (1, 16, 64, 128)},
            (NONE, *STATIC, GOODPUT, "history", "one-k"),
        ),
        Section(
            "graphs",
            ("draft_model", "mtp", "eagle3"),
            {n: REQUESTS[n] for n in (16, 64, 256)},
            (NONE, *STATIC, "varlen", "ladder"),
            TWO_DEVICES,
        ),
        Section("ramp", ("draft_model",), {}, (NONE, *STATIC, GOODPUT), others=(RAMP,)),
        # Its load is read from a trace.
        Section("arrivals", ("draft_model",), {}, (NONE, *STATIC, GOODPUT)),
        Section(
            "policies",
            ("draft_model",),
            FEW_LOADS,
            (NONE, *STATIC, *(f"policy:{name}" for name in POLICIES)),
        ),
        Section("eagle", ("eagle",), FEW_LOADS, (NONE, *STATIC, GOODPUT), TWO_DEVICES),
        # vLLM's proposer refuses every K but the configured one.
        Section("suffix", ("suffix",), FEW_LOADS, (NONE, f"k{KMAX}", GOODPUT), TWO_DEVICES),
        Section(
            "async",
            ("draft_model",),
            FEW_LOADS,
            (NONE, *STATIC, GOODPUT),
            engine=V1_ASYNC,
        ),
        # A step takes a fifth of a second or more in Triton's interpreter.
        Section("v2", ("draft_model",), {4: 16}, (NONE, "k1", "k3", "k5", GOODPUT), engine=V2),
        Section(
            "sampled",
            ("draft_model",),
            {n: REQUESTS[n] for n in (16, 64)},
            (NONE, *STATIC[:4], GOODPUT),
            temperature=0.8,
            seeds=(7, 8, 9),
        ),
        Section(
            "kinds",
            ("draft_model",),
            {16: REQUESTS[16]},
            (NONE, *STATIC, GOODPUT),
            kinds=KINDS,
        ),
        Section(
            "devices",
            ("draft_model",),
            {n: REQUESTS[n] for n in (1, 16, 64, 128)},
            (NONE, *STATIC, GOODPUT),
            ("h100-70b", "a100-8b"),
        ),
        Section(
            "sglang",
            ("draft_model",),
            {n: REQUESTS[n] for n in (1, 16, 64, 128)},
            (NONE, *STATIC, GOODPUT),
            TWO_DEVICES,
            engine=SGLANG,
        ),
        # SGLang has a rule of its own for EAGLE only.
        Section(
            "sglang-eagle",
            ("eagle",),
            {n: REQUESTS[n] for n in (1, 16, 64, 128)},
            (NONE, *STATIC, SGLANG_RULE, SGLANG_LIST, GOODPUT),
            TWO_DEVICES,
            engine=SGLANG,
        ),
        Section("two-sources", ("mtp",), {}, (GOODPUT, BOTH), others=ASKED_AGAIN, kinds=ALL_KINDS),
        Section("suffix-alone", ("suffix",), {}, (GOODPUT,), others=ASKED_AGAIN, kinds=ALL_KINDS),
    )
}
QUICK = Section(
    "quick", ("draft_model", "ngram"), QUICK_REQUESTS, (NONE, "k1", "k2", "k4", "k6", GOODPUT)
)


@dataclass
class Group:
    """Tasks of one engine process."""

    setup: Setup
    tasks: list[Task]


def groups(
    sections: Iterable[Section],
    models: str,
    done: set[RunKey],
    tables: dict[tuple[str, str, str], str],
    devices: Mapping[str, Device],
) -> list[Group]:
    """Engine processes that are still to run, in the order of the sections.

    Args:
        sections: wanted.
        models: folder of the bench models.
        done: runs that are at hand.
        tables: (section, method, device) -> the arm of vLLM's table, where the static arms are
            at hand.
        devices: by name.
    """
    found: dict[bytes, Group] = {}
    for section in sections:
        for method, name in ((m, d) for m in section.methods for d in section.devices):
            arms = list(section.arms)
            if section.tables and (section.name, method, name) in tables:
                arms.append(tables[section.name, method, name])
            for arm_name in arms:
                arm = parse_arm(arm_name)
                for load in section.loads():
                    key = section.key(method, arm_name, name, load)
                    # A load whose clients change is measured cold.
                    learns = warm(arm_name) if arm.adapts and len(load.pieces) < 2 else ""
                    # The steps of a fixed arm do not depend on the clock.
                    on = device_of(arm, devices[name] if key.device else DEVICES["h100-8b"])
                    task = Task(key=key, device=on, load=load, warm=learns)
                    if done.issuperset(task.keys):
                        continue
                    setup = _setup(section, key, arm, models)
                    group = found.setdefault(msgspec.json.encode(setup), Group(setup, []))
                    if task not in group.tasks:
                        group.tasks.append(task)
    return list(found.values())


def device_of(arm: Arm, device: Device) -> Device:
    """Return the device with the graphs that an arm has on it."""
    if not arm.graphs:
        return device
    return msgspec.structs.replace(device, graphs=GRAPHS[arm.graphs])


def _setup(section: Section, key: RunKey, arm: Arm, models: str) -> Setup:
    """The engine of a run: all arms that it can be switched to share one."""
    config = None
    if arm.config is not None:
        config = {
            name: arm.config[name] for name in ("confidence", "second_source") if name in arm.config
        }
    return Setup(
        models=models,
        engine=section.engine,
        method=key.method,
        sampled=section.temperature > 0,
        config=config,
        most_requests=MOST_CLIENTS,
    )
