"""Step traces: one JSON line per finished step, in append-only segments.

All adapters and the simulator write this format; replay, fit and report read it. A segment is named
``steps-<host>-<start>-<pid>-<number>.jsonl``, so that those of
several pods may share a folder; a killed process loses at most its last 32 steps, and readers
skip a last line that is cut. Segments rotate by size. The oldest of a folder's segments that no
process writes is deleted, so disk use stays bounded over restarts.

Columns of a step (arrays have one entry per request in ``ids``, in the same order):

===================  ==========================================================
``schema``           1
``step``, ``now``    step number; monotonic clock of the process, seconds
``mode``, ``reason`` mode and reason of the plan that ran
``depth``            D drafted at the end of this step
``seconds``          measured duration, null if unknown
``batch_size``       requests that decoded
``batch_tokens``     verified tokens, bonus positions included
``context_tokens``   sum over the decoding requests
``prefill_tokens``   prompt tokens in the same step
``waiting``          queue length; ``kv_free_tokens`` free KV
``ids``              request ids, long ones shortened to a digest; ``k`` drafts verified;
                     ``accepted``; ``emitted``
``available``        available drafts; ``possible`` most drafts that the step could use
``contexts``         tokens in the KV cache
``engine_k``         K of the engine itself
``predicted_*``      the policy's prediction, null without one
``propensity``       probability of the planned K, null if not randomised
===================  ==========================================================

Optional columns:

===================  ==========================================================
``measures``         true where the step ran to learn something
``planned_k``        K of the plan, where the verified K differ
``wanted_k``         the policy's own K (shadow mode); ``wanted_depth`` its depth
``audit``            in and beside an audit block: its number, ``before``, ``block`` or ``after``,
                     the arm that ran (``policy``, ``engine``, ``none``), and whether the step is
                     at an edge, and left out
``temperature``      sampling temperatures, where one is above 0
``task``             number of the task label, -1 without one, where one has a label
``tpot_target``      seconds, null without one, where one has a target
``opted_out``        the client wants no speculation, where one client does
``confidence``       maximum draft probability by position, null where unknown
``entropy``          entropy of the draft distribution in nats, likewise
``late_confidence``  confidence that came with the outcome, too late for the plan
``late_entropy``     likewise
``prompt_batches``   requests, prompt tokens and seconds of each batch of prompts alone since the
                     step before, where the engine runs prompts in batches of their own
``shared_seconds``   seconds of other work that the step cost, where there was some
``capability``       the engine's control options, in the first line of each segment
``kv_total_tokens``  size of the KV pool, likewise
``model``            name of the target, likewise, where the engine tells it
``why``              why the latest decision is as it is, in words, in every 32nd line
``task_names``       label by number, in the first line of a segment with that number
===================  ==========================================================
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from adaptive_spec.config import Trace
from adaptive_spec.operation.output_file import LockedFile, Retry, remove_unused
from adaptive_spec.operation.plain import plain
from adaptive_spec.operation.status import Counters
from adaptive_spec.step import (
    FinishedStep,
    FloatArray,
    IntArray,
    Mode,
    SpecPlan,
    StepContext,
    StepOutcome,
)

SCHEMA = 1
_MOST_HOST_CHARACTERS = 64
_FLUSH_EVERY_STEPS = 32
# Clients choose ids, and each step repeats them.
_MOST_ID_CHARACTERS = 96
"""Longest request id that is written as it is (characters)."""


class StepTrace:
    """Writer of a process's steps. Never raises; after a disk error a new segment is tried."""

    def __init__(
        self, config: Trace, counters: Counters, logger: logging.Logger, model: str = ""
    ) -> None:
        self._config, self._model = config, model
        self._directory = Path(config.directory) if config.directory else None
        self._retry = Retry(f"trace {config.directory!r}", counters.output_failed, logger)
        self._file: LockedFile | None = None
        self._path = Path()
        self._written = 0
        self._lines: list[bytes] = []
        self._task_names = counters.task_names
        self._named: set[int] = set()
        self._encoder = msgspec.json.Encoder(enc_hook=plain)  # a policy may predict numpy numbers
        # A digest without a key could be found by trying ids.
        self._key = os.urandom(16) if config.hash_ids else b""
        # A process's number, and a pod's name, come again after a restart.
        host = re.sub(r"[^A-Za-z0-9]+", "_", socket.gethostname())[:_MOST_HOST_CHARACTERS]
        began = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._prefix = f"steps-{host}-{began}-{os.getpid()}-"

    @property
    def on(self) -> bool:
        """Return whether steps are written."""
        return self._directory is not None

    def write(
        self,
        step: FinishedStep,
        wanted: SpecPlan,
        why: Callable[[], str] = lambda: "",
        audit: tuple[int, str, str, bool] | None = None,
    ) -> None:
        """Write a step: the plan that ran, the policy's own, now and then why, and its block."""
        now = step.outcome.now
        if self._directory is None or not self._retry.due(now):
            return
        try:
            self._add(step, wanted, why, audit)
        except Exception as error:  # what cannot be encoded is no fault of the policy
            self._retry.failed(now, error)
            return
        full = self._written >= self._config.segment_mb * 1e6
        if full or len(self._lines) >= _FLUSH_EVERY_STEPS:
            self.flush(now)
        if full:
            self._end_segment()

    def _add(
        self,
        step: FinishedStep,
        wanted: SpecPlan,
        why: Callable[[], str],
        audit: tuple[int, str, str, bool] | None,
    ) -> None:
        record = step_record(step, wanted)
        if audit is not None:
            record["audit"] = audit
        if self._key:
            record["ids"] = [self._digest(name) for name in step.context.request_ids]
        if not self._written:  # each segment repeats these columns: older ones may be deleted
            context = step.context
            record["capability"] = msgspec.to_builtins(context.capability)
            record["kv_total_tokens"] = context.kv_total_tokens
            if self._model:
                record["model"] = self._model
        if "task" in record and (names := self._new_names(record["task"])):
            record["task_names"] = names
        if not self._lines and (text := why()):
            record["why"] = text
        line = self._encoder.encode(record) + b"\n"
        self._lines.append(line)
        self._written += len(line)

    def _digest(self, name: str) -> str:
        content = name.encode("utf-8", "backslashreplace")
        return hashlib.blake2b(content, digest_size=12, key=self._key).hexdigest()

    def _new_names(self, tasks: list[int]) -> dict[str, str]:
        """Return the labels of numbers that this segment has not named yet."""
        new = set(tasks) - self._named - {-1}
        self._named |= new
        return {str(n): self._task_names[n] for n in sorted(new) if n in self._task_names}

    def flush(self, now: float) -> None:
        """Write the buffer, in case the process is killed."""
        if self._lines and not self._retry.attempt(now, self._write_lines):
            self._end_segment()  # its last line may be cut

    def close(self, now: float) -> None:
        """Write the buffer and close the open segment."""
        self.flush(now)
        self._end_segment()

    def _write_lines(self) -> None:
        new = self._file is None
        if self._file is None:
            self._path = self._new_path()
            self._file = LockedFile(self._path)
        try:
            self._file.write(b"".join(self._lines))
        except OSError:
            if new:  # on a full disk nothing of it has been written
                with contextlib.suppress(OSError):
                    self._path.unlink()
            raise
        self._lines.clear()
        if new:
            self._delete_oldest()

    def _end_segment(self) -> None:
        file, self._file = self._file, None
        self._written = 0
        self._named.clear()
        self._lines.clear()
        if file is not None:
            file.close()

    def _new_path(self) -> Path:
        """Return the name of the next segment, never one that exists."""
        assert self._directory is not None
        self._directory.mkdir(parents=True, exist_ok=True)
        prefix = self._prefix
        found = self._directory.glob(f"{prefix}*.jsonl*")  # also those that were packed
        numbers = [path.name.removeprefix(prefix).partition(".")[0] for path in found]
        number = max((int(text) + 1 for text in numbers if text.isdecimal()), default=0)
        return self._directory / f"{prefix}{number:06d}.jsonl"

    def _delete_oldest(self) -> None:
        """Delete the oldest segments beyond the limit, those in use excepted."""
        assert self._directory is not None
        found = [path for path in self._directory.glob("steps-*.jsonl") if path.is_file()]
        for path in sorted(found, key=_age)[: max(len(found) - self._config.max_segments, 0)]:
            with contextlib.suppress(OSError):
                remove_unused(path)


