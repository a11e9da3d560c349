"""A real vLLM whose model runner is a script.

Real: vLLM's engine core, scheduler and KV manager, our adapter and policies on them. Scripted: the
executor. It proposes the drafts that a record holds, accepts the right ones (`script`), and works
no matrix, so that a step costs the scheduler's and the plugin's CPU time alone. It has no weights:
an engine starts in a second once vLLM is imported, and memory for KV is a number.

The script reproduces this of vLLM's workers:

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

import gc
import json
import os
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .arms import MOST_REQUESTS, Arm, Table
from .clock import Recorder
from .device import Device, Work
from .script import Lines, Text
from .scripted_lookup import EMITTED, ScriptedLookUp, ScriptedMatches

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "adaptive_spec",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "TORCHDYNAMO_DISABLE": "1",
}
MAX_MODEL_LEN = 40_960
BLOCK_TOKENS = 16
MOST_BLOCKS = 200_000
"""KV blocks of an engine: 3.2 million tokens. A cell that wants fewer has the others held."""
STEP_TOKENS = 8192
"""vLLM's `max_num_batched_tokens` of an online server on an H100."""
SLOW_DECISION_MS = 1e9
"""A slow decision on this machine is no fault of the policy."""
DRAFT = 7
"""Every draft of the drafter. Tokens have no meaning here, but that copied ones differ from it."""
PLACEHOLDER = -1
_NO_MODEL = ("ngram",)


class EngineKind(NamedTuple):
    """What an engine has from its start on.

    Attributes:
        method: of drafting, as in `device.DRAFTERS`.
        kmax: `num_speculative_tokens`.
        ahead: asynchronous scheduling.
        fixed_depth: the drafter always makes Kmax drafts; only verification is trimmed.
        fillers: drafts that are not found are filled up to Kmax, as on model runner V2.
    """

    method: str = "eagle"
    kmax: int = 7
    ahead: bool = False
    fixed_depth: bool = False
    fillers: bool = False


class Emitted(NamedTuple):
    """Tokens that a step has emitted for a request; times are the clock's."""

    name: str
    tokens: int
    finished: bool


class Script:
    """The worker: executes a scheduler's output from the script."""

    def __init__(self, kind: EngineKind, recorder: Recorder) -> None:
        self.kind = kind
        self.recorder = recorder
        self.texts: dict[str, Text] = {}
        self.requests: dict[str, Any] = {}
        """vLLM's request objects by id."""
        self.drafts_at_all = True
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
        """Whether the drafter's pass is left out, and how deep it drafts; count its passes."""
        from adaptive_spec.adapters.vllm.drafter_state import LeaveOut

        wanted, kmax = output.num_spec_tokens_to_schedule, self.kind.kmax
        if not self.drafts_at_all:
            return True, 0
        if isinstance(wanted, LeaveOut):
            return self.kind.method not in _NO_MODEL, 0
        depth = kmax if wanted is None else int(wanted)
        passes = depth
        if self.kind.method not in _NO_MODEL:
            passes = kmax if self.kind.fixed_depth else max(depth, 1)
        self.recorder.drafter_ran(passes)
        return False, depth

    def _signals(self, output: Any, names: list[str], depth: int) -> Any:
        from adaptive_spec.adapters.vllm.draft_signal.values import WANTED, DraftSignals

        shows = self.texts[names[0]].lines.confidence is not None
        if not shows or not depth or not getattr(output, WANTED, 2):
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

    class ScriptedExecutor(Executor):  # type: ignore[misc]
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


