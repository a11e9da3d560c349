"""Sampler of the one-engine modes: the device has verified and drafted, the host is told."""

from dataclasses import dataclass

from tensorrt_llm._torch.pyexecutor.llm_request import LlmRequestState, get_draft_token_length
from tensorrt_llm._torch.pyexecutor.sampler import SampleState


@dataclass(kw_only=True)
class SampleStateSpec(SampleState):
    runtime_draft_len: int
    draft_lens: list


class SpecSampler:
    def __init__(self, args):
        self.max_seq_len = args.max_seq_len
        self.draft_len = args.max_total_draft_tokens

    def get_cache_indirection(self):
        return None

    def sample_async(self, scheduled_requests, outputs, num_context_logits_prefix_sum):
        skip = len(scheduled_requests.context_requests_chunking)
        ended = scheduled_requests.context_requests_last_chunk
        requests = ended + scheduled_requests.generation_requests
        lengths = [get_draft_token_length(request) for request in requests]
        # Placeholders of the static length: the real drafts reach the host with the results.
        for request in ended:
            request.py_draft_tokens = [1] * self.draft_len
        return SampleStateSpec(
            requests=requests,
            device=outputs,
            host={name: outputs[name].tolist()[skip:] for name in _NAMES},
            runtime_draft_len=outputs["next_draft_tokens"].shape[1],
            draft_lens=lengths,
        )

    def update_requests(self, state, resource_manager=None):
        if state is None:
            raise TypeError("no results")
        k = state.runtime_draft_len
        rows = zip(state.requests, *(state.host[name] for name in _NAMES), strict=True)
        for row, (request, tokens, count, drafts) in enumerate(rows):
            if request.state is LlmRequestState.GENERATION_COMPLETE:
                continue
            for token in tokens[:count]:
                request.add_new_token(token, 0)
                if self._stops(request, token):
                    request.state = LlmRequestState.GENERATION_COMPLETE
                    break
            request.py_num_accepted_draft_tokens = count - 1
            request.py_num_draft_tokens_verified = min(state.draft_lens[row], k)
            request.py_rewind_len = k - (count - 1)
            request.py_draft_tokens = drafts[:k]
            request.py_decoding_iter += 1

    def _stops(self, request, token):
        length = request.get_num_tokens(0)
        asked = request.py_orig_prompt_len + request.py_max_new_tokens
        return token == request.py_end_id or length >= min(asked, self.max_seq_len)


_NAMES = ("new_tokens", "new_tokens_lens", "next_draft_tokens")
