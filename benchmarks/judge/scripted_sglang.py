"""A real SGLang scheduler whose models are a script.

Real: SGLang's Scheduler with its queue, admission, batches of prompts apart from those that decode,
KV pool, retraction and processing of results; its EAGLE worker as far as it chooses K, with its
adaptive controller, parameters and runtime states; our adapter by SGLang's hooks. Scripted: drafts
and acceptance, in the place of the passes of target and drafter. Its models have random weights
that nobody uses.

The script reproduces this of SGLang's workers:

* one K per batch, drafted and verified in the same step; the drafter's one pass at K = 0;
* captured graphs: a decode batch is padded to SGLang's own list of batch sizes, for which its rule
  and our adapter look up K;
* chunks of a long prompt emit nothing; a retracted request is read again and goes on;
* the overlap schedule: a step's results are processed when the next one is launched. SGLang
  refuses it on a CPU, so it is switched on in the scheduler that was built; the order of calls is
  that of its loop.

Token trees and n-gram run in the same worker. A tree's K is its depth, and it verifies the nodes
that our adapter derives; n-gram runs no pass, and fills up to K drafts for every request, which are
never right.

Not reproduced: a server without speculation (the arm `none` is K = 0 without the drafter's passes,
with the KV reserves of EAGLE), the larger KV reserve of trees, prefix cache, the drafter's
confidence, STANDALONE.
"""

from __future__ import annotations

import functools
import gc
import json
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .arms import MOST_REQUESTS, Arm
from .clock import Recorder
from .device import Device, Graphs
from .engines import (
    MAX_MODEL_LEN,
    STEP_TOKENS,
    WITHOUT_MODEL,
    Emitted,
    EngineKind,
    write_model,
)
from .script import DRAFT, EMITTED, Lines, Text
from .sglang_scheduler import (
    LAUNCH_K,
    build_scheduler,
    count_drafts,
    let_decide,
    next_batch,
    submit,
    work_of,
)
from .trees import NODES, TREE

KMAX = 7
"""Largest candidate of SGLang's default file."""
MOST_TOKENS = 1_000_000
"""Tokens of the KV pool. A cell that wants fewer has the others held."""
MOST_CAPTURED = 256
"""Largest captured batch: SGLang's own on a GPU of 80 GB."""


class Script:
    """Answer for the models of SGLang's EAGLE worker."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.texts: dict[str, Text] = {}
        self.drafts_at_all = True
        self.method = "eagle"

    def prompts(self, batch: Any) -> list[int]:
        """Read prompts or chunks of them; return a token for each, which is a chunk's in vain."""
        self._pass()
        for request in batch.reqs:
            text = self.texts[request.rid]
            # A retracted request is read again, and loses what the scheduler had not seen.
            text.at = len(request.output_ids) - 1
            text.emit(0)
        return [EMITTED] * len(batch.reqs)

    def tokens(self, k: int) -> int:
        """Return the tokens of a request that a step verifies."""
        return NODES[k] if self.method == TREE else k + 1

    def decode(self, batch: Any, k: int) -> list[int]:
        """Draft and verify to depth K for each request; return the tokens emitted."""
        if self.method not in WITHOUT_MODEL:
            self._pass(k - 1)
        elif k and self.drafts_at_all:
            self.recorder.drafter_ran(k)
        emitted = []
        for request in batch.reqs:
            text = self.texts[request.rid]
            text.draft(k, 0)
            emitted.append(text.emit(k))
        return emitted

    def _pass(self, further: int = 0) -> None:
        """The pass that keeps the drafter in step, and further ones of a draft."""
        if self.drafts_at_all and self.method not in WITHOUT_MODEL:
            self.recorder.drafter_ran(1 + max(further, 0))


