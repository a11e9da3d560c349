"""The scripted worker under vLLM's scheduler: it plays records, and works no matrix.

It proposes the drafts that a record holds and accepts the right ones (`script`). It reproduces this
of vLLM's workers:

* holes: a step with `LeaveOut` computes nothing of the drafter, and no draft of a request that it
  computed anything of is right from then on, prompts in chunks included;
* the drafter's one pass at K = 0, all passes of a drafter whose depth is fixed;
* drafts that n-gram does not find, and the fillers in their place on model runner V2;
* confidence with the drafts, or with asynchronous scheduling late, with the results of the step
  that has made them, as V1's do;
* asynchronous scheduling: drafts stay in the worker, the scheduler has placeholders; a request that
  a step leaves out has lost its drafts in the worker;
* preemption: the drafter reads all tokens again.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from .clock import Recorder
from .engines import WITHOUT_MODEL, EngineKind
from .script import DRAFT, EMITTED, Text

BLOCK_TOKENS = 16
PLACEHOLDER = -1


class Script:
    """The worker: executes a scheduler's output from the script."""

    def __init__(self, kind: EngineKind, recorder: Recorder) -> None:
        self.kind = kind
        self.recorder = recorder
        self.texts: dict[str, Text] = {}
        self.requests: dict[str, Any] = {}
        """vLLM's request objects by id."""
        self.drafts_at_all = self.reads_confidence = True
        self._step = 0
        self._results: Any = None
        self._drafts: Any = None

    def execute(self, output: Any) -> Any:
        """Run a step; return vLLM's ModelRunnerOutput."""
        from vllm.v1.outputs import ModelRunnerOutput

        from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE

        self._step += 1
        cold, depth = self._depth(output)
        scheduled, verified = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        resumed = cached.resumed_req_ids
        sampled: list[list[int]] = []
        drafting: list[str] = []
        fixed = self.kind.fixed_depth
        for name, tokens in scheduled.items():
            text, request = self.texts[name], self.requests[name]
            if name in resumed or computed[name] == 0:
                # All is read again, and what came after the scheduler dropped it has not been.
                text.at = request.num_output_tokens - 1
                text.lost = False
            text.lost |= cold
            known = request.num_prompt_tokens + max(text.at + 1, 0)
            if computed[name] + tokens - len(verified.get(name, ())) < known:
                sampled.append([])
                continue
            if self.kind.ahead and text.made_in != self._step - 1:
                text.right = 0  # the worker keeps the drafts of its last step
            drafts = verified.get(name, ())
            if drafts and drafts[0] not in (DRAFT, PLACEHOLDER):  # copied
                text.right = next(
                    (n for n, draft in enumerate(drafts) if draft != EMITTED), len(drafts)
                )
            sampled.append([EMITTED] * text.emit(len(drafts)))
            text.draft(self.kind.kmax if fixed and not cold else depth, self._step)
            drafting.append(name)
        results = ModelRunnerOutput(
            req_ids=list(scheduled),
            req_id_to_index={name: row for row, name in enumerate(scheduled)},
            sampled_token_ids=sampled,
        )
        self._drafts = None
        if drafting and self.drafts_at_all:
            shown = self._signals(output, drafting, depth)
            if self.kind.ahead:
                if shown is not None:
                    setattr(results, ATTRIBUTE, shown)
            else:
                self._drafts = self._made(drafting, depth, shown)
        return results

    def _depth(self, output: Any) -> tuple[bool, int]:
        """Return whether to skip the drafter's pass, and its depth; count its passes."""
        from adaptive_spec.adapters.vllm.drafter_state import LeaveOut

        wanted, kmax = output.num_spec_tokens_to_schedule, self.kind.kmax
        if not self.drafts_at_all:
            return True, 0
        if isinstance(wanted, LeaveOut):
            return self.kind.method not in WITHOUT_MODEL, 0
        depth = kmax if wanted is None else int(wanted)
        passes = depth
        if self.kind.method not in WITHOUT_MODEL:
            passes = kmax if self.kind.fixed_depth else max(depth, 1)
        self.recorder.drafter_ran(passes)
        return False, depth

    def _signals(self, output: Any, names: list[str], depth: int) -> Any:
        from adaptive_spec.adapters.vllm.draft_signal.values import WANTED, DraftSignals

        shows = self.texts[names[0]].lines.confidence is not None
        wanted = getattr(output, WANTED, 2) if self.reads_confidence else 0
        if not shows or not depth or not wanted:
            return None
        confidence = np.array([self.texts[name].confidence(depth) for name in names])
        return DraftSignals(names, confidence, np.full_like(confidence, np.nan))

    def _made(self, names: list[str], depth: int, shown: Any) -> Any:
        from vllm.v1.outputs import DraftTokenIds

        from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE

        fillers, texts = self.kind.fillers and depth, self.texts
        lengths = [depth if fillers else min(texts[name].drafted, depth) for name in names]
        drafts = DraftTokenIds(names, [[DRAFT] * length for length in lengths])
        if shown is not None:
            setattr(drafts, ATTRIBUTE, shown)
        return drafts

    def take_drafts(self) -> Any:
        """The drafts of the last step, once."""
        drafts, self._drafts = self._drafts, None
        return drafts


def executor_class(script: Script) -> type:
    """Return the executor that vLLM starts in place of a worker with a model."""
    import torch
    from vllm.v1.executor.abstract import Executor
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    class ScriptedExecutor(Executor):
        """Answers what the engine core asks of workers."""

        _results: Any = None

        @classmethod
        def supports_async_scheduling(cls) -> bool:
            return True

        def _init_executor(self) -> None:
            """No worker, no weights."""

        def collective_rpc(self, method: Any, *_: Any, **__: Any) -> Any:
            answers = {
                "get_kv_cache_spec": {
                    "layer": FullAttentionSpec(
                        block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=8, dtype=torch.float32
                    )
                },
                "get_supported_kv_cache_layouts": ["NHD"],
                "determine_available_memory": 1 << 40,
                "get_supported_tasks": ("generate",),
            }
            if method == "compile_or_warm_up_model":
                return []
            return [answers.get(method)]

        def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
            if not scheduler_output.total_num_scheduled_tokens:
                from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

                return _done(EMPTY_MODEL_RUNNER_OUTPUT) if non_block else EMPTY_MODEL_RUNNER_OUTPUT
            self._results = script.execute(scheduler_output)
            return _done(self._results) if non_block else self._results

        def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
            return _done(self._results) if non_block else self._results

        def take_draft_token_ids(self) -> Any:
            return script.take_drafts()

        def check_health(self) -> None:
            """Nothing can be ill."""

        def shutdown(self) -> None:
            """Nothing runs."""

    return ScriptedExecutor


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future
