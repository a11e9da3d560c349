"""A request as the executor sees it."""

from tensorrt_llm.bindings import BaseRequest
from tensorrt_llm.bindings import LlmRequestState as LlmRequestState


def get_draft_token_length(request):
    return len(request.py_draft_tokens or ())


class LlmRequest(BaseRequest):
    def __init__(
        self, *, request_id, max_new_tokens, input_tokens, sampling_config, end_id=None, **_
    ):
        super().__init__(request_id, max_new_tokens, input_tokens, sampling_config, end_id)
        self.py_request_id = request_id
        self.py_orig_prompt_len = self.prompt_len
        self.py_max_new_tokens = max_new_tokens
        self.py_end_id = self.end_id
        self.py_seq_slot = None
        self.py_batch_idx = None
        self.py_draft_tokens = []
        self.py_num_accepted_draft_tokens = 0
        self.py_num_draft_tokens_verified = 0
        self.py_total_draft_tokens = 0
        self.py_total_accepted_draft_tokens = 0
        self.py_rewind_len = 0
        self.py_decoding_iter = 0
        self.py_draft_pages_allocated = 0
        self.py_disable_speculative_decoding = False
        self.is_attention_dp_dummy = False
        self.is_cuda_graph_dummy = False

    @property
    def is_dummy(self):
        return self.is_attention_dp_dummy or self.is_cuda_graph_dummy or self.is_dummy_request
