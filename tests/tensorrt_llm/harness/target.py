"""The target model: greedy decoding of a function of the tokens so far.

Two kinds of text, told apart by a request's first token. After an even one the next token depends
on the last token only, so the text soon repeats itself and prompt look-up finds it. After an odd
one it depends on the last three tokens and on the length.
"""

from collections.abc import Sequence

VOCABULARY = 96


def next_token(tokens: Sequence[int]) -> int:
    """Return the greedy continuation of a sequence."""
    if tokens[0] % 2 == 0:
        return (tokens[-1] + tokens[0]) % 5
    mixed = len(tokens) * 2654435761
    for token in tokens[-3:]:
        mixed = (mixed ^ token) * 2246822519 & 0xFFFFFFFF
    return (mixed >> 7) % VOCABULARY


def greedy(tokens: Sequence[int], count: int) -> list[int]:
    """Return the next `count` tokens."""
    extended = list(tokens)
    for _ in range(count):
        extended.append(next_token(extended))
    return extended[len(tokens) :]
