"""One vLLM engine, its EngineCore in a process of its own, worked by a closed loop of clients."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from .load import Load, Steps, Tally

TABLE_SCHEDULER = "benchmarks.gpu.table_scheduler.TableScheduler"
CONTROL = "adaptive_spec_control"


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine is configured.

    Attributes:
        arguments: of vLLM's EngineArgs.
        adaptive: the configuration of adaptive-spec; None without the plugin.
        table: may K be set by a table at run time, as vLLM's own schedule would?
        cpu: a trial on a CPU, where vLLM needs a repair for temperatures above 0.
    """

    arguments: dict[str, Any]
    adaptive: dict[str, Any] | None = None
    table: bool = False
    cpu: bool = False


class GpuEngine:
    """A vLLM engine and its clients."""

    def __init__(self, setup: Setup) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine
        from vllm.v1.metrics.loggers import StatLoggerBase

        steps = self._steps = Steps()

        class StepRecorder(StatLoggerBase):
            def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
                pass

            def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
                if scheduler_stats is None:
                    return
                spec, graph = scheduler_stats.spec_decoding_stats, scheduler_stats.cudagraph_stats
                steps.at.append(time.monotonic())
                steps.running.append(scheduler_stats.num_running_reqs)
                steps.drafts.append(spec.num_drafts if spec else 0)
                steps.draft_tokens.append(spec.num_draft_tokens if spec else 0)
                steps.accepted.append(spec.num_accepted_tokens if spec else 0)
                steps.graph.append(str(graph.runtime_mode).rsplit(".", 1)[-1] if graph else "")

            def log_engine_initialized(self) -> None:
                pass

        arguments = dict(setup.arguments)
        if setup.adaptive is not None:
            arguments["additional_config"] = {"adaptive_spec": setup.adaptive}
        if setup.table:
            arguments["scheduler_cls"] = TABLE_SCHEDULER
        began = time.monotonic()
        self._engine = LLMEngine.from_engine_args(
            EngineArgs(**arguments), stat_loggers=[StepRecorder]
        )
        self.start_seconds = time.monotonic() - began
        self._core: Any = self._engine.engine_core
        self._ours = setup.adaptive is not None
        self._number = itertools.count()

    def facts(self) -> dict[str, Any]:
        """What vLLM resolved."""
        config = self._engine.vllm_config
        return {
            "start_seconds": round(self.start_seconds, 1),
            "runner": "V2" if config.use_v2_model_runner else "V1",
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "cudagraph_mode": str(config.compilation_config.cudagraph_mode).rsplit(".", 1)[-1],
            "capture_sizes": len(config.compilation_config.cudagraph_capture_sizes or ()),
            "largest_capture": config.compilation_config.max_cudagraph_capture_size,
        }

    def use_table(self, table: Sequence[tuple[int, int, int]] | None) -> None:
        """Set vLLM's schedule of K by batch size; None: Kmax always."""
        self._core.call_utility("bench_use_table", list(table) if table is not None else None)

    def control(self, request: dict[str, Any] | None) -> dict[str, Any]:
        """Our run-time switch; without a request, the status."""
        answer: dict[str, Any] = self._core.call_utility(CONTROL, request)
        if "error" in answer:
            raise RuntimeError(f"adaptive_spec refuses {request}: {answer['error']}")
        return answer

    def serve(self, load: Load) -> dict[str, Any]:
        """Work until the time is over and each kind has had its share; what was counted."""
        gc.collect()
        gc.freeze()
        prompts = load.prompts()
        live: dict[str, tuple[str, bool]] = {}  # kind; has the request emitted a token?
        for place in range(load.clients):
            self._send(next(prompts), load.first_length(place), load, live)
        began = time.monotonic()
        self._work(load, prompts, live, Tally(), began + load.settle_seconds, cycles=False)
        self._steps.clear()
        tally = Tally()
        began = time.monotonic()
        self._work(load, prompts, live, tally, began + load.seconds, cycles=load.kind == "mixed")
        ended = time.monotonic()
        self._abandon(live)
        return {
            "seconds": round(ended - began, 4),
            "tokens": tally.tokens,
            "tokens_per_s": round(tally.tokens / (ended - began), 2),
            "finished": tally.finished,
            "by_kind": tally.by_kind,
            **self._steps.summary(began),
        }

    def ramp(self, clients: Sequence[tuple[int, float]], load: Load) -> dict[str, Any]:
        """A load that changes while it runs: rows of [seconds, clients, tokens, mean K] by 0.25 s.

        Args:
            clients: number of clients and how long they stay, in order.
            load: the rest.
        """
        prompts, live = load.prompts(), dict[str, tuple[str, bool]]()
        self._steps.clear()
        rows = []
        start = time.monotonic()
        for wanted, seconds in clients:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                while len(live) < wanted:
                    self._send(next(prompts), load.output_tokens, load, live)
                tally, began, first = Tally(), time.monotonic(), len(self._steps.at)
                self._work(
                    load, prompts, live, tally, began + 0.25, cycles=False, wanted=wanted
                )
                tokens = sum(self._steps.draft_tokens[first:])
                running = sum(self._steps.running[first:])
                rows.append(
                    [
                        round(time.monotonic() - start, 3),
                        wanted,
                        round(tally.tokens / (time.monotonic() - began), 1),
                        round(tokens / max(running, 1), 3),
                    ]
                )
        self._abandon(live)
        return {"rows": rows}

    def answers(self, load: Load, count: int) -> list[list[int]]:
        """Tokens of `count` answers at temperature 0, `load.clients` at a time."""
        prompts, live = load.prompts(), dict[str, tuple[str, bool]]()
        answers: dict[str, list[int]] = {}
        while len(answers) < count or live:
            while len(live) < load.clients and len(answers) < count:
                answers[self._send(next(prompts), load.output_tokens, load, live)] = []
            for output in self._engine.step():
                answers[output.request_id].extend(output.outputs[0].token_ids)
                if output.finished:
                    del live[output.request_id]
        return list(answers.values())

    def _work(
        self,
        load: Load,
        prompts: Any,
        live: dict[str, tuple[str, bool]],
        tally: Tally,
        until: float,
        *,
        cycles: bool,
        wanted: int | None = None,
    ) -> None:
        at_deadline: int | None = None
        while at_deadline is None or tally.finished // 5 == at_deadline:
            for output in self._engine.step():
                name = output.request_id
                if name not in live:
                    continue
                kind, spoken = live[name]
                tally.count(kind, len(output.outputs[0].token_ids), not spoken, output.finished)
                live[name] = (kind, True)
                if output.finished:
                    del live[name]
                    if wanted is None or len(live) < wanted:
                        self._send(next(prompts), load.output_tokens, load, live)
            if at_deadline is None and time.monotonic() >= until:
                if not cycles:
                    return
                at_deadline = tally.finished // 5

    def _send(
        self, prompt: tuple[str, str], tokens: int, load: Load, live: dict[str, tuple[str, bool]]
    ) -> str:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        number = next(self._number)
        parameters = SamplingParams(
            temperature=load.temperature,
            seed=None,
            max_tokens=tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        name = f"{prompt[0]}-{number}"
        live[name] = (prompt[0], False)
        self._engine.add_request(name, {"prompt": prompt[1]}, parameters)
        return name

    def _abandon(self, live: dict[str, tuple[str, bool]]) -> None:
        self._engine.abort_request(list(live))
        live.clear()
        time.sleep(0.05)  # EngineCore finishes the steps under way
