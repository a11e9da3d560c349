"""The traffic every engine configuration is run through."""

import random
from typing import Any

from engines import Job

from tests.prompts import prompts

VOCABULARY = 2048
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["alpha", "beta", "gamma"]},
    },
    "required": ["name", "count", "kind"],
    "additionalProperties": False,
}


def crowded() -> list[Job]:
    """Arrivals over time, more KV than there is: chunked prefill and preemptions."""
    chosen = random.Random(3)
    jobs = []
    for index, prompt in enumerate(prompts(14, 1)):
        options = {"max_tokens": chosen.randrange(20, 70)}
        jobs.append(Job(f"text-{index}", prompt, chosen.randrange(0, 30), options))
    for index in range(8):
        length = chosen.randrange(3, 150)
        tokens = [chosen.randrange(3, VOCABULARY) for _ in range(length)]
        options = {"max_tokens": chosen.randrange(1, 60)}
        jobs.append(Job(f"noise-{index}", tokens, chosen.randrange(0, 30), options))
    repeated = prompts(1, 9)[0] * 2
    jobs += [Job(f"same-{index}", repeated, 5 + 9 * index) for index in range(3)]
    return jobs


def structured() -> list[Job]:
    """JSON by schema beside free text."""
    free = [Job(f"free-{index}", prompt) for index, prompt in enumerate(prompts(3, 5))]
    return [*free, *json_jobs(4, 6)]


def json_jobs(count: int, seed: int) -> list[Job]:
    """Answers in JSON by the schema, as those of tool calls."""
    from vllm.sampling_params import StructuredOutputsParams

    options = {
        "structured_outputs": StructuredOutputsParams(json=SCHEMA),
        "ignore_eos": False,
        "max_tokens": 80,
    }
    return [
        Job(f"json-{index}", prompt, index, options)
        for index, prompt in enumerate(prompts(count, seed))
    ]


def several_samples() -> list[Job]:
    """n > 1 needs a temperature; a tiny top_p makes it deterministic all the same.

    (Not top_k = 1: on CPU, vLLM 0.32 with speculation fails on top_k in steps without drafts.)
    """
    options = {"n": 3, "temperature": 0.7, "top_p": 1e-6, "max_tokens": 24}
    return [Job(f"n-{index}", prompt, index, options) for index, prompt in enumerate(prompts(3, 7))]


def with_logprobs() -> list[Job]:
    """Log-probabilities of the chosen and the next best tokens."""
    options = {"logprobs": 3, "max_tokens": 24}
    return [
        Job(f"logprobs-{index}", prompt, index, options)
        for index, prompt in enumerate(prompts(4, 8))
    ]


def with_aborts() -> list[Job]:
    """Half of the clients go away in the middle."""
    jobs = [Job(f"stay-{index}", prompt) for index, prompt in enumerate(prompts(5, 11))]
    jobs += [
        Job(f"leave-{index}", prompt, index, {"max_tokens": 200}, abort_at=8 + 3 * index)
        for index, prompt in enumerate(prompts(4, 12))
    ]
    return jobs


def with_stops() -> list[Job]:
    """Ends by end-of-text and by a stop string, in the middle of accepted drafts."""
    jobs = []
    for index, prompt in enumerate(prompts(4, 13)):
        options: dict[str, Any] = {"ignore_eos": False, "stop": ["e", "\n"], "min_tokens": 5}
        jobs.append(Job(f"stop-{index}", prompt, 0, options | {"max_tokens": 60}))
    return jobs


SCENARIOS = {
    "crowded": crowded,
    "structured": structured,
    "several_samples": several_samples,
    "with_logprobs": with_logprobs,
    "with_aborts": with_aborts,
    "with_stops": with_stops,
}
