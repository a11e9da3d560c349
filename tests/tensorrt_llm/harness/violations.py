"""Raised where a real engine would hang or go wrong quietly."""


class ViolationError(Exception):
    """Base of all."""


class KvOverrunError(ViolationError):
    """The forward pass writes past the KV positions reserved for a request."""


class GraphShapeError(ViolationError):
    """Requests of one batch have different numbers of drafts."""


class StaleDraftsError(ViolationError):
    """The host's drafts of a request are not those of the device."""


class RanksDivergedError(ViolationError):
    """Ranks run different K, or different requests, in one iteration: they would hang."""
