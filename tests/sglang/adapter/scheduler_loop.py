"""A scheduler loop like SGLang's, without SGLang: prompts and decode batches, sync or overlapped.

It calls the adapter's hooks where SGLang calls them, asks `params` for K as its controller does,
and stops the test where the real one would break: at an exception or a K without a runtime state.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from adaptive_spec.adapters.sglang.agreement import Agreement
from adaptive_spec.adapters.sglang.steered_params import SteeredParams
from adaptive_spec.adapters.sglang.steps import StepDriver
from adaptive_spec.config import Config
from adaptive_spec.controller.controller import Controller
from adaptive_spec.step import Capability, Level

LADDER = (0, 1, 3, 5, 7)


class Sampling:
    def __init__(self, most: int, custom: Any = None, temperature: float = 1.0) -> None:
        self.max_new_tokens = most
        self.custom_params = custom
        self.temperature = temperature
        self.top_k = 1 if temperature == 1.0 else -1


class Request:
    def __init__(self, rid: str, prompt: int, most: int, custom: Any = None) -> None:
        self.rid = rid
        self.origin_input_ids = [0] * prompt
        self.output_ids: list[int] = []
        self.sampling_params = Sampling(most, custom)
        self.is_retracted = False
        self.aborted = False
        self.finished_len: int | None = None
        self.counted = 0

    def finished(self) -> bool:
        return self.aborted or len(self.output_ids) >= self.sampling_params.max_new_tokens


class Mode:
    def __init__(self, decode: bool) -> None:
        self._decode = decode

    def is_decode(self) -> bool:
        return self._decode


class Batch:
    def __init__(self, reqs: list[Request], decode: bool = True) -> None:
        self.reqs = list(reqs)
        self.forward_mode = Mode(decode)


class Numbers(list[int]):
    def tolist(self) -> list[int]:
        return list(self)


class Result:
    def __init__(self, accept_lens: list[int], tokens: int) -> None:
        self.accept_lens = Numbers(accept_lens)
        self.speculative_num_draft_tokens = tokens
        self.num_non_draft_tokens_per_req = 1


class OwnSchedule:
    """Like SGLang's: learns from accepted drafts, its K depends on what it was fed."""

    def __init__(self) -> None:
        self.candidate_steps = list(LADDER)
        self.fed: list[tuple[int, int]] = []
        self.mean = 3.0

    def set_cuda_graph_bs(self, sizes: list[int] | None) -> None: ...

    def cuda_graph_bs_for_step(self, step: int) -> list[int] | None:
        return None

    def get_steps_for_batch(self, batch_size: int) -> int:
        return max(k for k in LADDER if k <= max(self.mean, 0.0) + 1)

    def on_verify_complete(self, correct: list[int], batch_size: int) -> int | None:
        self.fed.append((sum(correct), batch_size))
        self.mean = 0.8 * self.mean + 0.2 * sum(correct) / max(len(correct), 1)
        return self.get_steps_for_batch(batch_size)


class Pool:
    def __init__(self) -> None:
        self.free = 4000

    def available_size(self) -> int:
        return self.free


class Tree:
    def __init__(self) -> None:
        self.evictable = 1000

    def evictable_size(self) -> int:
        return self.evictable


