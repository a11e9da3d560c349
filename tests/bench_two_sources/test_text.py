"""Prompts and answers are composed as their docstrings say."""

from __future__ import annotations

import itertools
import json
import random

from benchmarks.two_sources_text import agents, code, prose
from benchmarks.two_sources_text.releases import Module, is_prose, sentences

WORDS = "The function reads every line of a file and returns those that match the pattern given"
PARAGRAPHS = [f"{WORDS} as number {name}. {WORDS} again." for name in ("one", "two", "three")]
LINES = [f"value_{number} = {number}" for number in range(200)]


def module(path: str = "package/module.py", every: int = 12) -> Module:
    """A module, every few lines of which are another in the new release."""
    new = [f"{line} + 1" if n % every == 0 else line for n, line in enumerate(LINES)]
    docstring = '"""' + "\n\n".join(PARAGRAPHS) + '"""'
    return Module(path, "\n".join(LINES), "\n".join([docstring, *new]))


def test_edits_do_not_overlap_and_hold_old_and_new_lines_of_one_place() -> None:
    found = list(code.edits(module()))
    assert len(found) >= 3
    ends = 0
    for each in found:
        assert each.first > ends
        ends = each.first + len(each.old) - 1
        assert each.old == LINES[each.first - 1 : ends]
        unchanged = [line for line in each.new if line in each.old]
        assert 0.5 < len(unchanged) / len(each.new) < 1.0


def test_a_module_that_stayed_as_it_was_gives_no_edit() -> None:
    same = Module("package/module.py", "\n".join(LINES), "\n".join(LINES))
    assert not list(code.edits(same))


def test_an_edits_prompt_holds_the_old_lines_and_its_answer_the_new_ones() -> None:
    sample = next(code.edited([module()], random.Random(0)))
    assert "+ 1" not in sample.prompt
    assert "+ 1" in sample.answer


def test_prose_is_whole_sentences_without_code() -> None:
    assert is_prose(PARAGRAPHS[0])
    assert not is_prose("x = {1: 2, 3: 4}; " * 20 + ".")
    assert module().paragraphs == PARAGRAPHS
    assert len(sentences(PARAGRAPHS[0])) == 2


def test_a_quoting_answer_holds_sentences_of_its_passages_and_some_of_none() -> None:
    modules = [module(f"package/{name}.py") for name in "abcd"]
    sample = next(prose.quoting(modules, random.Random(0)))
    quoted = [each for each in sentences(PARAGRAPHS[0]) if each in sample.answer]
    assert quoted
    assert "passage" in sample.answer


def test_each_turn_of_an_agent_sees_the_turns_before_and_output_of_tools() -> None:
    modules = {"package": [module(f"package/{name}.py") for name in "abcdefgh"]}
    turns = list(agents.sessions(modules, random.Random(0)))[:5]
    for before, after in itertools.pairwise(turns):
        assert after.prompt.startswith(before.prompt + before.answer)
    call = json.loads(turns[2].answer.splitlines()[-1])
    assert call["tool"] == "edit_file"
    assert call["arguments"]["old"].splitlines()[0] in turns[2].prompt
