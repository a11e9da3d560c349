r"""CPU time that the vLLM adapter adds to a step of vLLM's own scheduler.

    python benchmarks/scheduler_overhead.py [--batches 1,16,64,256] [--steps 600] [--json FILE]

in the environment that vLLM is installed in. No model runs. Each arm has vLLM's real scheduler with
real requests; acceptance is drawn at random. The arms take turns, step by step, with a pause in
place of the device's work before each, so that caches are as cold as in a server, and what else the
machine does meets all arms alike. Figures are medians per step:

* critical: `schedule`, `update_from_output` and `update_draft_token_ids`. The device waits for them
  while scheduling is synchronous.
* total: the same and `get_grammar_bitmask`, which EngineCore calls after it has handed the step to
  the device, with everything the adapter does then.

The ratio is the time that an arm adds, over the time of vLLM alone. Its interval holds 95 % of the
medians of resampled steps. `means` shows what medians hide: work of some steps only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.step_overheads import Spent, print_cell, summary

KMAX = 4
_PROMPT, _OUTPUT = 64, (150, 400)
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 1,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "dtype": "float32",
}
ARMS: dict[str, dict[str, Any] | None] = {
    "vllm": None,
    "off": {"policy": "off"},
    "static": {"policy": "static"},
    "goodput": {"policy": "goodput"},
    "goodput, confidence": {"policy": "goodput"},
    "goodput, two sources": {"policy": "goodput", "second_source": {}},
}
"""Arm -> the operator's configuration; None: without the plugin."""


_CYCLE, _DRAFT = 50, 999
"""Every request says 0, 1, ... 49, 0, ...; drafts of the drafter are another token, and accepted at
random as if they were right. Looked-up drafts are right."""
_PATIENT = {"fail_open": {"max_decision_ms": 1000}}
"""No decision is too slow to count, so that each step is steered."""


class Arm:
    """One scheduler and its requests.

    Args:
        scheduler: vLLM's, with or without ours in front.
        batch: requests that decode at the same time.
        confidence: drafts come with what the drafter showed of them.
        ahead: steps are scheduled one ahead of their results.
    """

    def __init__(self, scheduler: Any, batch: int, *, confidence: bool, ahead: bool) -> None:
        self._scheduler = scheduler
        self._batch = batch
        self._confidence = confidence
        self._ahead = ahead
        self._random = random.Random(0)
        self._rate: dict[str, float] = {}
        self._waiting_for: Any = None

    def step(self, pause: Callable[[], None]) -> Spent:
        """Schedule a step, let it run, and process its results."""
        scheduler = self._scheduler
        while len(scheduler.running) + len(scheduler.waiting) < self._batch:
            self._add_request()
        pause()
        began = time.perf_counter()
        output = scheduler.schedule()
        scheduled = time.perf_counter()
        scheduler.get_grammar_bitmask(output)
        launched = time.perf_counter()
        requests = scheduler.requests
        launch = output, {r for r in output.num_scheduled_tokens if requests[r].is_prefill_chunk}
        finished: Any = launch
        if self._ahead:
            finished, self._waiting_for = self._waiting_for, launch
        if finished is None:
            return Spent(scheduled - began, launched - began)
        results, drafts = self._results_of(*finished)
        pause()
        arrived = time.perf_counter()
        scheduler.update_from_output(finished[0], results)
        if drafts is not None:
            scheduler.update_draft_token_ids(drafts)
        done = time.perf_counter()
        critical = scheduled - began + done - arrived
        return Spent(critical, critical + launched - scheduled)

    def finish(self) -> None:
        """End all requests, so that another arm may use the scheduler."""
        from vllm.v1.request import RequestStatus

        scheduler = self._scheduler
        if self._waiting_for is not None:
            results, _ = self._results_of(*self._waiting_for)
            scheduler.update_from_output(self._waiting_for[0], results)
        scheduler.finish_requests(list(scheduler.requests), RequestStatus.FINISHED_ABORTED)

    def _add_request(self) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        name = f"request-{self._batch}-{len(self._rate)}"
        self._rate[name] = self._random.uniform(0.4, 0.9)
        self._scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=[self._random.randrange(900) for _ in range(_PROMPT)],
                sampling_params=SamplingParams(
                    max_tokens=self._random.randrange(*_OUTPUT), temperature=0.8, ignore_eos=True
                ),
                pooling_params=None,
            )
        )

    def _results_of(self, output: Any, reading: set[str]) -> tuple[Any, Any]:
        """Return the model runner's output: results, and drafts unless they stay on the device.

        Args:
            output: vLLM's SchedulerOutput.
            reading: requests whose prompt does not end in the step.
        """
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        copied = getattr(output, "adaptive_spec_copied", None)
        sampled = []
        for name in names:
            drafts = output.scheduled_spec_decode_tokens.get(name, ())
            accepted = 0
            if drafts and (0 <= drafts[0] < _CYCLE or (copied and name in copied.names)):
                accepted = len(drafts)
            while accepted < len(drafts) and self._random.random() < self._rate[name]:
                accepted += 1
            request = self._scheduler.requests.get(name)  # None: aborted meanwhile
            said = 0 if request is None else request.num_output_tokens
            text = [place % _CYCLE for place in range(said, said + accepted + 1)]
            sampled.append([] if name in reading else text)
        results = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: row for row, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        depth = output.num_spec_tokens_to_schedule
        depth = KMAX if depth is None or depth < 0 else int(depth)
        if self._confidence and depth:
            signals = self._signals(names, depth)
        else:
            signals = None
        if self._ahead:
            _attach(results, signals)
            return results, None
        drafts = DraftTokenIds(names, [[_DRAFT] * depth for _ in names])
        _attach(drafts, signals)
        return results, drafts

    def _signals(self, names: list[str], depth: int) -> Any:
        from adaptive_spec.adapters.vllm.draft_signal.values import DraftSignals

        shown = [[self._random.uniform(0.2, 1.0) for _ in range(depth)] for _ in names]
        return DraftSignals(names, np.array(shown), -np.log(np.array(shown)))


