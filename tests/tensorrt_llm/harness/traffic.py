"""Requests that come, end, are left out, paused or cancelled; the same on every rank."""

import random
from collections.abc import Callable
from typing import Any

from harness.target import greedy


class Traffic:
    """Source of requests, asked once an iteration.

    Args:
        package: modules of TensorRT-LLM.
        seed: of everything random.
        requests: number of requests in all.
        iterations: iterations in which requests come; None: until all have come.
        rate: requests per iteration.
        skip: share of iterations in which a decoding request is left out.
        cancel: share of iterations in which a request is cancelled.
        pause: share of iterations in which a decoding request is paused and computed anew.
        end_id: token that ends a request.
        longest_prompt: most tokens of a prompt.
        first_tokens: first prompt tokens to draw from: even ones make text that repeats itself.
    """

    def __init__(
        self,
        package: Any,
        seed: int = 7,
        *,
        requests: int = 1 << 30,
        iterations: int | None = None,
        rate: float = 0.25,
        skip: float = 0.0,
        cancel: float = 0.01,
        pause: float = 0.0,
        end_id: int | None = None,
        longest_prompt: int = 50,
        first_tokens: tuple[int, ...] = (1, 2, 3, 5, 8, 13),
    ) -> None:
        self._package = package
        self._random = random.Random(seed)
        self._left, self._iterations = requests, iterations
        self.rate, self.skip, self.cancel, self.pause = rate, skip, cancel, pause
        self._end_id, self._first_tokens = end_id, first_tokens
        self._longest_prompt = longest_prompt
        self.sent: list[Any] = []
        self.each_iteration: Callable[[Any], None] = lambda executor: None
        """Called with the executor before its requests come."""

    def __call__(self, executor: Any) -> bool:
        """Add to `waiting_queue`; return whether more may come."""
        self.each_iteration(executor)
        chance = self._random
        over = self._iterations is not None and executor.iter_counter >= self._iterations
        if over or not self._left:
            return False
        if chance.random() < self.rate and len(executor.waiting_queue) < 4:
            self._left -= 1
            prompt = [chance.choice(self._first_tokens)]
            prompt += [
                chance.randrange(90) for _ in range(chance.randint(0, self._longest_prompt - 1))
            ]
            request = self._package.LlmRequest(
                request_id=len(self.sent) + 1,
                max_new_tokens=chance.randint(1, 40),
                input_tokens=prompt,
                sampling_config=self._package.SamplingConfig(),
                end_id=self._end_id,
            )
            self.sent.append(request)
            executor.waiting_queue.append(request)
        if executor.active_requests and chance.random() < self.cancel:
            victim = chance.choice(executor.active_requests)
            executor.canceled_req_ids.append(victim.py_request_id)
        return True

    def skips(self, request: Any) -> bool:
        """Whether a decoding request is left out of this iteration."""
        return self._random.random() < self.skip

    def pauses(self, batch: Any) -> None:
        """Move a decoding request to the paused ones, now and then."""
        count = len(batch.generation_requests)
        if self.pause and count > 2 and self._random.random() < self.pause:
            victim = batch.generation_requests.pop(self._random.randrange(count))
            batch.paused_requests.append(victim)


def wrong_outputs(traffic: Traffic) -> list[int]:
    """Return the requests whose output is not what greedy decoding gives."""
    wrong = []
    for request in traffic.sent:
        tokens = list(request.get_tokens(0))
        prompt, output = tokens[: request.py_orig_prompt_len], tokens[request.py_orig_prompt_len :]
        if output != greedy(prompt, len(output)):
            wrong.append(request.py_request_id)
    return wrong
