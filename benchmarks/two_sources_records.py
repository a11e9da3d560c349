r"""Record, for one text, what a drafter and what a look-up would have had accepted, by position.

    python benchmarks/two_sources_records.py FOLDER [--out FILE]    # where vLLM is installed

The text is real: two releases of 13 packages from PyPI, which are downloaded into FOLDER
(`benchmarks/two_sources_text`). Prompts and answers are cut to so many tokens of the bench
tokenizer. At each position of an answer, given all text before it:

* the drafter is `draft` of `benchmarks/bench_pair`, greedy: how many of its 8 drafts are the next
  tokens; and how many are what `target` finds likeliest there, the model it was trained to draft
  for. As long as they are right, what it drafts from is the text itself, so that one pass over the
  text tells all. Models read windows as long as those they were trained on;
* the look-up is Arctic Inference's, with the adapter's settings: how many drafts it makes, the
  length of their match, and how many are the next tokens; once from the request's own prompt and
  answer, and once from the answers of all requests before it, too. Trees lack the newest token, as
  the adapter's lack those of the last step.

FILE is an npz of small integers, as `adaptive_spec.sim.acceptance.two_sources` reads it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if not __package__:  # run as a file
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from adaptive_spec.sim.acceptance.two_sources import ARRAYS, FILE
from benchmarks.bench_pair.names import TOKENIZER, WEIGHTS
from benchmarks.two_sources_text import agents, code, prose, releases, tables
from benchmarks.two_sources_text.sample import KINDS, Sample

KMAX = 8
DEPTH, LEAST_PROBABILITY = 32, 0.1
"""Depth of the suffix trees and least probability of a draft: the adapter's."""
REQUESTS = 36
"""Number of requests of each kind."""
PROMPT_TOKENS, ANSWER_TOKENS, LEAST_TOKENS = 1_024, 320, 24
WINDOW, STRIDE = 256, 64
"""Tokens that the drafter reads at once, its longest in training; the last so many are scored."""


class Copied(NamedTuple):
    """A look-up at each position of an answer, [n] each: as `LookedUp` of the simulator."""

    right: list[int]
    proposed: list[int]
    match: list[int]


