"""The simulator against a real vLLM on the same device.

    python -m benchmarks.virtual_device.simulated --runs out/virtual_device [--loads 1,16,64]

The runs are those of the section `main`. Simulator and vLLM serve the same requests in the same
order and are charged by the same device. What the simulator accepts is what the drafter really
says: from every position of the texts that vLLM has emitted the draft model drafts Kmax tokens,
those are accepted that follow in the text, and their probabilities are the confidence. Nothing is
fitted.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from adaptive_spec.errors import DataError
from adaptive_spec.policy import Policy, build_policy
from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.drafters.registry import drafter
from adaptive_spec.sim.engine.loop import Engine
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.registry import hardware
from adaptive_spec.sim.load.base import ClosedLoad
from adaptive_spec.sim.load.request import Request

from .arms import GOODPUT, KMAX, NONE, STATIC, warm
from .cells import Curve, SimulatedRow, write_lines
from benchmarks.judge.device import DEVICES, DRAFTERS, Device, Work
from .runs import Run, RunFile
from .setup import ROOT
from .sweep import MOST_CLIENTS, SECTIONS
from .vllm_engine import MODELS
from .worker import LEARN_STEPS

METHOD = "draft_model"
ARMS = (NONE, *STATIC, GOODPUT)
Texts = Sequence[tuple[list[int], list[int]]]


def acceptance(texts: Texts, models: Path) -> AcceptanceData:
    """Return a record for each text: what the draft model drafts from every position on."""
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(models / MODELS[METHOD], dtype=torch.float32).eval()
    accepted, sure, lengths = [], [], []
    for prompt, answer in texts:
        # The drafter begins after the first token of the answer.
        first, rows = len(prompt), max(len(answer) - 1, 1)
        with torch.no_grad():
            drafted, certain = _drafts(model, prompt + answer, first, rows)
        for place in range(rows):
            follows = answer[1 + place : 1 + place + KMAX]
            right = [a == b for a, b in zip(drafted[place], follows, strict=False)]
            accepted.append((*right, False).index(False))
        sure += certain
        lengths.append(rows)
    return AcceptanceData(
        name="bench pair",
        source="the bench pair's own texts",
        accepted=np.array(accepted, dtype=np.uint8),
        offsets=np.cumsum([0, *lengths]),
        prompt_tokens=np.array([len(prompt) for prompt, _ in texts]),
        labels=("",) * len(texts),
        depth=KMAX,
        confidence=np.array(sure, dtype=np.float32),
    )


def _drafts(
    model: Any, text: list[int], first: int, rows: int
) -> tuple[list[list[int]], list[list[float]]]:
    """Kmax drafts, and their probabilities, that follow each of `rows` positions from `first` on.

    Each position is a row that sees the text up to there, then its own drafts.
    """
    import torch

    read = model(torch.tensor([text]), use_cache=True)
    likely = read.logits[0, first : first + rows].softmax(-1).max(-1)
    drafts, certain = [likely.indices], [likely.values]
    places = first + torch.arange(rows)
    cache = read.past_key_values
    cache.batch_repeat_interleave(rows)
    seen = (torch.arange(len(text)) <= places[:, None]).long()
    for depth in range(1, KMAX):
        seen = torch.cat((seen, torch.ones(rows, 1, dtype=torch.long)), dim=1)
        read = model(
            drafts[-1][:, None],
            attention_mask=seen,
            position_ids=places[:, None] + depth,
            past_key_values=cache,
        )
        likely = read.logits[:, -1].softmax(-1).max(-1)
        drafts.append(likely.indices)
        certain.append(likely.values)
    return torch.stack(drafts, 1).tolist(), torch.stack(certain, 1).tolist()


def simulate(
    data: AcceptanceData,
    texts: Texts,
    policy: Policy,
    device: Device,
    method: str,
    clients: int,
    least_steps: int = 0,
    drafts_past_end: bool = False,
) -> list[tuple[Work, float]]:
    """Steps of the simulator, with their seconds; the texts over and over for `least_steps`."""
    steps: list[tuple[Work, float]] = []

    def requests() -> Iterator[Request]:
        for number in itertools.count():
            if number >= len(texts) and len(steps) >= least_steps:
                return
            record = number % len(texts)
            prompt, answer = texts[record]
            # Only the first requests of a load are cut short.
            whole = number >= len(texts) and record < clients
            yield Request(
                id=str(number),
                arrival=0.0,
                prompt_tokens=len(prompt),
                output_tokens=64 if whole else len(answer),
                record=record,
            )

    engine = Engine(
        ClosedLoad(requests(), clients),
        data,
        drafter(DRAFTERS[method]),
        hardware(device.hardware),
        policy,
        EngineOptions(
            max_draft_tokens=KMAX,
            delay=1,  # the adapter learns from a step when the next one has been launched
            drafts_past_end=drafts_past_end,
            max_running=MOST_CLIENTS,
            kv_tokens=1 << 20,
        ),
    )
    counted = engine.measurements.step

    def step(now: float, seconds: float, batch_size: int, emitted: int) -> Any:
        steps.append((Work(requests=batch_size, emitted=emitted), seconds))
        return counted(now, seconds, batch_size, emitted)

    engine.measurements.step = step  # type: ignore[method-assign]
    engine.run()
    return steps


def steady(steps: Sequence[tuple[Work, float]]) -> float:
    """Tokens per second in the steady part."""
    seconds = (each for _, each in steps)
    charge: Any = SimpleNamespace(seconds=lambda _: next(seconds))
    return Curve([work for work, _ in steps], charge).steady


def compare(
    device: Device, clients: int, real: dict[str, Run], models: Path
) -> Iterator[SimulatedRow]:
    """Simulate every arm of a load that was run."""
    texts = real[NONE].texts
    data = acceptance(texts, models)
    for arm in ARMS:
        run = real.get(warm(arm) if arm == GOODPUT else arm)
        if run is None:
            continue
        method = NONE if arm == NONE else METHOD
        policy = build_policy(*_policy(arm))
        if arm == GOODPUT:
            simulate(data, texts, policy, device, method, clients, LEARN_STEPS)
        own_k = arm in STATIC
        steps = simulate(data, texts, policy, device, method, clients, drafts_past_end=own_k)
        rate = Curve(run.steps, device.charge(method)).steady
        yield SimulatedRow(
            device=device.name,
            clients=clients,
            arm=arm,
            real=round(rate, 2),
            simulated=round(steady(steps), 2),
            real_steps=len(run.steps),
            simulated_steps=len(steps),
        )


def _policy(arm: str) -> tuple[str, dict[str, Any]]:
    if arm == NONE:
        return "off", {}
    return ("goodput", {}) if arm == GOODPUT else ("static", {"k": int(arm[1:])})


def main() -> int:
    """Read the real runs, simulate, print."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=ROOT / "out" / "virtual_device")
    parser.add_argument("--models", type=Path, required=True, help="folder of the bench models")
    parser.add_argument("--loads", default="1,16,64")
    parser.add_argument("--devices", default="h100-8b,h100-moe")
    parser.add_argument("--json", type=Path, help="write the rows there")
    given = parser.parse_args()
    runs = {run.key: run for run in RunFile(given.runs / "runs.jsonl").read()}
    main = SECTIONS["main"]
    rows = []
    print(f"{'device':10s} {'clients':>7s} {'arm':8s} {'real':>10s} {'simulated':>10s}  error")
    for name, load in itertools.product(given.devices.split(","), main.loads()):
        if load.name not in given.loads.split(","):
            continue
        keys = {arm: main.key(METHOD, arm, name, load) for arm in (NONE, *STATIC, warm(GOODPUT))}
        real = {arm: runs[key] for arm, key in keys.items() if key in runs}
        if NONE not in real or not real[NONE].texts:
            raise DataError(f"{given.runs}: no texts of {load.name} clients without speculation")
        for row in compare(DEVICES[name], int(load.name), real, given.models):
            rows.append(row)
            print(
                f"{row.device:10s} {row.clients:7d} {row.arm:8s} {row.real:10.1f} "
                f"{row.simulated:10.1f} {row.error:+6.2%}  steps {row.real_steps} "
                f"{row.simulated_steps}",
                flush=True,
            )
    if given.json is not None:
        write_lines(given.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
