"""Base of drafters that run on the host."""

from abc import ABC, abstractmethod
from typing import final


class Drafter(ABC):
    def __init__(
        self,
        max_draft_len=None,
        max_total_draft_tokens=None,
        max_concurrency=None,
        draft_len_schedule=None,
    ):
        self.max_draft_len = max_draft_len
        self.max_total_draft_tokens = max_total_draft_tokens
        self.static_width = max_total_draft_tokens
        self.max_concurrency = max_concurrency
        self.draft_len_schedule = draft_len_schedule

    @abstractmethod
    def prepare_draft_tokens(self, scheduled_requests, resource_manager=None):
        raise NotImplementedError

    @final
    def should_use_spec_decode(self, requests, max_batch_size, max_num_tokens, draft_tokens):
        return self.max_concurrency is None or len(requests) <= self.max_concurrency

    @final
    def pad_draft_tokens_for_cuda_graph(self, scheduled_requests, resource_manager=None):
        for request in scheduled_requests.generation_requests:
            missing = self.static_width - len(request.py_draft_tokens)
            request.py_draft_tokens = request.py_draft_tokens + [0] * missing

    def get_draft_len_for_batch_size(self, batch_size):
        fitting = [k for bound, k in self.draft_len_schedule.items() if bound <= batch_size]
        return fitting[-1] if fitting else 0

    def update_max_total_draft_tokens(self, new_max_total_draft_tokens):
        self.max_total_draft_tokens = self.max_draft_len = new_max_total_draft_tokens
