"""One vLLM engine in this process, worked by a closed loop of clients."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.bench_pair.names import KINDS
from benchmarks.bench_pair.prompts import load_prompts
from demo.machine import busy_seconds
from demo.traffic import Job, endless_jobs, kind_of

MTP = "mtp_big"
"""The target in the form that has a module for MTP: it is its own drafter."""
MAX_NUM_SEQS = 16
MAX_MODEL_LEN = 256
OUTPUT_TOKENS = 64
MIXED = "mixed"
SUFFIX = "suffix"
"""No model: drafts are looked up by vLLM's suffix decoding."""
METHODS = {"eagle3_big": "eagle3", MTP: "mtp", SUFFIX: SUFFIX}
"""Drafters by vLLM's method; any other one is a draft model."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is configured.

    Attributes:
        models: folder of the bench models.
        target: name of the target.
        draft: name of the draft model or head; None for no speculation.
        k: num_speculative_tokens.
        draft_sampling: vLLM's `draft_sample_method`.
        adaptive: the configuration of adaptive-spec; None without the plugin.
    """

    models: str
    target: str = "target_big"
    draft: str | None = None
    k: int = 0
    draft_sampling: str = "probabilistic"
    adaptive: dict[str, Any] | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the clients ask for.

    Attributes:
        workload: `mixed` or a kind of prompt.
        temperature: of sampling.
        concurrency: number of clients; each sends its next request when its last is answered.
        seed: draws the order of the prompts.
        seconds: how long.
        whole_cycles: go on to the answer that completes a cycle of kinds, so that each kind has
            its share of the answers.
    """

    workload: str
    temperature: float
    concurrency: int
    seed: int
    seconds: float
    whole_cycles: bool = True

    @property
    def cycle(self) -> int:
        """Requests after which each kind has had its turn."""
        return len(KINDS) if self.workload == MIXED else 1

    def jobs(self) -> Iterator[Job]:
        """Endless requests, all kinds in turn where the workload is mixed."""
        prompts = load_prompts()
        if self.workload != MIXED:
            prompts = {self.workload: prompts[self.workload]}
        return endless_jobs(prompts, OUTPUT_TOKENS, self.seed)


def first_length(place: int, concurrency: int) -> int:
    """Output tokens of a client's first request: staggered, so that they don't end together."""
    return max(OUTPUT_TOKENS * (place + 1) // concurrency, 1)


class Tally:
    """What a cell counted, from the engine's own outputs."""

    def __init__(self) -> None:
        self.tokens = 0
        self.request_steps = 0
        self.accepted = 0
        self.finished = 0
        self.by_kind: dict[str, list[int]] = {}

    def count(self, request_id: str, emitted: int, first: bool, finished: bool) -> None:
        """A request's part of a step; its first one is the prompt's and verifies nothing."""
        self.tokens += emitted
        self.finished += finished
        if not first:
            self.request_steps += 1
            self.accepted += emitted - 1
            row = self.by_kind.setdefault(kind_of(f"{request_id}-"), [0, 0])
            row[0] += 1
            row[1] += emitted - 1