class Loop:
    """Requests come, decode, end, are aborted or retracted; `run` takes so many turns."""

    def __init__(
        self,
        *,
        seed: int = 0,
        overlap: bool = False,
        most_running: int = 6,
        nodes_of: Callable[[int], int] = lambda k: k + 1,
    ) -> None:
        self._nodes_of = nodes_of
        self._random = random.Random(seed)
        self._overlap = overlap
        self._most_running = most_running
        self.own: Any = OwnSchedule()
        self.params = SteeredParams(self.own)
        self.running_batch = Batch([])
        self.last_batch: Batch | None = None
        self.waiting_queue: list[Request] = []
        self.token_to_kv_pool_allocator = Pool()
        self.tree_cache = Tree()
        self.max_total_num_tokens = 8000
        self.driver: StepDriver | None = None
        self.history: list[tuple[int, int]] = []
        """Batch size and K of every decode step."""
        self.all: list[Request] = []
        self.device_works = False
        """A batch has been launched and nobody has waited for it yet."""
        self._k = 3
        self._results: deque[tuple[Batch, Result | None]] = deque()

    def attach(
        self,
        policy: Any,
        *,
        config: Any = None,
        agreement: Any = None,
        dwell: int = 1,
        **options: Any,
    ) -> StepDriver:
        # However slow the machine: time is no subject here.
        config = config or Config()
        patient = msgspec.structs.replace(config.fail_open, max_decision_ms=1e9)
        config = msgspec.structs.replace(config, fail_open=patient)
        controller = None
        agreement = agreement or Agreement(None)
        if agreement.decides:
            capability = Capability(level=Level.UNIFORM, max_draft_tokens=LADDER[-1], ladder=LADDER)
            controller = Controller(policy, capability, config)
        options = {"thinks": not self._overlap, **options}
        self.driver = StepDriver(self, self.params, agreement, controller, dwell=dwell, **options)
        self.params.driver = self.driver
        return self.driver

    def arrive(self, custom: Any = None, most: int = 0) -> Request:
        number = len(self.all)
        most = most or self._random.randint(1, 60)
        request = Request(f"r{number}", self._random.randint(1, 20), most, custom)
        self.all.append(request)
        self.waiting_queue.append(request)
        return request

    def run(self, turns: int, *, arrivals: bool = True) -> None:
        for _ in range(turns):
            if arrivals and self._random.random() < 0.3:
                self.arrive()
            self.turn()

    def drain(self) -> None:
        while self.waiting_queue or self.running_batch.reqs or self._results:
            self.turn()

    def turn(self) -> None:
        batch = self._next_batch()
        if batch is not None:
            self._results.append((batch, self._launch(batch)))
        while self._results and (batch is None or len(self._results) > int(self._overlap)):
            self._process(*self._results.popleft())

    def _next_batch(self) -> Batch | None:
        self.running_batch.reqs = [r for r in self.running_batch.reqs if not r.finished()]
        if self.waiting_queue and len(self.running_batch.reqs) < self._most_running:
            request = self.waiting_queue.pop(0)
            request.is_retracted = False
            return Batch([request], decode=False)
        if len(self.running_batch.reqs) > 2 and self._random.random() < 0.02:
            request = self.running_batch.reqs.pop()
            request.is_retracted = True
            self.waiting_queue.append(request)
        if self.waiting_queue and self._random.random() < 0.02:
            self.waiting_queue.pop().aborted = True
        return Batch(self.running_batch.reqs) if self.running_batch.reqs else None

    def _launch(self, batch: Batch) -> Result | None:
        if self.driver is not None:
            self.driver.before_run(batch)
        if not batch.forward_mode.is_decode():
            self._launched(batch)
            self.running_batch.reqs = [*self.running_batch.reqs, *batch.reqs]
            return None
        k = self.params.get_steps_for_batch(len(batch.reqs))
        self._launched(batch)
        assert k in LADDER, f"no runtime state for K = {k}"
        self._k = k
        self.history.append((len(batch.reqs), k))
        accepted = [min(self._random.randint(0, 9), k) + 1 for _ in batch.reqs]
        return Result(accepted, self._nodes_of(k))

    def _launched(self, batch: Batch) -> None:
        self.device_works = True
        self.params.launched(batch)
        self.device_works = False

    def _process(self, batch: Batch, result: Result | None) -> None:
        if result is not None:
            if self.driver is not None:
                self.driver.read(result, batch)
            correct = [length - 1 for length in result.accept_lens]
            switched = self.params.on_verify_complete(correct, batch_size=len(batch.reqs))
            assert switched is None or switched in LADDER
            for request, length in zip(batch.reqs, result.accept_lens, strict=True):
                if not request.is_retracted and not request.finished():
                    request.counted += length - 1
                    # Tokens beyond the end stay, as SGLang's do; `finished_len` cuts them.
                    request.output_ids += [1] * length
                    if request.finished():
                        request.finished_len = request.sampling_params.max_new_tokens
        else:
            for request in batch.reqs:
                request.output_ids.append(1)
        if self.driver is not None:
            self.driver.applied(batch)
