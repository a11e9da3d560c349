"""Short sampled completions of a whole engine, and whether two engines' have one distribution."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import msgspec
from engines import KMAX, Engine, Job

from adaptive_spec.step import StepOutcome
from tests.chi_square import p_value

Sequence = tuple[int, ...]

PROMPTS = (("code", 0), ("json", 6), ("log", 4), ("log", 5))
"""Kind and number. What follows them is neither certain nor open to anything: where it is, hardly
any rule for drafts makes a difference that few samples show."""
PROMPT_TOKENS = 33
"""One more than a KV block: a prompt in the prefix cache costs one token."""
TOKENS = KMAX + 2
"""One from the prompt's own pass, then as many as a step can emit."""
COPIES = 64
"""Samples that a request asks for."""
BATCH = len(PROMPTS) * COPIES
ENGINE: dict[str, Any] = {
    "max_num_seqs": BATCH,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks_override": 3 * BATCH,
}
_WINDOWS = ((0, 4), (1, 3), (3, 5), (1, TOKENS), *((at, at + 1) for at in range(1, TOKENS)))
"""Whole sequences of four, pairs, all that was speculated, and each position alone."""


class Comparison(NamedTuple):
    """Two samples of completions.

    Attributes:
        probability: of finding so large a difference, or a larger, in samples of one distribution:
            the least p of the comparisons, times their number (Bonferroni).
        comparisons: by prompt and window of positions.
        prompt, window: where the difference is largest.
    """

    probability: float
    comparisons: int
    prompt: int
    window: tuple[int, int]


def compare(one: list[list[Sequence]], other: list[list[Sequence]]) -> Comparison:
    """Chi-square by prompt, over the most frequent values and the rest; see `_WINDOWS`."""
    found = []
    for prompt, (ours, plain) in enumerate(zip(one, other, strict=True)):
        for low, high in _WINDOWS:
            seen = [Counter(tokens[low:high] for tokens in each) for each in (ours, plain)]
            p = p_value([(seen[0], seen[1])])
            found.append((p, prompt, (low, high)))
    p, prompt, window = min(found)
    return Comparison(min(p * len(found), 1.0), len(found), prompt, window)


@cache
def token_prompts() -> list[list[int]]:
    """The prompts, with the same number of tokens each."""
    from tokenizers import Tokenizer

    from benchmarks.bench_pair.names import TOKENIZER
    from benchmarks.bench_pair.prompts import load_prompts

    tokenizer, texts = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json")), load_prompts()
    return [tokenizer.encode(texts[kind][n]).ids[:PROMPT_TOKENS] for kind, n in PROMPTS]


def draw(engine: Engine, samples: int, temperature: float, seed: int) -> list[list[Sequence]]:
    """At least so many completions, by prompt, in full batches."""
    import torch

    torch.manual_seed(seed)
    drawn: list[list[Sequence]] = [[] for _ in PROMPTS]
    options = {"temperature": temperature, "n": COPIES, "max_tokens": TOKENS, "detokenize": False}
    for _ in range(-(-samples // BATCH)):
        jobs = [Job(str(at), tokens, 0, options) for at, tokens in enumerate(token_prompts())]
        for name, answer in engine.run(jobs).items():
            drawn[int(name)] += answer.tokens
    return drawn


def learn(engine: Engine, temperature: float) -> None:
    """Longer completions, from which a policy learns acceptance and step times."""
    options = {"temperature": temperature, "n": COPIES, "max_tokens": 60, "detokenize": False}
    for _ in range(2):
        engine.run([Job(str(at), tokens, 0, options) for at, tokens in enumerate(token_prompts())])


@contextmanager
def fake_step_times(
    engine: Engine, base_ms: float = 8.0, token_ms: float = 0.016, pass_ms: float = 0.4
) -> Iterator[None]:
    """What the policy is told steps took, so that it decides the same on every machine.

    With these, verifying a draft at a batch of 256 is worth about an even chance of acceptance:
    some drafts are admitted and others aren't.
    """
    controller = engine.controller

    def observe(outcome: StepOutcome) -> None:
        ms = base_ms + token_ms * (outcome.batch_tokens + outcome.prefill_tokens)
        ms += pass_ms * outcome.draft_depth
        type(controller).observe(controller, msgspec.structs.replace(outcome, seconds=ms / 1e3))

    controller.observe = observe
    try:
        yield
    finally:
        del controller.observe


@contextmanager
def trimmed_by_sampled_tokens(engine: Engine, least: float) -> Iterator[Callable[[], int]]:
    """A rule that is biased: drafts end where the sampled token was less probable than `least`.

    Yields the number of drafts left out so far.
    """
    scheduler, runner = engine.scheduler, engine.runner
    left_out = 0

    def update_draft_token_ids(drafts: Any) -> Any:
        nonlocal left_out
        q, names = runner._draft_probs, runner._draft_prob_req_ids
        if q is not None:
            row_of = {name: row for row, name in enumerate(names)}
            for at, (name, tokens) in enumerate(
                zip(drafts.req_ids, drafts.draft_token_ids, strict=True)
            ):
                chances = [q[row_of[name], place, token] for place, token in enumerate(tokens)]
                kept = next((n for n, chance in enumerate(chances) if chance < least), len(tokens))
                left_out += len(tokens) - kept
                drafts.draft_token_ids[at] = list(tokens[:kept])
        return type(scheduler).update_draft_token_ids(scheduler, drafts)

    scheduler.update_draft_token_ids = update_draft_token_ids
    try:
        yield lambda: left_out
    finally:
        del scheduler.update_draft_token_ids
