"""Top-k and top-p on probabilities, as verification of sampled requests wants them.

Caller: `eagle_sample` in speculative/eagle_utils.py, which takes them from FlashInfer on a GPU.
"""

from torch import Tensor


def top_k_renorm_prob(probs: Tensor, top_k: Tensor) -> Tensor:
    """Keep each row's `top_k` most likely entries, and those as likely as the last of them."""
    ordered = probs.sort(dim=-1, descending=True).values
    last = (top_k.long().clamp(1, probs.shape[-1]) - 1)[:, None]
    return _renormalised(probs, probs >= ordered.gather(-1, last))


def top_p_renorm_prob(probs: Tensor, top_p: Tensor) -> Tensor:
    """Keep each row's fewest most likely entries that together reach `top_p`."""
    ordered, order = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = (before < top_p[:, None]).scatter(-1, order, before < top_p[:, None])
    return _renormalised(probs, kept)


def _renormalised(probs: Tensor, kept: Tensor) -> Tensor:
    masked = probs * kept
    return masked / masked.sum(-1, keepdim=True)
