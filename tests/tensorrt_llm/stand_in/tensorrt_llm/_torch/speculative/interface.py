"""Modes of speculation."""

import enum


class SpeculativeDecodingMode(enum.Enum):
    MTP = "mtp"
    EAGLE3_ONE_MODEL = "eagle3_one_model"
    SA = "sa"
    USER_PROVIDED = "user_provided"

    def support_dynamic_draft_len(self):
        return self is not SpeculativeDecodingMode.USER_PROVIDED

    def is_mtp_vanilla(self):
        return self is SpeculativeDecodingMode.MTP

    def is_sa(self):
        return self is SpeculativeDecodingMode.SA