class ScriptedSglang:
    """SGLang's scheduler of this process with scripted models; engines of all kinds share it."""

    def __init__(self, kind: EngineKind, *, graphs: bool = True) -> None:
        """Without `graphs` no batch size is captured, as on a CPU."""
        self.kind = kind
        self._graphs = graphs
        self.recorder = Recorder()
        self.script = Script(self.recorder)
        self._folder = tempfile.TemporaryDirectory()
        self.scheduler: Any = _scheduler()
        self._attached: Any = None
        self._arm: Arm
        self._results = deque[tuple[Any, Any, int]]()
        self._launched = 0

    @property
    def controller(self) -> Any:
        """Our plugin's controller."""
        return self._attached.driver.controller

    def use(self, arm: Arm, device: Device, kv_tokens: int = 0) -> None:
        """Let an arm decide on a device, with everything as at a server's start."""
        scheduler, ahead = self.scheduler, self.kind.ahead
        self._arm = arm
        self.recorder.use(self.priced(arm, device).charge(self.kind.method))
        self.script.texts.clear()
        self.script.drafts_at_all = arm.k != -1
        self.script.method = self.kind.method
        scheduler.draft_worker.script = self.script
        scheduler.enable_overlap = scheduler.enable_skip_finishing_decode = ahead
        scheduler.init_batch_result_processor()
        scheduler.result_queue = self._results
        scheduler.init_overlap()
        scheduler.new_token_ratio_tracker.reset()
        self._hold(kv_tokens)
        self.restart()

    def priced(self, arm: Arm, device: Device) -> Device:
        """Return the device with SGLang's captured batch sizes, for each K."""
        sizes = self._captured()
        if sizes is None:
            return device
        graphs = Graphs(kind="batches", sizes=tuple(sizes), ladder=tuple(range(KMAX + 1)))
        return msgspec.structs.replace(device, graphs=graphs)

    def restart(self) -> None:
        """Let the arm decide anew, as at a start of the server; it finds its saved state."""
        self._attached = let_decide(
            self.scheduler,
            self._arm,
            self.kind.kmax,
            Path(self._folder.name),
            self.recorder.clock,
            self._captured(),
            self.kind.method,
        )
        if self._arm.prepare is not None:
            self._arm.prepare(self)

    def status(self) -> dict[str, Any]:
        """Our plugin's counters since it was attached; empty without it."""
        found: dict[str, Any] = {} if self._attached is None else self.controller.status()
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
        self.script.texts[name] = Text(lines, start)
        # No token ends it, but SGLang does not know that: it admits requests that may not fit.
        read = [*history, *[DRAFT] * (prompt - len(history))]
        submit(self.scheduler, name, read, temperature=0.0, max_new_tokens=tokens)

    def step(self) -> list[Emitted]:
        """Take a turn of SGLang's plain loop, or of its overlapped one."""
        scheduler, ahead = self.scheduler, self.kind.ahead
        batch, emitted = next_batch(scheduler), list[Emitted]()
        at_once = ahead and scheduler.is_disable_overlap_for_batch(
            batch, last_batch=scheduler.last_batch
        )
        if at_once:
            emitted += self._process()
        if batch:
            self._launch(batch)
        if (ahead and scheduler.last_batch and not at_once) or (batch and not ahead):
            emitted += self._process()
        scheduler.last_batch = batch
        return emitted

    def _launch(self, batch: Any) -> None:
        work = work_of(batch)
        self._launched += 1
        self.recorder.launched(self._launched, work)
        result = self.scheduler.run_batch(batch)
        if self.kind.ahead:  # only now are the lengths of a batch known
            work.context = int(batch.seq_lens_cpu.sum()) if work.requests else 0
        count_drafts(work, result)
        queued = batch.copy() if self.kind.ahead else batch
        self._results.append((queued, result, self._launched))

    def _process(self) -> list[Emitted]:
        batch, result, key = self._results.popleft()
        requests = list(batch.reqs)
        before = [len(request.output_ids_through_stop) for request in requests]
        work = self.recorder.arrived(key)
        assert work is not None, "SGLang launches no batch without tokens"
        self.scheduler.process_batch_result(batch, result)
        found = []
        for request, known in zip(requests, before, strict=True):
            ended = bool(request.finished())
            tokens = len(request.output_ids_through_stop) - known
            if request.rid in self.script.texts and (tokens or ended):
                found.append(Emitted(request.rid, tokens, ended))
                if ended:
                    del self.script.texts[request.rid]
        work.emitted = sum(each.tokens for each in found)
        return found

    def drain(self) -> None:
        """Take turns until nothing is under way, and the batches of ended requests are gone."""
        while self.scheduler.last_batch:
            self.step()

    def close(self) -> None:
        """Leave the scheduler to the end of the process."""
        self._folder.cleanup()

    def _captured(self) -> list[int] | None:
        """Batch sizes for which SGLang captures graphs when it speculates."""
        from sglang.srt.arg_groups.cuda_graph_hook import generate_decode_cuda_graph_batch_sizes

        if not self._graphs:
            return None
        arguments = self.scheduler.server_args
        sizes: list[int] = generate_decode_cuda_graph_batch_sizes(arguments, MOST_CAPTURED)
        return sizes

    def _hold(self, kv_tokens: int) -> None:
        """Leave so many tokens of KV to the requests."""
        scheduler = self.scheduler
        allocator = scheduler.token_to_kv_pool_allocator
        if (held := getattr(scheduler, "held", None)) is not None:
            allocator.free(held)
        free = allocator.available_size()
        scheduler.held = allocator.alloc(free - kv_tokens) if kv_tokens else None
        scheduler.max_total_num_tokens = kv_tokens or free


