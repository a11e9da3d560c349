"""The table: every mode, loop and policy, and what may go wrong, each in a process of its own.

`python -m harness.cases NAME` runs one case and prints its result as a line of JSON.
"""

import dataclasses
import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

RANDOM = "harness.random_policy:RandomPolicy"


@dataclasses.dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        mode: `off` (no adapter), `shadow` or `on`; `host` for the host-drafter path.
        loop: `plain` or `overlap`.
        policy: of the adapter; on the host path `none` and `always` are upstream's.
        happens: what goes on besides; empty for nothing.
    """

    mode: str
    loop: str = "plain"
    policy: str = ""
    happens: str = ""

    @property
    def name(self) -> str:
        """Name on the command line."""
        policy = self.policy.rpartition(":")[2]
        return ", ".join(part for part in (self.mode, self.loop, policy, self.happens) if part)


@dataclasses.dataclass
class Result:
    """What a run showed.

    Attributes:
        name: of the case.
        problems: what was wrong; empty if nothing was.
        requests: requests sent.
        wrong: requests whose output is not greedy decoding's.
        labels: labels the adapter learned from, each checked against the truth.
        faults: kinds of faults that the adapter counted.
        k: K values that ran.
        replayed: batches that ran from a graph.
        eager: batches without one.
        dummies: padding dummies.
        acceptance: accepted / drafted, upstream's own count.
        true_acceptance: the same without filler.
        note: how the loop ended, if not by running out of requests.
        unknown: attributes upstream asked for that the harness does not know.
    """

    name: str
    problems: list[str] = dataclasses.field(default_factory=list)
    requests: int = 0
    wrong: int = 0
    labels: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)
    k: list[int] = dataclasses.field(default_factory=list)
    replayed: int = 0
    eager: int = 0
    dummies: int = 0
    acceptance: float | None = None
    true_acceptance: float | None = None
    note: str = ""
    unknown: list[str] = dataclasses.field(default_factory=list)


FAILS, ENDS = "forward passes fail", "end tokens, 3 % cancelled"
SHRINKS, PAUSES = "prompt chunks shrink after K is set", "paused and recomputed"
GATE, LIMIT, SLOTS = "acceptance gate closes", "max_concurrency 2", "batch + 1 drafter slots"
LOOPS = ("plain", "overlap")
CASES = (
    *(Case("off", loop) for loop in LOOPS),
    *(Case("shadow", loop, "static") for loop in LOOPS),
    *(Case("on", loop, policy) for loop in LOOPS for policy in ("static", RANDOM, "goodput")),
    *(Case("on", loop, RANDOM, what) for loop in LOOPS for what in (ENDS, SHRINKS, FAILS, GATE)),
    Case("on", "plain", RANDOM, PAUSES),
    *(Case(mode, "overlap", "static" * (mode == "on"), LIMIT) for mode in ("off", "on")),
    *(Case(mode, "overlap", RANDOM * (mode == "on"), SLOTS) for mode in ("off", "on")),
    *(Case("host", "plain", policy) for policy in ("none", "always", "static", RANDOM, "goodput")),
)


def run_case(case: Case) -> Result:
    """Run a case in this process, which must not have imported TensorRT-LLM yet."""
    os.environ.pop("TLLM_ADAPTIVE_SPEC", None)
    settings = {
        "policy": case.policy or "static",
        "fail_open": {"max_decision_ms": 1e6},
    }
    if case.mode in ("shadow", "on"):
        os.environ["TLLM_ADAPTIVE_SPEC"] = json.dumps({"mode": case.mode, **settings})

    from harness import package
    from harness.record import Record
    from harness.traffic import Traffic

    trt = package.load()
    record = Record()
    happens = case.happens
    traffic = Traffic(
        trt,
        requests=60,
        skip=0.02,
        cancel=0.03 if happens == ENDS else 0.01,
        end_id=3 if happens == ENDS else None,
        pause=0.1 if happens == PAUSES else 0.0,
    )
    if case.mode == "host":
        executor, status = _host(trt, case, settings, traffic)
    else:
        executor, status = _one_engine(trt, case, traffic)
    result = Result(case.name, requests=len(traffic.sent))
    _run(executor, case, result)
    _judge(executor, case, result, record, status)
    return result


def _one_engine(trt: Any, case: Case, traffic: Any) -> tuple[Any, Callable[[], Any]]:
    from harness import managers
    from harness.executor import BATCH, KMAX, one_engine_executor, spec_config_of

    options: dict[str, Any] = {}
    if case.happens == LIMIT:
        options["spec_config"] = spec_config_of(trt, {2: KMAX})
    if case.happens == SLOTS:
        options["spec_resource_manager"] = managers.SpeculationSlots(BATCH + 1)
        traffic.rate = 1.0
    if case.happens == GATE:
        traffic.each_iteration = lambda e: setattr(
            e, "speculation_permanently_disabled", e.iter_counter > 100
        )
    executor = one_engine_executor(trt, traffic, overlap=case.loop == "overlap", **options)
    if case.happens == FAILS:
        executor.engine.fail_at = {40, 41, 90}
    if case.happens == SHRINKS:
        shrink_chunks(executor)
    return executor, lambda: getattr(executor, "_adaptive_spec", None)


def _host(
    trt: Any, case: Case, settings: dict[str, Any], traffic: Any
) -> tuple[Any, Callable[[], Any]]:
    from harness.executor import KMAX, host_executor

    if case.policy == "none":
        return host_executor(trt, traffic, None), lambda: None
    if case.policy == "always":
        return host_executor(trt, traffic, _always_drafting(KMAX)), lambda: None

    from adaptive_spec.adapters.tensorrt_llm.host_drafter import AdaptivePromptLookup
    from adaptive_spec.config import parse_config

    drafter = AdaptivePromptLookup(KMAX, config=parse_config(settings, source="harness"))
    return host_executor(trt, traffic, drafter, drafter.companion), lambda: drafter._decisions


def _always_drafting(kmax: int) -> Any:
    """A drafter of upstream's kind: prompt look-up in every iteration."""
    from tensorrt_llm._torch.speculative.drafter import Drafter

    from adaptive_spec.adapters.tensorrt_llm.host_decisions import SuffixIndex

    class Always(Drafter):  # type: ignore[misc]
        def prepare_draft_tokens(
            self, scheduled_requests: Any, resource_manager: Any = None
        ) -> None:
            for request in scheduled_requests.generation_requests:
                index = SuffixIndex(3)
                index.extend(request.get_tokens(0))
                request.py_draft_tokens = index.propose(kmax)

    return Always(max_draft_len=kmax, max_total_draft_tokens=kmax)


