"""Requests of every kind, and the answers they have without speculation."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines import Answer, Engine, Job
from scenarios import SCHEMA, VOCABULARY, prompts

LEAST_MARGIN = 1e-3
"""Nats between the best and the second token. Nearer ones may change places by rounding alone,
when a batch of another size takes another order of summation."""
_ALMOST_GREEDY = {"temperature": 0.9, "top_p": 1e-6}
"""Goes the way of sampled requests, and has one possible answer."""


@dataclass(frozen=True)
class Question:
    """A request to ask any number of times.

    Attributes:
        kind: what is special about it.
        job: prompt, options, LoRA adapter.
        answer: the one there is without speculation; None where the answer is sampled.
    """

    kind: str
    job: Job
    answer: Answer | None = None

    def fault(self, answer: Answer) -> str:
        """What is wrong with an answer; empty if nothing is."""
        expected = self.answer
        if expected is None:
            length = self.job.options["max_tokens"]
            if any(len(tokens) != length for tokens in answer.tokens):
                return f"{[len(tokens) for tokens in answer.tokens]} tokens, not {length} each"
            if not all(0 <= token < VOCABULARY for tokens in answer.tokens for token in tokens):
                return "a token that is not in the vocabulary"
            return ""
        if answer.tokens != expected.tokens:
            return f"tokens {answer.tokens}, not {expected.tokens}"
        if answer.reasons != expected.reasons or answer.text != expected.text:
            return f"ended by {answer.reasons} with {answer.text}, not {expected.reasons}"
        for ours, theirs in zip(answer.logprobs, expected.logprobs, strict=True):
            for place, other in zip(ours, theirs, strict=True):
                if any(abs(place[token] - value) > 1e-2 for token, value in other.items()):
                    return f"log-probabilities {place}, not {other}"
        return ""


def ask(engine: Engine, asked: Sequence[Question]) -> list[Question]:
    """The questions with this engine's answers; those that rounding may decide are left out."""
    fixed = {question.job.name: question for question in asked if question.kind != "sampled"}
    jobs = [
        replace(job, options={"logprobs": 2} | job.options)
        for job in (question.job for question in fixed.values())
    ]
    answers = engine.run(jobs)
    kept = [question for question in asked if question.kind == "sampled"]
    for name, question in fixed.items():
        answer = answers[name]
        if margin(answer) >= LEAST_MARGIN:
            if "logprobs" not in question.job.options:
                answer = replace(answer, logprobs=[[] for _ in answer.tokens])
            kept.append(replace(question, answer=answer))
    return kept


def margin(answer: Answer) -> float:
    """Least distance, in nats, between the best and the second token anywhere in an answer."""
    least = math.inf
    for sample in answer.logprobs:
        for place in sample:
            best = sorted(place.values(), reverse=True)
            if len(best) > 1:
                least = min(least, best[0] - best[1])
    return least


def questions(count: int, seed: int, loras: Sequence[Any] = ()) -> list[Question]:
    """So many questions, all kinds in turn."""
    chosen = random.Random(seed)
    texts = prompts(count, seed)
    kinds = ("text", "noise", "repeated", "sampled", "json", "samples", "logprobs", "stops")
    kinds += ("almost greedy", *(["lora"] if loras else ()))
    made = []
    for number, text in enumerate(texts):
        kind = kinds[number % len(kinds)]
        prompt: str | list[int] = text
        options: dict[str, Any] = {"max_tokens": chosen.choice((1, 2, 8, 20, 40, 70))}
        lora = None
        if kind == "noise":
            length = chosen.randrange(3, 150)
            prompt = [chosen.randrange(3, VOCABULARY) for _ in range(length)]
        elif kind == "repeated":
            prompt = texts[number % 3] * 2
        elif kind == "sampled":
            options |= {"temperature": chosen.choice((0.5, 0.8, 1.0)), "n": chosen.choice((1, 2))}
        elif kind == "json":
            options |= {"max_tokens": 80, "ignore_eos": False, "structured_outputs": _schema()}
        elif kind == "samples":
            options |= _ALMOST_GREEDY | {"n": 3, "max_tokens": 24}
        elif kind == "logprobs":
            options |= {"logprobs": 3}
        elif kind == "stops":
            options |= {"ignore_eos": False, "stop": ["e", "\n"], "min_tokens": 5}
            options |= {"max_tokens": 60}
        elif kind == "almost greedy":
            options |= _ALMOST_GREEDY
        elif kind == "lora":
            lora = chosen.choice(list(loras))
        made.append(Question(kind, Job(f"{number}-{kind}", prompt, 0, options, lora=lora)))
    return made


def _schema() -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    return StructuredOutputsParams(json=SCHEMA)