def _age(path: Path) -> tuple[int, str]:
    try:
        return path.lstat().st_mtime_ns, path.name
    except OSError:
        return 0, path.name


def step_record(step: FinishedStep, wanted: SpecPlan) -> dict[str, Any]:
    """Convert a step to one line of a trace, as a dict."""
    context, plan, outcome = step.context, step.plan, step.outcome
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "step": outcome.step,
        "now": round(outcome.now, 6),
        "mode": plan.mode.value,
        "reason": plain(plan.reason),
        "depth": outcome.draft_depth,
        "seconds": _number(outcome.seconds),
        "batch_size": outcome.batch_size,
        "batch_tokens": outcome.batch_tokens,
        "context_tokens": outcome.context_tokens,
        "prefill_tokens": outcome.prefill_tokens,
        "waiting": context.waiting,
        "kv_free_tokens": context.kv_free_tokens,
        "ids": list(map(_traced_id, context.request_ids)),
        "k": outcome.verified.tolist(),
        "accepted": outcome.accepted.tolist(),
        "emitted": outcome.emitted.tolist(),
        "available": context.draft_available.tolist(),
        "possible": context.draft_possible.tolist(),
        "contexts": context.context_tokens.tolist(),
        "engine_k": context.engine_k,
        "predicted_seconds": _number(plan.predicted_seconds),
        "predicted_tokens": _number(plan.predicted_tokens),
        "propensity": None if plan.propensity is None else plan.propensity.tolist(),
    }
    if plan.measures:
        record["measures"] = True
    if (plan.verify != outcome.verified).any():
        record["planned_k"] = plan.verify.tolist()
    if plan.mode is Mode.SHADOW:
        record["wanted_k"] = wanted.verify.tolist()
        record["wanted_depth"] = wanted.draft_depth
    record.update(_request_columns(context, outcome))
    return record


