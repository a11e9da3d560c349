"""In place of the compiled bindings: the base of requests, their states, sampling settings."""

import enum


class LlmRequestState(enum.Enum):
    CONTEXT_INIT = 10
    GENERATION_IN_PROGRESS = 13
    GENERATION_TO_COMPLETE = 14
    GENERATION_COMPLETE = 20


class SamplingConfig:
    def __init__(self, beam_width=1):
        self.beam_width = beam_width
        self.temperature = None


class BaseRequest:
    """The compiled part of a request."""

    def __init__(self, request_id, max_new_tokens, input_tokens, sampling_config, end_id):
        self.request_id = request_id
        self.max_new_tokens = max_new_tokens
        self.sampling_config = sampling_config
        self.end_id = -1 if end_id is None else end_id
        self.prompt_len = len(input_tokens)
        self.state = LlmRequestState.CONTEXT_INIT
        self.context_current_position = 0
        self.context_chunk_size = 0
        self.draft_tokens = None
        self.is_dummy_request = False
        self._tokens = list(input_tokens)

    def get_num_tokens(self, beam):
        return len(self._tokens)

    def get_tokens(self, beam):
        return list(self._tokens)

    def add_new_token(self, token, beam):
        self._tokens.append(token)

    @property
    def context_remaining_length(self):
        return self.prompt_len - self.context_current_position

    @property
    def is_first_context_chunk(self):
        return self.context_current_position == 0

    @property
    def is_last_context_chunk(self):
        return self.context_chunk_size >= self.context_remaining_length

    def move_to_next_context_chunk(self):
        self.context_current_position += self.context_chunk_size

    @property
    def is_finished(self):
        return self.state is LlmRequestState.GENERATION_COMPLETE

    def will_complete_next_iteration(self):
        return len(self._tokens) - self.prompt_len + 1 >= self.max_new_tokens

    def pause(self, max_input_len):
        """Compute the whole sequence anew as a prompt."""
        self.state = LlmRequestState.CONTEXT_INIT
        self.context_current_position = 0
        self.max_new_tokens -= len(self._tokens) - self.prompt_len
        self.prompt_len = len(self._tokens)
