"""Traffic of all kinds at changing load, with clients that leave, hints, switches and pauses."""

import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engines import Engine, answer_of
from questions import Question
from steadiness import Steadiness

from adaptive_spec.policy import available_policies

LOADS = (1, 3, 6, 12, 20)
"""Requests at a time; the last is more than an engine of 12 takes."""
PHASE_STEPS = (20, 120)
"""Load, policy and mode change after so many engine steps."""
PHASES_TO_DRAIN = 6
"""Then everything is answered, and nothing may be left."""
ABORTS = 0.15
"""Share of the clients that leave before they are answered."""
REFUSED = (
    {"mode": "faster"},
    {"policy": "no_such_policy"},
    {"policy": "static", "options": {"k": -1}},
    {},
)
_HINTS: tuple[dict[str, Any], ...] = (
    {},
    {"adaptive_spec_k_cap": 0},
    {"adaptive_spec_k_cap": 2},
    {"adaptive_spec_k_cap": "many"},  # ignored, and counted
    {"adaptive_spec_off": 1},
    {"adaptive_spec_tpot_ms": 30},
    {"adaptive_spec_tpot_ms": -1},  # ignored, and counted
)


class MixedTraffic:
    """Drives an engine that has our plugin.

    Attributes:
        counts: what was done and what came of it.
        wrong: answers that are not those without speculation, a line each.
        warnings: what our logger complained of.
        steadiness: memory and state, whenever nothing was to do.
    """

    def __init__(
        self, engine: Engine, asked: Sequence[Question], control_file: Path, seed: int = 0
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.policies: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.warnings: list[str] = []
        self.steadiness = Steadiness(engine)
        self._engine = engine
        self._asked = asked
        self._control_file = control_file
        self._random = random.Random(seed)
        self._policies = sorted(available_policies())
        self._live: dict[str, Question] = {}
        self._leaves: dict[str, int] = {}
        self._step = self._sent = 0

    def serve(self, enough: Callable[[], bool]) -> None:
        """Go on until it is enough, asked between phases; then answer what is left."""
        phases = 0
        with self._listening():
            while not enough():
                self._phase(self._random.choice(LOADS), self._random.randint(*PHASE_STEPS))
                self._change_something()
                phases += 1
                if phases % PHASES_TO_DRAIN == 0:
                    self._drain()
            self._drain()

    def summary(self) -> dict[str, Any]:
        """JSON-compatible."""
        status = self._engine.controller.status()
        shown = ("fail_opens", "ignored_hints", "steps_by_mode", "requests_by_k", "events")
        shown += ("verified_tokens", "accepted_tokens", "decision_us_mean", "decision_us_max")
        return {
            "counts": dict(sorted(self.counts.items())),
            "answers_checked": dict(sorted(self.answered.items())),
            "policies": dict(sorted(self.policies.items())),
            "preemptions": self._engine.preemptions,
            "wrong": self.wrong,
            "warnings": self.warnings,
            "controller": {name: status[name] for name in shown},
            "steadiness": self.steadiness.summary(),
        }

    # ------------------------------------------------------------------ traffic

    def _phase(self, load: int, steps: int) -> None:
        for _ in range(steps):
            while len(self._live) < load:
                self._send()
            self._advance()

    def _send(self) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        question = self._random.choice(self._asked)
        job = question.job
        name = f"{self._sent}-{question.kind}"
        self._sent += 1
        hints = dict(self._random.choice(_HINTS))
        if self._random.random() < 0.3:
            # More labels than are told apart.
            hints["adaptive_spec_task"] = f"task-{self._random.randrange(100)}"
        defaults = {"temperature": 0.0, "ignore_eos": True, "extra_args": hints}
        parameters = SamplingParams(
            output_kind=RequestOutputKind.FINAL_ONLY, **(defaults | job.options)
        )
        prompt: Any = job.prompt
        prompt = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}
        self._engine.engine.add_request(name, prompt, parameters, lora_request=job.lora)
        self._live[name] = question
        if self._random.random() < ABORTS:
            self._leaves[name] = self._step + self._random.randrange(60)
        self.counts["requests"] += 1

    def _advance(self) -> None:
        gone = [name for name, step in self._leaves.items() if step <= self._step]
        for name in gone:
            del self._leaves[name]
            if self._live.pop(name, None) is not None:
                self._engine.engine.abort_request([name])
                self.counts["aborts"] += 1
        for output in self._engine.engine.step():
            if output.finished and output.request_id in self._live:
                question = self._live.pop(output.request_id)
                self._leaves.pop(output.request_id, None)
                self._check(output.request_id, question, output)
        self._step += 1
        self.counts["steps"] += 1

    def _check(self, name: str, question: Question, output: Any) -> None:
        answer = answer_of(output)
        self.answered[question.kind] += 1
        self.counts["tokens"] += sum(map(len, answer.tokens))
        if fault := question.fault(answer):
            self.wrong.append(f"{name}, under {self._engine.controller.policy.name}: {fault}")

    def _drain(self) -> None:
        while self._live or self._engine.engine.has_unfinished_requests():
            self._advance()
        while self._engine.core.batch_queue:  # a step scheduled ahead
            self._engine.engine.step()
        self.steadiness.take(self.counts["requests"])

    # ----------------------------------------------------------------- controls

    def _change_something(self) -> None:
        policy = self._random.choice(("goodput", "goodput", "static", *self._policies))
        request: dict[str, Any] = {"policy": policy, "mode": "on"}
        if policy == "static":
            request["options"] = {"k": self._random.randrange(5)}
        if self._random.random() < 0.2:
            request = {"mode": self._random.choice(("off", "shadow"))}
        if self._random.random() < 0.1:
            request = dict(self._random.choice(REFUSED))
        if self._random.random() < 0.2:
            new = self._control_file.with_suffix(".new")
            new.write_text(json.dumps(request))
            new.replace(self._control_file)
            self.counts["control files"] += 1
        else:
            answer = json.loads(self._engine.core.adaptive_spec_control(request))
            error = answer.get("error", "")
            self.counts["switches refused" if error else "switches"] += 1
        self.policies[self._engine.controller.policy.name] += 1
        chance = self._random.random()
        if chance < 0.1:
            self._pause()
        elif chance < 0.13:
            self._engine.core.set_weight_version(f"version {self._step}")
            self.counts["weight versions"] += 1

    def _pause(self) -> None:
        from vllm.v1.core.sched.interface import PauseState

        scheduling = self._engine.scheduler.vllm_config.scheduler_config
        structured = any(question.kind == "json" for question in self._live.values())
        if scheduling.async_scheduling and structured:
            return  # While we only watch, vLLM answers these wrongly (see test_interplay).
        self._engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        for _ in range(2):
            self._advance()
        self._engine.scheduler.set_pause_state(PauseState.UNPAUSED)
        self.counts["pauses"] += 1

    @contextmanager
    def _listening(self) -> Iterator[None]:
        logger = logging.getLogger("vllm.adaptive_spec")

        def note(record: logging.LogRecord) -> bool:
            # A control file that is refused is said each time, as it should be.
            if record.levelno >= logging.WARNING and "nothing is changed" not in record.msg:
                self.warnings.append(record.getMessage())
            return True

        logger.addFilter(note)
        try:
            yield
        finally:
            logger.removeFilter(note)
