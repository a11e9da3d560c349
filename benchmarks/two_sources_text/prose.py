"""Prose, and answers that quote passages: whole sentences of docstrings, in an order of ours."""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.two_sources_text.releases import Module, sentences
from benchmarks.two_sources_text.sample import Sample

PARAGRAPHS = 5
PASSAGES = 4
LEADS = (
    'Passage {n} says: "{quoted}"',
    'According to passage {n}, "{quoted}"',
    'The documentation puts it this way: "{quoted}"',
    "As passage {n} has it, {quoted}",
)


def told(modules: list[Module], random_: random.Random) -> Iterator[Sample]:
    """Paragraphs of a module, after its first one."""
    order = [module for module in modules if len(module.paragraphs) >= 3]
    random_.shuffle(order)
    for module in order:
        first, *rest = module.paragraphs[: 1 + PARAGRAPHS]
        question = f"Tell me about {module.path.removesuffix('.py').replace('/', ' ')}."
        yield Sample("prose", f"{question}\n\n{first}\n\n", "\n\n".join(rest) + "\n")


def quoting(modules: list[Module], random_: random.Random) -> Iterator[Sample]:
    """Composed: sentences of the passages in quotes, between sentences that are in none of them."""
    texts = [each for module in modules for each in module.paragraphs]
    random_.shuffle(texts)
    size = PASSAGES + 2
    for start in range(0, len(texts) - size + 1, size):
        passages, own = texts[start : start + PASSAGES], texts[start + PASSAGES : start + size]
        shown = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(passages, 1))
        fresh = [each for text in own for each in sentences(text)]
        parts = []
        for n in random_.sample(range(1, PASSAGES + 1), PASSAGES):
            if fresh:
                parts.append(fresh.pop(0))
            said = sentences(passages[n - 1])
            first = random_.randrange(len(said))
            quoted = " ".join(said[first : first + 2])
            parts.append(random_.choice(LEADS).format(n=n, quoted=quoted))
        prompt = f"Answer from these passages.\n\n{shown}\n\nAnswer:\n"
        yield Sample("quote", prompt, " ".join([*parts, *fresh[:1]]) + "\n")
