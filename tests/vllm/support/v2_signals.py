"""What the drafter of a V2 engine computed, and what arrived; runs in the engine's process."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from engines import Answer, Engine, Job
from recording import record_steps, stop_recording


@dataclass
class Round:
    """One round of drafting: requests, maximum probability and entropy [R, D]."""

    names: tuple[str, ...]
    confidence: np.ndarray
    entropy: np.ndarray
    way: str = ""
    """``drafts``, ``results``, or ``results of verification``: what it arrived with."""


@dataclass
class Step:
    """A decode step: what its plan and its outcome knew, [B, Kmax], and how many were verified."""

    names: tuple[str, ...]
    in_time: np.ndarray | None
    late: np.ndarray | None
    verified: np.ndarray


@dataclass
class Shown:
    """A run.

    Attributes:
        answers: by name of the job.
        computed: rounds, from the logits themselves, in float64.
        arrived: rounds that reached the scheduler.
        steps: those that decoded.
        worker: name of the worker's class.
        reader: name of the class that stands where vLLM's estimator would.
        trims: does vLLM's own adaptive verification run?
        failures: faults of ours.
    """

    answers: dict[str, Answer]
    computed: list[Round] = field(default_factory=list)
    arrived: list[Round] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    worker: str = ""
    reader: str = ""
    trims: bool = False
    failures: dict[str, int] = field(default_factory=dict)


def certainty(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximum and entropy of the softmax of [..., V]."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    q = shifted / shifted.sum(axis=-1, keepdims=True)
    return q.max(axis=-1), -(q * np.log(np.maximum(q, 1e-300))).sum(axis=-1)


def watch(engine: Engine, jobs: list[Job], late: bool) -> Shown:
    """Serve the jobs and note both sides.

    Args:
        engine: a V2 engine with a drafter, and `adaptive` set.
        jobs: the requests.
        late: let the values go the way they go on a GPU.
    """
    worker = engine.core.model_executor.driver_worker.worker
    speculator = engine.runner.speculator
    if late:
        worker._adaptive_spec_tap._in_time = False
    shown = Shown(
        answers={},
        worker=type(worker).__name__,
        reader=type(speculator.acceptance_estimator).__name__,
        trims=engine.runner.adaptive_verification is not None,
    )
    _note_computed(speculator, shown.computed)
    _note_arrived(engine.scheduler, shown.arrived)
    record = record_steps(engine)
    try:
        shown.answers = engine.run(jobs)
    finally:
        stop_recording(engine)
        for owner, name in (
            (speculator, "compute_draft_logits"),
            (engine.scheduler, "update_draft_token_ids"),
            (engine.scheduler, "update_from_output"),
        ):
            vars(owner).pop(name, None)
    for context, _, outcome in record:
        if outcome is not None:
            rows = [context.slots.tolist().index(slot) for slot in outcome.slots.tolist()]
            shown.steps.append(
                Step(
                    names=tuple(context.request_ids[row] for row in rows),
                    in_time=None if context.confidence is None else context.confidence[rows],
                    late=outcome.confidence,
                    verified=outcome.verified,
                )
            )
    shown.failures = dict(engine.controller.counters.failures)
    return shown


def run_kernel(
    logits: np.ndarray, half: bool, slots: list[int], temperatures: list[float], sampled: bool
) -> np.ndarray:
    """Maximum probability and entropy, [2, rows + 1, 3], of position 1; nan where untouched.

    The logits are [rows, V], given to the kernel as a part of a wider tensor.
    """
    import torch

    from adaptive_spec.adapters.vllm.draft_signal.certainty_kernel import write_certainty

    wide = torch.zeros(len(logits), logits.shape[1] + 3)
    wide[:, :-3] = torch.from_numpy(logits)
    shown = torch.full((2, len(logits) + 1, 3), torch.nan)
    write_certainty(
        shown,
        (wide.bfloat16() if half else wide)[:, :-3],
        torch.tensor(slots),
        torch.tensor(temperatures),
        torch.tensor(1),
        sampled=sampled,
    )
    return shown.double().numpy()


def _note_computed(speculator: Any, computed: list[Round]) -> None:
    """From the logits, before anything of ours sees them."""
    logits: list[np.ndarray] = []
    head, propose = type(speculator).compute_draft_logits.__get__(speculator), speculator.propose

    def compute_draft_logits(*args: Any, **kwargs: Any) -> Any:
        made = head(*args, **kwargs)
        logits.append(made.double().numpy().copy())
        return made

    def noted(input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        logits.clear()
        drafts = propose(input_batch, *args, **kwargs)
        depth = kwargs["num_speculative_tokens"]
        if depth:
            passes = np.stack([made[: input_batch.num_reqs] for made in logits[:depth]], axis=1)
            computed.append(Round(tuple(input_batch.req_ids), *certainty(passes)))
        return drafts

    speculator.compute_draft_logits = compute_draft_logits
    speculator.propose = noted


def _note_arrived(scheduler: Any, arrived: list[Round]) -> None:
    from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE

    drafted, finished = scheduler.update_draft_token_ids, scheduler.update_from_output

    def note(carrier: Any, way: str) -> None:
        signals = getattr(carrier, ATTRIBUTE, None)
        if signals is not None:
            way += " of verification" if signals.verified else ""
            arrived.append(
                Round(tuple(signals.request_ids), signals.confidence, signals.entropy, way)
            )

    def update_draft_token_ids(carrier: Any) -> Any:
        note(carrier, "drafts")
        return drafted(carrier)

    def update_from_output(scheduled: Any, carrier: Any) -> Any:
        note(carrier, "results")
        return finished(scheduled, carrier)

    scheduler.update_draft_token_ids = update_draft_token_ids
    scheduler.update_from_output = update_from_output
