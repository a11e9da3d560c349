"""A real vLLM whose model runner is a script.

Real: vLLM's engine core, scheduler and KV manager, our adapter and policies on them. Scripted: the
executor (`vllm_worker`), so that a step costs the scheduler's and the plugin's CPU time alone. It
has no weights: an engine starts in a second once vLLM is imported, and memory for KV is a number.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptive_spec.step import Capability, Level

from .arms import MOST_REQUESTS, Arm
from .clock import Recorder
from .device import Device
from .engines import (
    MAX_MODEL_LEN,
    SLOW_DECISION_MS,
    STEP_TOKENS,
    WITHOUT_MODEL,
    Emitted,
    EngineKind,
    write_model,
)
from .script import DRAFT, Lines, Text
from .scripted_lookup import ScriptedLookUp, ScriptedMatches
from .vllm_steps import let_decide, record_steps, use_table
from .vllm_worker import BLOCK_TOKENS, Script, executor_class

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
MOST_BLOCKS = 200_000
"""KV blocks of an engine: 3.2 million tokens. A cell that wants fewer has the others held."""


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
        self._conversations: dict[str, tuple[int, ...]] = {}
        """The first two tokens of the conversation of each request under way, by its id."""
        self._holes: set[tuple[int, ...]] = set()
        """Conversations that a step without the drafter has met."""
        self._most_blocks = int(self.scheduler.cache_config.num_gpu_blocks)
        record_steps(self.scheduler, self.recorder)
        gc.collect()
        gc.freeze()

    @property
    def controller(self) -> Any:
        """Our plugin's controller."""
        return self.scheduler.adaptive_spec.controller

    def use(self, arm: Arm, device: Device, kv_tokens: int = 0) -> None:
        """Let an arm decide on a device, with everything as at a server's start."""
        self._device = self.priced(arm, device)
        self._arm = arm
        self.recorder.use(self._device.charge(self.kind.method))
        self.script.texts.clear()
        self.script.drafts_at_all = arm.k != -1
        self.script.reads_confidence = arm.confidence
        self._hold(kv_tokens)
        table = arm.table
        if arm.k not in (self.kind.kmax, None):
            table = [(1, MOST_REQUESTS, max(arm.k, 0))]
        use_table(self.scheduler, table, MOST_REQUESTS)
        self.restart()

    def priced(self, arm: Arm, device: Device) -> Device:
        """Return the device with the arm's graphs, if it has its own."""
        if arm.graphs is None:
            return device
        return msgspec.structs.replace(device, graphs=arm.graphs)

    def restart(self) -> None:
        """Attach the plugin anew, as at a start of the server; it finds its saved state."""
        from adaptive_spec.adapters.vllm import hooks

        names: Any = hooks
        names.LookUp = lambda *_, **__: ScriptedLookUp(self.script.texts)
        let_decide(self.scheduler, self._arm, self._seen, self.recorder.clock)
        if self.kind.fillers:
            self.scheduler.adaptive_spec._builder.matches = ScriptedMatches(self.script.texts)
        if self._arm.prepare is not None:
            self._arm.prepare(self)

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached."""
        found: dict[str, Any] = self.controller.status()
        return found

    def submit(
        self,
        name: str,
        prompt: int,
        tokens: int,
        lines: Lines,
        start: int,
        history: Sequence[int] = (),
    ) -> None:
        """Send a request; see `engines.Engine`."""
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        text = self.script.texts[name] = Text(lines, start)
        if history:  # what is kept of earlier turns has the holes that these had
            text.lost = tuple(history[:2]) in self._holes
            self._conversations[name] = tuple(history[:2])
        parameters = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False
        )
        request = EngineCoreRequest(
            request_id=name,
            prompt_token_ids=[*history, *[DRAFT] * (prompt - len(history))],
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
                    text = self.script.texts.pop(one.request_id, None)
                    conversation = self._conversations.pop(one.request_id, ())
                    if text is not None and text.lost and conversation:
                        self._holes.add(conversation)
        return found

    def drain(self) -> None:
        """Finish a step that was scheduled ahead, for requests that have all ended."""
        while self._core.batch_queue:
            self.step()
        if self.kind.cached:  # each arm begins with nothing kept
            self.scheduler.reset_prefix_cache()
            self._holes.clear()

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

    def _seen(self, found: Capability) -> Capability:
        """Return what the adapter finds: the device's graphs."""
        assert self._device is not None
        seen = self._device.capability(found)
        if self.kind.fixed_depth:
            seen = msgspec.structs.replace(
                seen, level=Level.VERIFY, depth_follows=False, cold_off=False
            )
        return msgspec.structs.replace(seen, **self._arm.capability)

    def _start(self) -> Any:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.core import EngineCore

        if self.kind.ahead:
            schedule_ahead_on_cpu()
        target = write_model(Path(self._folder.name) / "target", layers=2)
        speculative: dict[str, Any] = {"num_speculative_tokens": self.kind.kmax}
        if self.kind.method in WITHOUT_MODEL:
            # Asynchronous scheduling goes by the name.
            name = "ngram_gpu" if self.kind.ahead else "ngram"
            speculative |= {"method": name, "prompt_lookup_max": 4}
        else:
            draft = write_model(Path(self._folder.name) / "draft", layers=1)
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
            enable_prefix_caching=self.kind.cached,
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


def schedule_ahead_on_cpu() -> None:
    """Let vLLM schedule asynchronously on a CPU, where it turns that off."""
    from vllm.platforms.cpu import CpuPlatform

    as_was = CpuPlatform.check_and_update_config

    def check_and_update_config(vllm_config: Any) -> None:
        wanted = vllm_config.scheduler_config.async_scheduling
        as_was(vllm_config)
        vllm_config.scheduler_config.async_scheduling = wanted

    CpuPlatform.check_and_update_config = staticmethod(check_and_update_config)