class ScriptedVllm:
    """A vLLM engine core in this process with a scripted worker."""

    def __init__(self, kind: EngineKind) -> None:
        missing = {name for name in ENVIRONMENT if name not in os.environ}
        assert not missing, f"set before the process starts: {sorted(missing)}"
        self.kind = kind
        self.recorder = Recorder()
        self.script = Script(kind, self.recorder)
        self._device: Device | None = None
        self._arm: Arm
        self._folder = tempfile.TemporaryDirectory()
        self._core: Any = self._start()
        self.scheduler: Any = self._core.scheduler
        self.script.requests = self.scheduler.requests
        self._held: list[Any] = []
        self._most_blocks = int(self.scheduler.cache_config.num_gpu_blocks)
        self._observe()
        gc.collect()
        gc.freeze()

    @property
    def controller(self) -> Any:
        """Our plugin's controller."""
        return self.scheduler.adaptive_spec.controller

    def use(self, arm: Arm, device: Device, kv_tokens: int = 0) -> None:
        """Let an arm decide on a device, with everything as at a server's start.

        Args:
            arm: what decides.
            device: on whose clock.
            kv_tokens: room in the KV cache (tokens); 0: more than any cell needs.
        """
        from adaptive_spec.adapters.vllm import hooks
        from adaptive_spec.config import SecondSource

        self._device = device
        if arm.graphs is not None:
            self._device = msgspec.structs.replace(device, graphs=arm.graphs)
        self._arm = arm
        self.recorder.use(self._device.charge(self.kind.method))
        self.script.texts.clear()
        self.script.drafts_at_all = arm.k != -1
        self._hold(kv_tokens)
        self._use_table(arm)
        holder = self.scheduler.vllm_config.scheduler_config
        config = getattr(holder, hooks.ATTRIBUTE)
        config = msgspec.structs.replace(
            config,
            mode="on" if arm.policy else "off",
            policy=arm.policy or "goodput",
            options=dict(arm.options),
            confidence=arm.confidence,
            second_source=SecondSource() if arm.second_source else None,
            state_directory=arm.state or None,
            seed=arm.seed,
        )
        setattr(holder, hooks.ATTRIBUTE, config)
        self._attach()

    def restart(self) -> None:
        """Attach the plugin anew, as at a start of the server; it finds its saved state."""
        self._attach()

    def _attach(self) -> None:
        from adaptive_spec.adapters.vllm import hooks

        names: Any = hooks
        names.detect = self._detect  # other engines of this process have their own
        names.LookUp = lambda *_, **__: ScriptedLookUp(self.script)
        self.scheduler.adaptive_spec.close()
        self.scheduler.adaptive_spec = hooks.attach(self.scheduler)
        self.scheduler.adaptive_spec.clock = self.recorder.clock
        if self.kind.fillers:
            driver = self.scheduler.adaptive_spec
            driver._builder.matches = ScriptedMatches(self.script)
            driver._awaits_text = not self.kind.ahead
        if self._arm.prepare is not None:
            self._arm.prepare(self)

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached."""
        found: dict[str, Any] = self.controller.status()
        return found

    def submit(self, name: str, prompt: int, tokens: int, lines: Lines, start: int) -> None:
        """Send a request.

        Args:
            name: its id.
            prompt: its tokens.
            tokens: of its answer, the one that the prompt's last pass emits included.
            lines: records that its answer is a stretch of.
            start: first position in them.
        """
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        self.script.texts[name] = Text(lines, start)
        parameters = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        request = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=[DRAFT] * prompt,
            mm_features=None,
            sampling_params=parameters,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._core.add_request(*self._core.preprocess_add_request(request))

    def step(self) -> list[Emitted]:
        """Let the engine core do one step."""
        outputs, executed = self._core.step_fn()
        self._core.post_step(executed)
        if not outputs:
            return []
        found = []
        for each in outputs.values():
            for one in each.outputs:
                finished = one.finish_reason is not None
                found.append(Emitted(one.request_id, len(one.new_token_ids), finished))
                if finished:
                    self.script.texts.pop(one.request_id, None)
        return found

    def drain(self) -> None:
        """Take up a step that was scheduled ahead, for requests that have all ended."""
        while self._core.batch_queue:
            self.step()

    def close(self) -> None:
        """Shut down in order."""
        self._core.shutdown()
        self._folder.cleanup()

    def _hold(self, kv_tokens: int) -> None:
        """Leave so many tokens of KV to the requests."""
        pool = self.scheduler.kv_cache_manager.block_pool
        if self._held:
            pool.free_blocks(self._held)
        wanted = -(-kv_tokens // BLOCK_TOKENS) if kv_tokens else self._most_blocks - 1
        spare = max(pool.get_num_free_blocks() - wanted, 0)
        self._held = pool.get_new_blocks(spare) if spare else []
        self.scheduler.cache_config.num_gpu_blocks = self._most_blocks - spare

    def _use_table(self, arm: Arm) -> None:
        """Set `num_speculative_tokens_per_batch_size`, as the configuration would have done it."""
        from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

        table, kmax = arm.table, self.kind.kmax
        if arm.k == -1:
            self.scheduler.dynamic_sd_lookup = [0] * (MOST_REQUESTS + 1)
            return
        if table is None and arm.k not in (kmax, None):
            table = [(1, MOST_REQUESTS, arm.k)]
        lookup = None
        if table is not None:
            clipped: Table = [
                (low, min(high, MOST_REQUESTS), k) for low, high, k in table if low <= MOST_REQUESTS
            ]
            lookup = build_dynamic_sd_schedule_lookup(clipped, MOST_REQUESTS, kmax)
        self.scheduler.dynamic_sd_lookup = lookup

    def _detect(self, vllm_config: Any) -> Any:
        """Let the adapter see the device's graphs, where it would find a CPU without any."""
        from adaptive_spec.adapters.vllm.capability import detect
        from adaptive_spec.step import Level

        found = detect(vllm_config)
        if found.capability is None or self._device is None:
            return found
        seen = self._device.capability(found.capability)
        if self.kind.fixed_depth:
            seen = msgspec.structs.replace(
                seen, level=Level.VERIFY, depth_follows=False, cold_off=False
            )
        seen = msgspec.structs.replace(seen, **self._arm.capability)
        return msgspec.structs.replace(found, capability=seen)

    def _start(self) -> Any:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.core import EngineCore

        if self.kind.ahead:
            schedule_ahead_on_cpu()
        target = _write_model(Path(self._folder.name) / "target", layers=2)
        speculative: dict[str, Any] = {"num_speculative_tokens": self.kind.kmax}
        if self.kind.method in _NO_MODEL:
            speculative |= {"method": "ngram", "prompt_lookup_max": 4}
        else:
            draft = _write_model(Path(self._folder.name) / "draft", layers=1)
            speculative |= {"method": "draft_model", "model": str(draft)}
        executor = executor_class(self.script)
        arguments = EngineArgs(
            model=str(target),
            skip_tokenizer_init=True,
            dtype="float32",
            enforce_eager=True,
            max_model_len=MAX_MODEL_LEN,
            max_num_seqs=MOST_REQUESTS,
            max_num_batched_tokens=STEP_TOKENS,
            enable_prefix_caching=False,
            block_size=BLOCK_TOKENS,
            num_gpu_blocks_override=MOST_BLOCKS,
            async_scheduling=self.kind.ahead,
            distributed_executor_backend=executor,
            speculative_config=speculative,
            additional_config={
                "adaptive_spec": {"fail_open": {"max_decision_ms": SLOW_DECISION_MS}}
            },
            disable_log_stats=True,
        )
        config = arguments.create_engine_config(UsageContext.LLM_CLASS)
        return EngineCore(config, executor, log_stats=False)

    def _observe(self) -> None:
        """Let the recorder see each step's launch and its results."""
        from .vllm_steps import work_of

        recorder, requests = self.recorder, self.scheduler.requests
        schedule_as_was = self.scheduler.schedule
        update_as_was = self.scheduler.update_from_output

        def schedule(*args: Any, **kwargs: Any) -> Any:
            output = schedule_as_was(*args, **kwargs)
            if output.total_num_scheduled_tokens:
                recorder.launched(id(output), work_of(output, requests))
            return output

        def update(output: Any, *args: Any, **kwargs: Any) -> Any:
            work: Work | None = recorder.arrived(id(output))
            outputs = update_as_was(output, *args, **kwargs)
            if work is not None:
                work.emitted = sum(
                    len(one.new_token_ids) for each in outputs.values() for one in each.outputs
                )
            return outputs

        self.scheduler.schedule = schedule
        self.scheduler.update_from_output = update


def _write_model(folder: Path, layers: int) -> Path:
    """Write the configuration of a Llama that nobody loads."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": MAX_MODEL_LEN,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def schedule_ahead_on_cpu() -> None:
    """Let vLLM schedule asynchronously on a CPU, where it turns that off."""
    from vllm.platforms.cpu import CpuPlatform

    as_was = CpuPlatform.check_and_update_config

    def check_and_update_config(vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        as_was(vllm_config)
        vllm_config.scheduler_config.async_scheduling = wanted

    CpuPlatform.check_and_update_config = staticmethod(check_and_update_config)