def _traced_id(name: str) -> str:
    """Return a request id that can be encoded and is no longer than `_MOST_ID_CHARACTERS`."""
    if len(name) <= _MOST_ID_CHARACTERS and name.isascii():
        return name
    content = name.encode("utf-8", "backslashreplace")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _request_columns(context: StepContext, outcome: StepOutcome) -> dict[str, Any]:
    """Return the optional columns."""
    columns: dict[str, Any] = {}
    if context.temperature.any():
        columns["temperature"] = context.temperature.tolist()
    if (context.task >= 0).any():
        columns["task"] = context.task.tolist()
    if np.isfinite(context.tpot_target).any():
        columns["tpot_target"] = _nullable(context.tpot_target, 6)
    if outcome.prompt_batches:
        columns["prompt_batches"] = [
            (requests, tokens, round(seconds, 7))
            for requests, tokens, seconds in outcome.prompt_batches
        ]
    if context.shared_seconds:
        columns["shared_seconds"] = round(context.shared_seconds, 9)
    if context.opted_out is not None and context.opted_out.any():
        columns["opted_out"] = context.opted_out.tolist()
    for name, digits in (("confidence", 4), ("entropy", 3)):
        in_time, late = getattr(context, name), getattr(outcome, name)
        if in_time is not None:
            columns[name] = _nullable(in_time, digits)
        elif late is not None:
            columns[f"late_{name}"] = _nullable(late, digits)
    return columns


def _nullable(values: IntArray | FloatArray, digits: int) -> Any:
    """Convert to nested lists; the encoder writes non-finite values as null."""
    return np.round(values, digits).tolist()


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 7)
