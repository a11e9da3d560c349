"""Maximum probability and entropy of draft logits, in one pass over them: a Triton kernel.

Imported where model runner V2 runs, which needs Triton itself. In a captured draft loop the kernel
runs in every replay, wanted or not, so it reads the logits once and takes no memory of its own.

With m the largest logit, s = sum exp(x - m) and t = sum (x - m) exp(x - m): the maximum probability
is 1 / s, and the entropy is log s - t / s. m, s and t are carried from block to block as in online
softmax (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

from typing import Any

from vllm.triton_utils import tl, triton

BLOCK = 4096
WARPS = 8


def _certainty(
    shown: tl.tensor,
    shown_plane: tl.tensor,
    shown_row: tl.tensor,
    logits: tl.tensor,
    logits_row: tl.tensor,
    slots: tl.tensor,
    temperatures: tl.tensor,
    position: tl.tensor,
    vocabulary: tl.tensor,
    sampled: tl.constexpr,
    block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    temperature = 1.0
    if sampled:
        slot = tl.load(slots + row).to(tl.int64)  # -1 where a graph is padded
        own = tl.load(temperatures + slot, mask=slot >= 0, other=1.0).to(tl.float32)
        temperature = tl.where(own > 0.0, own, 1.0)
    # Not -inf, which would make nan of the difference of two tokens that are ruled out.
    largest = tl.full((), -1e30, tl.float32)
    total = tl.full((), 0.0, tl.float32)
    weighted = tl.full((), 0.0, tl.float32)
    for start in range(0, vocabulary, block):
        tokens = start + tl.arange(0, block)
        x = tl.load(
            logits + row * logits_row + tokens, mask=tokens < vocabulary, other=float("-inf")
        )
        x = tl.maximum(x.to(tl.float32) / temperature, -1e30)
        found = tl.maximum(largest, tl.max(x, axis=0))
        kept = tl.exp(largest - found)
        weighted = kept * (weighted + (largest - found) * total)
        total = kept * total
        odds = tl.exp(x - found)
        weighted += tl.sum((x - found) * odds, axis=0)
        total += tl.sum(odds, axis=0)
        largest = found
    place = shown + row * shown_row + tl.load(position).to(tl.int64)
    tl.store(place, 1.0 / total)
    tl.store(place + shown_plane, tl.log(total) - weighted / total)


KERNEL = triton.jit(_certainty)


def write_certainty(
    shown: Any, logits: Any, slots: Any, temperatures: Any, position: Any, *, sampled: bool
) -> None:
    """Write what one draft position shows. Waits for nothing; may be captured in a CUDA graph.

    Args:
        shown: [2, R_max, D] float32 to write into: maximum probability, entropy in nats.
        logits: [R, V] of any float type.
        slots: [R] row of each in `temperatures`, -1 for padding.
        temperatures: float32, by slot; 0 for a greedy request.
        position: the draft position, an integer tensor of one element on the device.
        sampled: drafts are drawn from the distribution at the request's temperature. If not, the
            distribution is that at temperature 1.
    """
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    rows, vocabulary = logits.shape
    KERNEL[(rows,)](
        shown,
        shown.stride(0),
        shown.stride(1),
        logits,
        logits.stride(0),
        slots,
        temperatures,
        position,
        vocabulary,
        sampled=sampled,
        block=BLOCK,
        num_warps=WARPS,
    )
