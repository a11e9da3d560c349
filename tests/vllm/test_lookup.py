"""Look-ups in the text of requests: what is found, how long it may take, and what follows of it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engines import KMAX
from hypothesis import given
from hypothesis import strategies as st

from adaptive_spec.adapters.vllm import copied_drafts
from adaptive_spec.adapters.vllm.lookup import LookUp, Placement, agreement
from adaptive_spec.config import SecondSource

pytest.importorskip("arctic_inference", reason="drafts are looked up by arctic-inference")
pytestmark = pytest.mark.engine


class Request:
    """The part of vLLM's request that a look-up reads."""

    def __init__(self, name: str, prompt: list[int], output: list[int]) -> None:
        self.request_id = name
        self.prompt_token_ids = prompt
        self.all_token_ids = prompt + output
        self.num_tokens = len(self.all_token_ids)
        self.use_structured_output = False


def test_a_look_up_that_fails_is_left_out_counted_and_said_once(
    said: Callable[[], list[str]],
) -> None:
    events: list[str] = []
    lookup = LookUp(SecondSource(), events.append)
    request = Request("a", [1, 2, 3, 4, 1, 2], [3])
    lookup.take_up([request])
    most, under_way = np.array([KMAX]), np.array([0])
    found = lookup.find([request], most, under_way, KMAX)
    assert found.tokens[0][:1] == [4]
    lookup._trees = None  # as broken as can be
    assert lookup.find([request], most, under_way, KMAX) is None
    assert events == ["lookup_failed"]
    assert lookup.find([request], most, under_way, KMAX) is None, "it is not asked again at once"
    lookup.take_up([request])
    lookup.forget(["a"])
    assert events == ["lookup_failed"]
    assert sum("not looked up" in line for line in said()) == 1


@pytest.mark.parametrize(("cost", "served"), [(0.00005, 200), (0.02, 0)])
def test_a_large_batch_is_looked_up_as_far_as_the_time_goes(
    cost: float, served: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arctic_inference.suffix_decoding import SuffixDecodingCache

    speculate, seconds = SuffixDecodingCache.speculate, 0.0

    def costly(*given: Any, **named: Any) -> Any:
        nonlocal seconds
        seconds += cost
        return speculate(*given, **named)

    monkeypatch.setattr(time, "thread_time", lambda: seconds)
    monkeypatch.setattr(SuffixDecodingCache, "speculate", costly)
    events: list[str] = []
    lookup = LookUp(SecondSource(), events.append)
    requests = [Request(str(row), [1, 2, 3, 4, 1, 2], [3]) for row in range(300)]
    lookup.take_up(requests)
    for _ in range(2):
        found = lookup.find(requests, np.full(300, KMAX), np.zeros(300, dtype=np.int64), KMAX)
        count = 0 if found is None else int(np.count_nonzero(found.available))
        assert served <= count <= served + 1
    assert events == ([] if served else ["lookup_slow"])


def test_an_answer_that_is_given_again_matches_together_with_its_prompt() -> None:
    lookup = LookUp(SecondSource(other_requests=True), lambda event: None)
    prompt, answer = list(range(100, 120)), [1, 2, 3, 4, 5, 6]

    def match_of(name: str, prompt: list[int], output: list[int]) -> int:
        request = Request(name, prompt, output)
        lookup.take_up([request])
        found = lookup.find([request], np.array([KMAX]), np.array([0]), KMAX)
        lookup.forget([name])
        return int(found.match[0])

    assert match_of("first", prompt, answer) == 0
    assert match_of("other", [*prompt[1:], 7], answer[:2]) == 2
    assert match_of("again", prompt, answer[:2]) == 22
    assert match_of("differs", prompt, [9, *answer[:2]]) == 2


def test_an_answer_stays_with_the_tokens_of_its_last_step() -> None:
    lookup = LookUp(SecondSource(other_requests=True), lambda event: None)
    first = Request("first", [1, 2], [3, 4])
    lookup.take_up([first])
    first.all_token_ids += [5, 6]  # the last step's, with which the request ends
    lookup.forget(["first"])
    other = Request("other", [1, 2], [3, 4])
    lookup.take_up([other])
    found = lookup.find([other], np.array([KMAX]), np.array([0]), KMAX)
    assert found.tokens == [[5, 6]]


def test_near_the_end_of_a_request_a_long_match_still_wins() -> None:
    lookup = LookUp(SecondSource(), lambda event: None)
    often, seldom, other = [1, 2, 3, 4, 5, 6], [1, 2, 3, 7], [9, 3, 8]
    request = Request("a", [*often, *often, *seldom, *other * 12, 1, 2], [3])
    lookup.take_up([request])
    for room in (KMAX, 1):
        found = lookup.find([request], np.array([room]), np.array([0]), KMAX)
        assert found.tokens[0][:1] == [4]
        assert found.available[0] <= room


def test_drafts_agree_up_to_the_first_wrong_one() -> None:
    found = [[1, 2, 3], [1, 2, 3], [], [5]]
    assert agreement(found, [[1, 2, 9, 9], [1, 2], [7], [6, 5]]).tolist() == [2, 2, 0, 0]


def test_a_look_up_goes_on_over_the_tokens_that_are_under_way() -> None:
    lookup = LookUp(SecondSource(), lambda event: None, Placement.RUNNER_V2)
    text = list(range(10, 30))
    request = Request("a", [*text, 10, 11], [12])
    lookup.take_up([request])
    found = lookup.find([request], np.array([3]), np.array([4]), KMAX)
    assert found.tokens == [[13, 14, 15, 16, 17, 18, 19]]
    assert found.available.tolist() == [3]
    request.all_token_ids += [13, 14]  # one of three drafts was accepted
    request.num_tokens += 2
    assert found.drafts() == [[15, 16, 17, 18, 19]]
    request.all_token_ids[-1] = 99
    assert found.drafts() == [[]], "what has come is not what was expected"


@given(st.data())
def test_what_follows_the_emitted_tokens_takes_the_place_of_the_drafts(data: st.DataObject) -> None:
    import torch

    token = st.integers(0, 2)
    rows = data.draw(st.integers(1, 4))
    expected = [data.draw(st.lists(token, max_size=2 * KMAX + 1)) for _ in range(rows)]
    emitted = [data.draw(st.lists(token, min_size=1, max_size=KMAX + 1)) for _ in range(rows)]
    own = [data.draw(st.lists(token, min_size=KMAX, max_size=KMAX)) for _ in range(rows)]

    def padded(values: list[list[int]], width: int) -> Any:
        return torch.tensor([row + [-1] * (width - len(row)) for row in values])

    drafts, taken = copied_drafts.following(
        padded(expected, 2 * KMAX + 1), padded(emitted, KMAX + 1), torch.tensor(own)
    )
    for row in range(rows):
        come = emitted[row]
        follow = expected[row][len(come) :][:KMAX] if expected[row][: len(come)] == come else []
        assert drafts[row].tolist() == follow + own[row][len(follow) :]
        assert int(taken[row].sum()) == len(follow)


def test_prompts_are_taken_up_a_bounded_number_of_tokens_at_a_time() -> None:
    lookup = LookUp(SecondSource(), lambda event: None)
    long = [[place % 1000 + 5000 * which for place in range(30_000)] for which in range(3)]
    requests = [Request(str(which), prompt, prompt[:3]) for which, prompt in enumerate(long)]
    most = np.full(3, KMAX)
    found = []
    for _ in range(3):
        lookup.take_up(requests)
        now = lookup.find(requests, most, np.zeros_like(most), KMAX)
        found.append(np.count_nonzero(now.available))
    assert found == [1, 2, 3]
