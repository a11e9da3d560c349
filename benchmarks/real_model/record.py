"""Record what a head and two look-ups would have had accepted at every position of real answers.

    python -m benchmarks.real_model.record MODEL ANSWERS HEAD [--out FOLDER]

ANSWERS is a folder of `benchmarks.real_model.answers MODEL ANSWERS --measured`, HEAD one of
`benchmarks.real_model.train`. At each position of an answer, given all text before it:

* the head drafts 8 tokens, its likeliest ones: how many in a row are the answer's next tokens, and
  how probable the head finds each;
* Arctic Inference's suffix trees of prompt and answer, with the adapter's settings, and vLLM's
  n-gram look-up of 2 to 4 tokens: how many drafts they make, and how many are right.

A draft that is the likeliest token is accepted at a temperature with the target's probability of
it, which is the share of answers that go on with it. So the answer itself tells. Writes
`real_text_t0.npz` and `real_text_t0.7.npz`, which `adaptive_spec.sim.acceptance.two_sources` reads.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_spec.sim.acceptance.two_sources import FILE

from .head import Head, Target
from .instructions import KINDS
from .train import Rows, read_rows

KMAX = 8
DEPTH, LEAST_PROBABILITY = 40, 0.1
"""Depth of the suffix trees and least probability of a draft: the adapter's."""
LEAST, MOST = 2, 4
"""Tokens that n-gram matches."""
Columns = dict[str, Sequence[Any]]


def drafted(head: Head, row: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return drafts and their probabilities, [n, KMAX] behind each of the n output tokens."""
    first = row.context - 1  # reads the first output token
    tokens, streams = row.tokens[None], row.streams[None].float()
    position = torch.arange(len(row.tokens) - 1)
    before: list[tuple[torch.Tensor, torch.Tensor]] = []
    made, sure = [], []
    with torch.no_grad():
        hidden = head.read(streams[:, :-1])
        normed, hidden = head(tokens[:, 1:], hidden, position, before)
        normed, hidden = normed[:, first:], hidden[:, first:]
        for number in range(KMAX):
            best = head.logits(normed).softmax(-1).max(-1)
            made.append(head.vocabulary[best.indices[0]])
            sure.append(best.values[0])
            if number + 1 < KMAX:
                normed, hidden = head(made[-1][None], hidden, position[first:] + number + 1, before)
    return torch.stack(made, 1).numpy(), torch.stack(sure, 1).numpy()


def right_in_a_row(drafts: Sequence[Sequence[int]], answer: Sequence[int]) -> list[int]:
    """Count leading drafts behind each token of the answer that are its next ones."""
    found = []
    for at, made in enumerate(drafts):
        pairs = zip(made, answer[at + 1 :], strict=False)
        found.append(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return found


class LookUps:
    """Suffix trees and n-grams of one request after the other."""

    def __init__(self) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self._trees: Any = SuffixDecodingCache(DEPTH, 0)

    def suffix(self, prompt: list[int], answer: list[int]) -> tuple[list[list[int]], list[int]]:
        """Return drafts behind each token of the answer, and the lengths of their matches.

        The tree lacks the newest token, as the adapter's lacks those of the last step.
        """
        name, text = "request", [*prompt, *answer]
        self._trees.start_request(name, prompt)
        drafts, match = [], []
        for end in range(len(prompt) + 1, len(text) + 1):
            draft = self._trees.speculate(
                name,
                text[max(end - DEPTH, 0) : end],
                max_spec_tokens=KMAX,
                min_token_prob=LEAST_PROBABILITY,
            )
            drafts.append(list(draft.token_ids))
            match.append(draft.match_len if draft.token_ids else 0)
            self._trees.add_active_response(name, text[end - 1 : end])
        self._trees.stop_request(name)
        return drafts, match

    def ngram(self, prompt: list[int], answer: list[int]) -> list[list[int]]:
        """Return the drafts of vLLM's n-gram proposer behind each token of the answer."""
        from vllm.v1.spec_decode.ngram_proposer import (
            _find_longest_matched_ngram_and_propose_tokens as propose,
        )

        text = np.array([*prompt, *answer], dtype=np.int32)
        return [
            propose(text[:end], LEAST, MOST, len(text) + KMAX, KMAX).tolist()
            for end in range(len(prompt) + 1, len(text) + 1)
        ]


def record(head: Head, rows: Sequence[Rows], end: int) -> dict[str, NDArray[Any]]:
    """Return all arrays of a file; `end` is the token that ends an answer."""
    look = LookUps()
    lengths, prompts, labels = [], [], []
    columns: dict[str, list[Any]] = {}
    for row in rows:
        prompt, answer = row.tokens[: row.context].tolist(), row.tokens[row.context :].tolist()
        drafts, sure = drafted(head, row)
        suffix, match = look.suffix(prompt, answer)
        ngram = look.ngram(prompt, answer)
        # Nobody knows what follows the last token, or whether 8 drafts behind a cut would be right.
        kept = len(answer) - (1 if answer[-1] == end else KMAX)
        if kept < 1:
            continue
        lengths.append(kept)
        prompts.append(len(prompt))
        labels.append(row.kind)
        made: Columns = {
            "tokens": answer,
            "text": right_in_a_row(drafts.tolist(), answer),
            "confidence": np.rint(sure * 255).tolist(),
            "own_right": right_in_a_row(suffix, answer),
            "own_proposed": [len(each) for each in suffix],
            "own_match": match,
            "ngram_right": right_in_a_row(ngram, answer),
            "ngram_proposed": [len(each) for each in ngram],
        }
        for name, values in made.items():
            columns.setdefault(name, []).extend(values[:kept])
    return {
        "length": np.array(lengths, dtype=np.uint16),
        "prompt_tokens": np.array(prompts, dtype=np.uint16),
        "label": np.array(labels),
        **{
            name: np.array(values, dtype=np.uint16 if name == "tokens" else np.uint8)
            for name, values in columns.items()
        },
    }


def summary_of(arrays: dict[str, NDArray[Any]]) -> str:
    """Return a table: survival of each source's drafts by kind, and tokens per step with K = 8."""
    kind = np.repeat(arrays["label"], arrays["length"])
    lines = []
    for each in KINDS:
        at = kind == each
        cells = [f"{each:8} {int((arrays['label'] == each).sum())} answers {at.sum():6} tokens"]
        for name in ("text", "ngram_right", "own_right"):
            survival = " ".join(f"{(arrays[name][at] >= j).mean():.2f}" for j in (1, 2, 3, 4, 8))
            cells.append(f"{name} {survival}")
        lines.append("; ".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Parse, record and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("head", type=Path)
    parser.add_argument("--out", type=Path, default=FILE.parent)
    given = parser.parse_args()
    target = Target.read(given.model)
    head = Head.load(given.head, target)
    rows = read_rows(given.answers, context=1 << 20)
    for heat in sorted({each.temperature for each in rows}, reverse=True):
        chosen = [each for each in rows if each.temperature == heat]
        arrays = record(head, chosen, target.config["eos_token_id"])
        file = given.out / f"real_text_t{heat:g}.npz"
        np.savez_compressed(file, allow_pickle=False, **arrays)
        print(f"{file}: {file.stat().st_size / 1e3:.0f} kB\n{summary_of(arrays)}", flush=True)


if __name__ == "__main__":
    main()
