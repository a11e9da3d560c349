"""Configuration of speculation."""

from dataclasses import dataclass
from typing import ClassVar

from tensorrt_llm._torch.speculative.interface import SpeculativeDecodingMode


@dataclass(kw_only=True)
class DecodingBaseConfig:
    max_draft_len: int
    speculative_model: str | None = None
    draft_len_schedule: dict | None = None
    max_concurrency: int | None = None
    use_rejection_sampling: bool = False
    is_linear_tree: bool = True
    spec_dec_mode: ClassVar = SpeculativeDecodingMode.EAGLE3_ONE_MODEL

    def __post_init__(self):
        if self.max_concurrency is not None:
            self.draft_len_schedule = {self.max_concurrency: self.max_draft_len}

    def get_runtime_tokens_per_gen_step(self, runtime_draft_len):
        return runtime_draft_len + 1


class Eagle3DecodingConfig(DecodingBaseConfig):
    pass


@dataclass(kw_only=True)
class FlooredEagle3DecodingConfig(Eagle3DecodingConfig):
    """As #16888 has it: the mode says itself how low K may go."""

    min_runtime_draft_len: int = 1
    keep_drafter_warm: bool = False


class MTPDecodingConfig(DecodingBaseConfig):
    spec_dec_mode = SpeculativeDecodingMode.MTP


class SADecodingConfig(DecodingBaseConfig):
    spec_dec_mode = SpeculativeDecodingMode.SA


class UserProvidedDecodingConfig(DecodingBaseConfig):
    spec_dec_mode = SpeculativeDecodingMode.USER_PROVIDED