@functools.cache
def _scheduler() -> Any:
    """Build the one scheduler of this process, and put the script in its models' place."""
    folder = Path(tempfile.mkdtemp())
    every = folder / "candidates.json"
    every.write_text(
        json.dumps({"1": {"candidate_steps": list(range(KMAX + 1))}}), encoding="utf-8"
    )
    drafter = {"architectures": ["LlamaForCausalLMEagle"], "tie_word_embeddings": False}
    scheduler = build_scheduler(
        dict(
            model_path=str(write_model(folder / "target", layers=1)),
            speculative_draft_model_path=str(write_model(folder / "draft", layers=1, **drafter)),
            load_format="dummy",
            speculative_algorithm="EAGLE",
            speculative_num_steps=LAUNCH_K,
            speculative_num_draft_tokens=LAUNCH_K + 1,
            speculative_eagle_topk=1,
            speculative_adaptive=True,
            speculative_adaptive_config=str(every),
            context_length=MAX_MODEL_LEN,
            max_total_tokens=MOST_TOKENS,
            max_running_requests=MOST_REQUESTS,
            chunked_prefill_size=STEP_TOKENS,
        ),
        folder,
        hooked=True,
    )
    _put_script(scheduler.draft_worker)
    gc.collect()
    gc.freeze()
    return scheduler


def _put_script(worker: Any) -> None:
    """Answer from the worker's `script` where its target and its drafter would be run."""
    import torch
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput
    from sglang.srt.managers.utils import GenerationBatchResult
    from sglang.srt.speculative.eagle_info import EagleDraftInput, EagleVerifyInput

    to_verify = EagleVerifyInput.create_idle_input(1, KMAX, KMAX + 1, "cpu")

    def result(batch: Any, tokens: list[int], **fields: Any) -> Any:
        """Return the result of either kind of step; the drafter's state says nothing."""
        rows = len(batch.reqs)
        state = EagleDraftInput(bonus_tokens=torch.full((rows,), EMITTED, dtype=torch.int32))
        if not batch.enable_overlap:  # there it is relayed by an operator that a CPU lacks
            state.topk_p = torch.ones(rows, 1)
            state.topk_index = torch.zeros(rows, 1, dtype=torch.int64)
        return GenerationBatchResult(
            logits_output=LogitsProcessorOutput(next_token_logits=None),
            next_token_ids=torch.tensor(tokens, dtype=torch.int64),
            next_draft_input=state,
            **fields,
        )

    def prompts(batch: Any, on_publish: Any = None, *_: Any) -> Any:
        tokens = worker.script.prompts(batch)
        if on_publish is not None:
            on_publish(batch.seq_lens)
        return result(batch, tokens, new_seq_lens=batch.seq_lens)

    def verify(batch: Any, **_: Any) -> Any:
        k = worker.speculative_num_steps
        lengths, tokens = worker.script.decode(batch, k), worker.script.tokens(k)
        accepted = torch.tensor(lengths, dtype=torch.int32)
        return result(
            batch,
            [EMITTED] * (len(lengths) * tokens),
            speculative_num_draft_tokens=tokens,
            accept_lens=accepted,
            new_seq_lens=batch.seq_lens + accepted,
        )

    worker._forward_prefill_batch, worker.verify = prompts, verify
    worker._build_trivial_verify_input = worker.draft_worker.draft = lambda batch: to_verify
    worker.draft_worker._draft_extend_for_decode = lambda batch, output, **_: None