def samples(folder: Path, seed: int = 0) -> list[Sample]:
    """More than enough of each kind, in an order drawn by the seed."""
    packages = releases.read_modules(folder)
    every = [module for modules in packages.values() for module in modules]
    part = [[module for module in every if module.share(4) == number] for number in range(4)]
    wheel = next((folder / "new").glob("vega_datasets*.whl"))
    makers: dict[str, Iterator[Sample]] = {
        "prose": prose.told(part[0] + part[1], random.Random(seed)),
        "code": code.completed(part[2], random.Random(seed)),
        "edit": code.edited(part[3] + part[0], random.Random(seed)),
        "quote": prose.quoting(part[2] + part[3], random.Random(seed)),
        "agent": agents.sessions(packages, random.Random(seed)),
        "json": tables.as_json(wheel, random.Random(seed)),
    }
    assert tuple(makers) == KINDS
    found = [each for made in makers.values() for each in itertools.islice(made, 3 * REQUESTS)]
    # Turns of a session stay in order.
    keys = {
        id(each): random.Random(f"{seed} {number}").random() for number, each in enumerate(found)
    }
    turns = sorted(keys[id(each)] for each in found if each.kind == "agent")
    agent = iter(turns)
    order = [next(agent) if each.kind == "agent" else keys[id(each)] for each in found]
    return [each for _, each in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


class Models:
    """The bench drafter and its target, on text instead of their own output."""

    def __init__(self) -> None:
        import torch
        from transformers import LlamaForCausalLM

        torch.set_num_threads(1)
        self._torch = torch
        self._draft, self._target = (
            LlamaForCausalLM.from_pretrained(WEIGHTS / name, dtype=torch.float32).eval()
            for name in ("draft", "target")
        )

    def accepted(self, prompt: Sequence[int], answer: Sequence[int]) -> tuple[list[int], list[int]]:
        """[n] leading drafts that are the next tokens, and that the target finds likeliest."""
        text, first = [*prompt, *answer], len(prompt)
        drafted, judged = (
            self._likeliest(each, text, first) for each in (self._draft, self._target)
        )
        return _runs(drafted, answer), _runs(drafted, judged)

    def _likeliest(self, model: Any, text: Sequence[int], first: int) -> list[int]:
        """Likeliest token at each position from `first`, after all text before it."""
        found = [-1] * len(text)
        with self._torch.no_grad():
            for end in range(len(text), first, -STRIDE):
                start = max(end - WINDOW, 0)
                window = self._torch.tensor([text[start:end]])
                likeliest = model(window).logits[0].argmax(-1).tolist()
                for position in range(max(end - STRIDE, start + 1), end):
                    found[position] = likeliest[position - start - 1]
        return found[first:]


def _runs(drafted: Sequence[int], right: Sequence[int]) -> list[int]:
    """Drafts in a row from each position that are right, at most KMAX."""
    runs, run = [], 0
    for draft, token in zip(reversed(drafted), reversed(right), strict=True):
        run = min(run + 1, KMAX) if draft == token else 0
        runs.append(run)
    return runs[::-1]


class LookUps:
    """Suffix trees of all requests, one after the other.

    Args:
        remembered: answers of requests before that are looked up, too; 0: none.
    """

    def __init__(self, remembered: int) -> None:
        from arctic_inference.suffix_decoding import SuffixDecodingCache

        self._trees: Any = SuffixDecodingCache(DEPTH, remembered)
        self._requests = itertools.count()

    def at_each(self, prompt: Sequence[int], answer: Sequence[int]) -> Copied:
        """Look up at each position of an answer."""
        name, text = str(next(self._requests)), [*prompt, *answer]
        self._trees.start_request(name, list(prompt))
        found = Copied([], [], [])
        for position in range(len(prompt), len(text)):
            draft = self._trees.speculate(
                name,
                text[max(position - DEPTH, 0) : position],
                max_spec_tokens=KMAX,
                min_token_prob=LEAST_PROBABILITY,
            )
            tokens = draft.token_ids[: len(text) - position]
            pairs = zip(tokens, text[position:], strict=False)
            right = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            found.right.append(right)
            found.proposed.append(len(draft.token_ids))
            found.match.append(draft.match_len if draft.token_ids else 0)
            if position > len(prompt):
                self._trees.add_active_response(name, text[position - 1 : position])
        self._trees.add_active_response(name, text[-1:])
        self._trees.stop_request(name)
        return found


def record(folder: Path) -> dict[str, NDArray[Any]]:
    """All arrays of the file."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    models, own, others = Models(), LookUps(0), LookUps(len(KINDS) * REQUESTS)
    taken = dict.fromkeys(KINDS, 0)
    lengths: list[int] = []
    prompts: list[int] = []
    labels: list[str] = []
    columns: dict[str, list[int]] = {name: [] for name in ARRAYS}
    for sample in samples(folder):
        prompt = tokenizer.encode(sample.prompt).ids[-PROMPT_TOKENS:]
        answer = tokenizer.encode(sample.answer).ids[:ANSWER_TOKENS]
        if taken[sample.kind] == REQUESTS or len(answer) < LEAST_TOKENS:
            continue
        taken[sample.kind] += 1
        lengths.append(len(answer))
        prompts.append(len(prompt))
        labels.append(sample.kind)
        of_both = (own.at_each(prompt, answer), others.at_each(prompt, answer))
        made = (*models.accepted(prompt, answer), *of_both[0], *of_both[1])
        for column, values in zip(columns.values(), made, strict=True):
            column.extend(values)
    return {
        "length": np.array(lengths, dtype=np.uint16),
        "prompt_tokens": np.array(prompts, dtype=np.uint16),
        "label": np.array(labels),
        **{name: np.array(values, dtype=np.uint8) for name, values in columns.items()},
    }


def describe(arrays: dict[str, NDArray[Any]]) -> None:
    """Print a line for each kind: drafts right on average, and survival, of each source."""
    kind = np.repeat(arrays["label"], arrays["length"])
    for each in KINDS:
        at = kind == each
        shown = []
        for name in ("text", "target", "own_right", "others_right"):
            right = arrays[name][at]
            survival = " ".join(f"{(right >= j).mean():.2f}" for j in (1, 2, 4, 8))
            shown.append(f"{name} {right.mean():.2f} ({survival})")
        for name in ("own", "others"):
            shown.append(f"{name} found {(arrays[f'{name}_proposed'][at] > 0).mean():.2f}")
        answers = int((arrays["label"] == each).sum())
        print(f"{each:6} {answers} answers {at.sum()} tokens; " + "; ".join(shown))


def main() -> None:
    """Download, record, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    releases.download(given.folder)
    arrays = record(given.folder)
    describe(arrays)
    np.savez_compressed(given.out, **arrays)
    print(f"{given.out}: {given.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
