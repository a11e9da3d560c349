"""The head that is trained on the real model's answers, with a target of random numbers."""

import pytest

torch = pytest.importorskip("torch", reason="the head is a torch module")

from benchmarks.real_model.records import (  # noqa: E402
    KMAX,
    LAYERS,
    Head,
    Rows,
    Target,
    common_tokens,
    drafted,
    loss_of,
    right_in_a_row,
    train,
)

WIDTH, TOKENS = 16, 40


def small_head() -> Head:
    torch.manual_seed(0)
    config = {"hidden_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1}
    target = Target(torch.randn(TOKENS, WIDTH), torch.ones(WIDTH), config | {"head_dim": 8})
    return Head(target, torch.arange(0, TOKENS, 2), inner=24)


def some_rows(length: int = 14, context: int = 4, seed: int = 0) -> Rows:
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(TOKENS, (length,), generator=draw)
    streams = torch.randn(length, len(LAYERS), WIDTH, generator=draw).bfloat16()
    return Rows("chat", 0.0, tokens, streams, context)


def one_after_the_other(head: Head, rows: Rows, last: int) -> list[int]:
    """Draft as an engine does, row after row, with the text up to `last` known."""
    hidden = head.read(rows.streams[None, :last].float())
    tokens = rows.tokens[None, 1 : last + 1]
    made: list[int] = []
    for _ in range(KMAX):
        normed, stream = head(tokens, hidden, torch.arange(tokens.shape[1]), [])
        made.append(int(head.vocabulary[head.logits(normed[0, -1]).argmax()]))
        hidden = torch.cat([hidden, stream[:, -1:]], 1)
        tokens = torch.cat([tokens, torch.tensor([[made[-1]]])], 1)
    return made


def test_drafts_at_every_position_at_once_are_those_of_an_engine() -> None:
    head, rows = small_head(), some_rows()
    drafts, sure = drafted(head, rows)
    assert drafts.shape == sure.shape == (len(rows.tokens) - rows.context, KMAX)
    with torch.no_grad():
        for at in range(len(drafts)):
            # Behind output token `at`, whose row is the one before it.
            assert drafts[at].tolist() == one_after_the_other(head, rows, rows.context + at)
    assert ((sure > 1 / len(head.vocabulary)) & (sure <= 1)).all()


def test_leading_drafts_that_are_the_next_tokens_are_counted() -> None:
    answer = [5, 6, 7, 8]
    assert right_in_a_row([[6, 7, 9], [7, 8, 1], [9, 8], [1]], answer) == [2, 2, 0, 0]


def test_training_lowers_the_loss_of_each_number_of_passes() -> None:
    head, rows = small_head(), [some_rows(seed=seed) for seed in range(8)]
    with torch.no_grad():
        before = [float(loss_of(head, rows, passes)) for passes in (1, 2)]
        assert before[0] != before[1]
    train(head, rows, steps=60)
    with torch.no_grad():
        after = [float(loss_of(head, rows, passes)) for passes in (1, 2)]
    assert after[0] < 0.9 * before[0]
    assert after[1] < 0.97 * before[1]


def test_a_vocabulary_has_the_commonest_tokens_in_their_order() -> None:
    texts = [torch.tensor([9, 9, 3, 3, 3]), torch.tensor([9, 1, 4, 4])]
    assert common_tokens(texts, 3, 12).tolist() == [3, 4, 9]
