"""Does vLLM accept of a served head what the records say? Are its tokens those without one?

    python -m benchmarks.real_model.served MODEL HEAD

24 instructions, greedy, in float32: once without the head, whose answers and streams tell what of
its drafts a step with K = 4 would accept, and once with it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from pathlib import Path

from .answers import Model, write_answers
from .check import EACH, some
from .head import Head, Target
from .instructions import Instruction
from .record import drafted, right_in_a_row
from .train import read_rows

K = 4
ASKED = [(Instruction(each.kind, each.turns[:1]), 0.0) for each in some(EACH)]
Accepted = tuple[int, list[int]]
"""Steps, and drafts accepted at each position."""


def plain(model: Path, folder: Path) -> None:
    """Answer without the head; in a process of its own, which takes its engine along."""
    write_answers(Model(model), ASKED, folder)


def with_head(model: Path, head: Path) -> tuple[dict[tuple[int, ...], list[int]], Accepted]:
    """Answer with the head; return answers by prompt, and vLLM's own counts."""
    served = Model(model, {"method": "eagle3", "model": str(head), "num_speculative_tokens": K})
    answers = {tuple(row.prompt): row.output for row in served.answer(ASKED)}
    counts = {each.name: each for each in served.engine.get_metrics()}
    steps = counts["vllm:spec_decode_num_drafts"].value
    return answers, (steps, counts["vllm:spec_decode_num_accepted_tokens_per_pos"].values)


def main() -> int:
    """Parse, serve twice and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("head", type=Path)
    given = parser.parse_args()
    head = Head.load(given.head, Target.read(given.model))
    steps, accepted, same = 0, [0] * K, 0
    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("spawn").Process(
            target=plain, args=(given.model, Path(folder))
        )
        process.start()
        process.join()
        rows = read_rows(Path(folder), context=1 << 20)
    answers, counted = with_head(given.model, given.head)
    for row in rows:
        prompt, answer = row.tokens[: row.context].tolist(), row.tokens[row.context :].tolist()
        same += answers[tuple(prompt)] == answer
        right = right_in_a_row(drafted(head, row)[0].tolist(), answer)
        at = 0
        while at < len(answer) - 1:
            steps += 1
            for position in range(min(right[at], K)):
                accepted[position] += 1
            at += min(right[at], K) + 1
    print(f"{same} of {len(rows)} answers are those without the head")
    print(f"vLLM:    {counted[0]} steps, accepted by position {counted[1]}")
    print(f"records: {steps} steps, accepted by position {accepted}")
    # vLLM also counts what it accepts behind an answer's end; the steps tell.
    return int(same < len(rows) or steps != counted[0])


if __name__ == "__main__":
    sys.exit(main())