def _attach(to: Any, signals: Any) -> None:
    if signals is not None:
        from adaptive_spec.adapters.vllm.draft_signal.values import ATTRIBUTE

        setattr(to, ATTRIBUTE, signals)


def scheduler_of(models: Path, config: dict[str, Any] | None, *, ahead: bool) -> Any:
    """vLLM's scheduler as EngineCore builds it, for 256 requests and ample KV memory."""
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    more = (
        {} if config is None else {"additional_config": {"adaptive_spec": {**config, **_PATIENT}}}
    )
    vllm_config = EngineArgs(
        model=str(models / "target"),
        skip_tokenizer_init=True,
        max_model_len=4096,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        enforce_eager=True,
        dtype="float32",
        enable_prefix_caching=False,
        speculative_config={
            "method": "draft_model",
            "model": str(models / "draft"),
            "num_speculative_tokens": KMAX,
            "draft_tensor_parallel_size": 1,
        },
        **more,
    ).create_engine_config()
    scheduling = vllm_config.scheduler_config
    if ahead:  # a CPU does not schedule ahead; the scheduler does not know of that
        scheduling.async_scheduling = True
        if config is not None:
            scheduling.scheduler_cls = (
                "adaptive_spec.adapters.vllm.schedulers.AdaptiveAsyncScheduler"
            )
    vllm_config.cache_config.num_gpu_blocks = blocks = 80_000
    size = vllm_config.cache_config.block_size or 16
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32)
    return scheduling.get_scheduler_cls()(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=size,
        log_stats=False,
    )


def measure(
    schedulers: dict[str, Any], batch: int, steps: int, pause: Callable[[], None], *, ahead: bool
) -> dict[str, list[Spent]]:
    """Spent time by arm, step by step; the first third of the steps is not counted."""
    arms = {
        name: Arm(scheduler, batch, confidence=name.endswith("confidence"), ahead=ahead)
        for name, scheduler in schedulers.items()
    }
    spent: dict[str, list[Spent]] = {name: [] for name in arms}
    for step in range(steps):
        for name in _rotated(list(arms), step):
            taken = arms[name].step(pause)
            if step >= steps // 3:
                spent[name].append(taken)
    for arm in arms.values():
        arm.finish()
    return spent


def _rotated(names: list[str], by: int) -> Iterator[str]:
    start = by % len(names)
    yield from names[start:] + names[:start]


def main() -> int:
    """Print a line per batch size and arm; save JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", default="1,16,64,256")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pause-ms", type=float, default=4.0)
    parser.add_argument("--scheduling", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--arms", default=";".join(ARMS), help="separated by ;")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    modes = {"sync": [False], "async": [True], "both": [False, True]}[args.scheduling]
    found = []
    for ahead in modes:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("target", "draft"):
                (Path(folder) / name).mkdir()
                (Path(folder) / name / "config.json").write_text(json.dumps(_LLAMA))
            schedulers = {
                name: scheduler_of(Path(folder), ARMS[name], ahead=ahead)
                for name in args.arms.split(";")
            }
        for batch in map(int, args.batches.split(",")):
            cell = SimpleNamespace(scheduling="async" if ahead else "sync", batch=batch)
            pause = partial(time.sleep, args.pause_ms / 1e3)
            arms = summary(measure(schedulers, batch, args.steps, pause, ahead=ahead))
            print_cell(f"{cell.scheduling}, {batch} requests", arms)
            found.append({**vars(cell), "arms": arms})
    if args.json:
        args.json.write_text(json.dumps({"command": " ".join(sys.argv), "cells": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