def shrink_chunks(executor: Any) -> None:
    """Let prompt chunks shrink after K is set, as upstream does to keep a token budget."""
    chance = random.Random(3)
    last = list(executor.resource_manager.resource_managers.values())[-1]
    own = last.prepare_resources

    def prepare(batch: Any) -> None:
        own(batch)
        for request in batch.context_requests_last_chunk:
            if request.context_chunk_size > 1 and chance.random() < 0.5:
                request.context_chunk_size -= 1
        batch.reset_context_requests()

    last.prepare_resources = prepare


def _run(executor: Any, case: Case, result: Result) -> None:
    from harness.executor import run

    try:
        run(executor)
    except AssertionError as error:
        # Some versions end the overlap loop after a failed forward pass.
        if case.happens != FAILS or "Sampling failed" not in str(error):
            result.problems.append(repr(error))
        result.note = "ends by upstream's own assertion"
    except Exception as error:
        result.problems.append(repr(error))


def _judge(
    executor: Any, case: Case, result: Result, record: Any, status: Callable[[], Any]
) -> None:
    from harness.executor import KMAX
    from harness.record import check_labels
    from harness.traffic import wrong_outputs

    engine, traffic = executor.engine, executor.traffic
    result.requests = len(traffic.sent)
    result.wrong = len(wrong_outputs(traffic))
    result.k = sorted({k for _, k in engine.history})
    result.replayed = sum(replayed is True for *_, replayed in engine.log)
    result.eager = sum(replayed is False for *_, replayed in engine.log)
    result.unknown = sorted(executor.asked)
    drafted = sum(request.py_total_draft_tokens for request in traffic.sent)
    accepted = sum(request.py_total_accepted_draft_tokens for request in traffic.sent)
    result.acceptance = accepted / drafted if drafted else None
    truth = [pair for step in engine.truth for pair in step.values()]
    real = sum(drafts for drafts, _ in truth)
    true = sum(min(accepted, drafts) for drafts, accepted in truth)
    result.true_acceptance = true / real if real else None
    problems = result.problems
    if result.wrong:
        problems.append("output is not greedy decoding's")
    if not result.note and not all(request.is_finished for request in traffic.sent):
        problems.append("requests did not end")
    if result.eager and case.happens != GATE:  # upstream captures no K = 0 for its gate
        problems.append("a K without a graph")
    if case.mode != "host":
        result.dummies = len(engine.cuda_graph_runner.padding_dummy_requests)
        if engine.stale_passes and case.happens != LIMIT:
            problems.append("drafting on a stale state")
    if case.mode in ("off", "shadow") and not case.happens and result.k != [KMAX]:
        problems.append("K was changed")
    driver = status()
    if driver is None:
        if case.mode in ("shadow", "on"):
            problems.append("the adapter is not there")
        return
    _judge_adapter(driver, case, result, record)
    if case.mode != "host":
        try:
            result.labels = check_labels(record, engine.truth)
        except AssertionError as error:
            problems.append(str(error))
        if not result.labels:
            problems.append("no labels")


def _judge_adapter(driver: Any, case: Case, result: Result, record: Any) -> None:
    from adaptive_spec import check_adapter

    if hasattr(driver, "sweep"):
        driver.forget_cancelled()
    status = driver.controller.status()
    result.faults = sorted(status["fail_opens"])
    if result.faults:
        result.problems.append("faults of the adapter")
    try:
        check_adapter(record.steps(), live_requests=status["live_requests"])
    except AssertionError as error:
        result.problems.append(f"check_adapter: {error}")


if __name__ == "__main__":
    (wanted,) = [case for case in CASES if case.name == sys.argv[1]]
    print(json.dumps(dataclasses.asdict(run_case(wanted))))