class BenchEngine:
    """A vLLM engine whose EngineCore runs in this process, stepped by us."""

    def __init__(self, setup: Setup) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        from benchmarks.bench_pair.vllm_cpu_sampling_fix import apply

        apply()
        models = Path(setup.models)
        arguments: dict[str, Any] = dict(
            model=str(models / setup.target),
            dtype="float32",
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MAX_NUM_SEQS,
            enable_prefix_caching=False,
            seed=0,
        )
        if setup.draft is not None:
            arguments["speculative_config"] = {
                "method": METHODS.get(setup.draft, "draft_model"),
                "num_speculative_tokens": setup.k,
            }
            if setup.draft != SUFFIX:
                arguments["speculative_config"]["draft_sample_method"] = setup.draft_sampling
            if setup.draft not in (setup.target, SUFFIX):
                arguments["speculative_config"]["model"] = str(models / setup.draft)
        if setup.adaptive is not None:
            arguments["additional_config"] = {"adaptive_spec": setup.adaptive}
        self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        core: Any = self._engine.engine_core
        self._scheduler: Any = core.engine_core.scheduler
        self._drafted = 0
        self._steps = 0
        self._policies: dict[str, Any] = {}
        self._count_drafts()

    @property
    def controller(self) -> Any:
        """Our plugin's controller."""
        return self._scheduler.adaptive_spec.controller

    def use_table(self, table: Sequence[tuple[int, int, int]] | None) -> None:
        """Set `num_speculative_tokens_per_batch_size`, as the configuration would have done it."""
        from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

        lookup = None
        if table is not None:
            lookup = build_dynamic_sd_schedule_lookup(
                list(table), MAX_NUM_SEQS, self._scheduler.num_spec_tokens
            )
        self._scheduler.dynamic_sd_lookup = lookup

    def use_policy(self, name: str, options: Mapping[str, Any], fresh: bool) -> None:
        """Let another policy decide; one that isn't fresh goes on from what it has learned."""
        from adaptive_spec.policy import configured_policy

        if fresh or name not in self._policies:
            config = self.controller.config
            made = configured_policy(
                msgspec.structs.replace(config, policy=name, options=dict(options))
            )
            if not fresh:
                self._policies[name] = made
            self.controller.policy = made
        else:
            self.controller.policy = self._policies[name]

    def serve(self, load: Load) -> dict[str, Any]:
        """Work until enough is done; what was counted meanwhile.

        `began` and `ended` are on this machine's monotonic clock, as in step traces.
        """
        gc.collect()
        gc.freeze()
        jobs = load.jobs()
        tally = Tally()
        live: dict[str, bool] = {}  # has it emitted a token?
        drafted, steps = self._drafted, self._steps
        for place in range(load.concurrency):
            self._send(next(jobs), first_length(place, load.concurrency), load, live)
        processor, machine = time.process_time(), busy_seconds()
        began = time.monotonic()
        at_deadline: int | None = None
        while at_deadline is None or tally.finished // load.cycle == at_deadline:
            for output in self._engine.step():
                request_id, emitted = output.request_id, len(output.outputs[0].token_ids)
                tally.count(request_id, emitted, not live[request_id], output.finished)
                live[request_id] = True
                if output.finished:
                    del live[request_id]
                    self._send(next(jobs), OUTPUT_TOKENS, load, live)
            if at_deadline is None and time.monotonic() >= began + load.seconds:
                if not load.whole_cycles:
                    break
                at_deadline = tally.finished // load.cycle
        ended = time.monotonic()
        others = busy_seconds() - machine - (time.process_time() - processor)
        counted = {
            "began": began,
            "ended": ended,
            "seconds": ended - began,
            "tokens": tally.tokens,
            "finished": tally.finished,
            "steps": self._steps - steps,
            "request_steps": tally.request_steps,
            "drafted": self._drafted - drafted,
            "accepted": tally.accepted,
            "by_kind": tally.by_kind,
            "others_cpu": round(max(others, 0.0) / (ended - began), 4),
        }
        self._abandon(list(live))
        return counted

    def status(self) -> dict[str, Any]:
        """Our plugin's counters, since the engine's start."""
        status: dict[str, Any] = self.controller.status()
        return status

    def close(self) -> None:
        """Shut down in order, which writes the trace to its end."""
        self._engine.engine_core.shutdown()

    def _send(self, job: Job, tokens: int, load: Load, live: dict[str, bool]) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            temperature=load.temperature,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        # Named as the HTTP server would, so that one rule tells kinds apart in step traces.
        request_id = f"cmpl-{job.request_id}"
        live[request_id] = False
        self._engine.add_request(request_id, {"prompt": job.prompt}, parameters)

    def _abandon(self, request_ids: list[str]) -> None:
        self._engine.abort_request(request_ids)
        while self._engine.has_unfinished_requests() or self._scheduler.running:
            self._engine.step()

    def _count_drafts(self) -> None:
        original = self._scheduler.schedule

        def schedule(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            drafts = output.scheduled_spec_decode_tokens
            self._drafted += sum(len(tokens) for tokens in drafts.values())
            self._steps += 1
            return output

        self._scheduler.schedule = schedule
