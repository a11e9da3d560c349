"""The families of models that people serve: same tokens while K changes at every step.

Each family is a small checkpoint that vLLM's own code loads (support/family_checkpoints.py). What
its CPU build lacks for hybrids is mended for these tests (support/cpu_operators.py).
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aligned_states
import cpu_operators
import pytest
from engines import PATIENT, RANDOM, Answer, Engine, Job, check_same
from family_checkpoints import FAMILIES, build
from family_configs import VOCABULARY
from recording import count_reused, record_steps
from switchable_policies import AlternatingPolicy, ColdForAWhile
from v2_engines import V2Engines

from adaptive_spec import check_adapter
from adaptive_spec.adapters.vllm import capability
from adaptive_spec.adapters.vllm.recipe import kept_at_zero, state_bytes

pytestmark = pytest.mark.engine

KMAX = 4
HYBRIDS = ("qwen3_next_mtp", "falcon_h1")
BLOCK = {"qwen3_next_mtp": 288, "falcon_h1": 32}
"""Tokens of a block: under prefix caching a recurrent state has the size of one."""
TOO_FEW = {"falcon_h1": 30}
"""Blocks of a hybrid that its crowd does not fit into."""
ROOM_FOR_THREE = 34
"""Blocks that three requests of qwen3_next_mtp fit into until one needs a second block of KV."""
ON_V1 = tuple(name for name in FAMILIES if name != "dspark")
"""Families that model runner V1 runs."""
FIXED_DEPTH = ("dflash", "medusa", "step3p5")
SYNCHRONOUS = ("deepseek_mtp", "medusa")
"""Steered with synchronous scheduling only."""
NEVER_ACCEPTED = ("dflash", "eagle3", "gemma4")
"""Untrained drafters that nothing of is accepted: only steps with rejected drafts are shown."""
TIE = 2e-2
"""Difference of log-probability below which the gated delta rule's bfloat16 may choose either."""


class Served:
    """A family's engines, one at a time."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._engine: Engine | None = None
        self._key: object = None

    def engine(self, adaptive: dict[str, Any] | None = None, **options: Any) -> Engine:
        """The engine with these options; without `adaptive` it does not speculate."""
        key = repr((adaptive, sorted(options.items())))
        if key == self._key and self._engine is not None:
            return self._engine
        self.close()
        family = FAMILIES[self.name]
        small: dict[str, Any] = dict(max_model_len=192, max_num_seqs=8, skip_tokenizer_init=True)
        if self.name in HYBRIDS:
            # A block is as large as a recurrent state.
            small |= dict(num_gpu_blocks_override=None, enable_prefix_caching=False)
        if self.name == "step3p5":  # layers with a window have blocks of their own
            small["num_gpu_blocks_override"] = 22
        if self.name == "deepseek_mtp":  # on a CPU: prompts in one piece, blocks of 16 tokens
            small |= dict(max_num_batched_tokens=192, num_gpu_blocks_override=28)
        if adaptive is not None:
            small["speculative_config"] = family.speculation(self.folder, KMAX)
        self._engine = Engine(
            {"target": self.folder / "target"}, adaptive=adaptive, **(small | options)
        )
        self._key = key
        return self._engine

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = self._key = None


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def served(shelf: Any, checkpoints: Path, name: str) -> Iterator[Served]:
    shelf.clear()
    with pytest.MonkeyPatch.context() as patch:
        cpu_operators.apply(patch, FAMILIES[name].operators)
        family = Served(name, build(checkpoints, name))
        yield family
        family.close()


QUICK = ("falcon_h1",)
"""Families of `make test`; the others take minutes and run with the long tests. MTP and EAGLE-3 are
there with trained heads (test_trained_heads.py)."""


def with_marks(names: tuple[str, ...]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in names]


@pytest.fixture(scope="module", params=with_marks(ON_V1))
def family(request: pytest.FixtureRequest, shelf: Any, checkpoints: Path) -> Iterator[Served]:
    yield from served(shelf, checkpoints, request.param)


def crowd() -> list[Job]:
    """Arrivals over time, prompts in several chunks; some prompts repeat."""
    draw = random.Random(3)
    jobs = []
    for index in range(8):
        prompt = [draw.randrange(3, VOCABULARY) for _ in range(draw.randrange(3, 120))]
        options = {"max_tokens": draw.randrange(16, 40), "logprobs": 2}
        jobs.append(Job(f"r{index}", prompt, draw.randrange(25), options))
    jobs += [Job(f"again-{job.name}", job.prompt, 45, job.options) for job in jobs[:2]]
    return jobs


@pytest.fixture(scope="module")
def unspeculated(family: Served) -> dict[str, Answer]:
    return family.engine().run(crowd())


def different(answers: dict[str, Answer], expected: dict[str, Answer], tie: float) -> list[str]:
    """Requests that continue differently where the best two tokens are not as good as equal."""
    found = []
    for name, answer in answers.items():
        mine, theirs = answer.tokens[0], expected[name].tokens[0]
        if mine == theirs:
            continue
        pairs = zip(mine, theirs, strict=False)
        at = next((at for at, (one, other) in enumerate(pairs) if one != other), len(mine) - 1)
        best = sorted(expected[name].logprobs[0][at].values(), reverse=True)
        if best[0] - best[1] >= tie:
            found.append(f"{name} from token {at}: {best[0] - best[1]:.4f} apart")
    return found


SCHEDULING = pytest.mark.parametrize(
    "asynchronous",
    [pytest.param(False, id="sync"), pytest.param(True, id="async", marks=pytest.mark.long)],
)


@SCHEDULING
def test_tokens_are_those_without_speculation(
    family: Served, unspeculated: dict[str, Answer], asynchronous: bool
) -> None:
    if asynchronous and family.name in SYNCHRONOUS:
        pytest.skip("steered with synchronous scheduling only")
    few = {"num_gpu_blocks_override": TOO_FEW[family.name]} if family.name in TOO_FEW else {}
    engine = family.engine(RANDOM, asynchronous=asynchronous, **few)
    capability = engine.controller.capability
    assert capability.depth_follows == (family.name not in FIXED_DEPTH)
    record = record_steps(engine)
    answers = engine.run(crowd())
    tie = TIE if "gdn_float32" in FAMILIES[family.name].operators else 0.0
    assert different(answers, unspeculated, tie) == []
    outcomes = [outcome for _, _, outcome in record if outcome is not None]
    verified = {int(k) for outcome in outcomes for k in outcome.verified}
    assert 0 in verified
    assert len(verified) >= KMAX
    assert any(outcome.ragged for outcome in outcomes)
    accepted = sum(int(outcome.accepted.sum()) for outcome in outcomes)
    assert accepted > 0 or family.name in NEVER_ACCEPTED, "no draft was accepted"
    assert engine.preemptions > 0 or (family.name in HYBRIDS and not few)
    assert engine.controller.counters.failures == {}
    check_adapter(record, live_requests=len(engine.controller.slots))


@pytest.fixture(scope="module")
def v2(models: dict[str, Path], shelf: Any) -> Iterator[V2Engines]:
    shelf.clear()
    engines = V2Engines(models)
    yield engines
    engines.close()


@pytest.mark.parametrize(
    ("name", "depth_follows"),
    [
        pytest.param("deepseek_mtp", True, marks=pytest.mark.long),
        pytest.param("dspark", False, marks=pytest.mark.long),
        pytest.param("dflash", False, marks=pytest.mark.long),
        pytest.param("eagle3", True, marks=pytest.mark.long),
        pytest.param("falcon_h1", False, marks=pytest.mark.long),
        pytest.param("gemma4", True, marks=pytest.mark.long),
        pytest.param("mimo_mtp", True, marks=pytest.mark.long),
        pytest.param("qwen3_next_mtp", True, marks=pytest.mark.long),
        pytest.param("several_mtp_modules", False, marks=pytest.mark.long),
    ],
)
def test_tokens_on_model_runner_v2(
    v2: V2Engines, checkpoints: Path, name: str, depth_follows: bool
) -> None:
    folder = build(checkpoints, name)
    small: dict[str, Any] = dict(
        model=str(folder / "target"), max_model_len=160, max_num_seqs=6, skip_tokenizer_init=True
    )
    if name in HYBRIDS:
        small |= dict(num_gpu_blocks_override=None, enable_prefix_caching=False)
        v2.call(cpu_operators.keep, FAMILIES[name].operators)
    jobs = [
        Job(job.name, job.prompt[:60], job.arrives // 3, {"max_tokens": 14}) for job in crowd()[:5]
    ]
    expected = v2.run(jobs, **small)
    assert expected.runner == "vllm.v1.worker.cpu.model_runner"
    speculation = FAMILIES[name].speculation(folder, KMAX)
    if name == "dspark":  # vLLM's own trimming, without captured graphs refused at start
        speculation["enable_adaptive_verification"] = True
    adaptive = RANDOM | {"take_over": True}
    seen = v2.run(jobs, FAMILIES[name].method, adaptive=adaptive, speculation=speculation, **small)
    check_same(seen.answers, expected.answers)
    assert seen.capability[1:] == (depth_follows, "")
    assert set(seen.verified) >= set(range(KMAX))
    assert seen.ragged_steps > 0
    assert seen.failures == {}
    options = dict(adaptive=adaptive, speculation=speculation, **small)
    cold = v2.run(jobs, FAMILIES[name].method, policy=ColdForAWhile(KMAX, 4, 8), **options)
    check_same(cold.answers, expected.answers)
    assert {0, KMAX} == set(cold.depths)
    assert cold.failures == {}
    cold = v2.run(jobs, FAMILIES[name].method, policy=ColdForAWhile(KMAX, 1, 1 << 30), **options)
    assert cold.drafter_passes == 0


@pytest.mark.parametrize("family", with_marks(HYBRIDS), indirect=True)
def test_recurrent_state_survives_steps_without_drafts(
    family: Served, unspeculated: dict[str, Answer]
) -> None:
    """And with vLLM's fault of before 0.32 put back, it does not: the test would see it."""
    engine = family.engine(RANDOM)
    engine.controller.policy = AlternatingPolicy()
    tie = TIE if "gdn_float32" in FAMILIES[family.name].operators else 0.0
    assert different(engine.run(crowd()), unspeculated, tie) == []
    with pytest.MonkeyPatch.context() as patch:
        cpu_operators.apply(patch, ["stale_state"])
        assert different(engine.run(crowd()), unspeculated, tie) != []


def across_blocks(block: int) -> list[Job]:
    """Decoding crosses a block's end while K changes; later prompts begin with a cached block."""
    draw = random.Random(4)
    jobs = []
    lengths = (2 * block + 8, block + 30, *range(block - 24, block, 3), 2 * block - 6)
    for index, length in enumerate(lengths):
        prompt = [draw.randrange(3, VOCABULARY) for _ in range(length)]
        options = {"max_tokens": 24 + 2 * index, "logprobs": 2}
        jobs.append(Job(f"r{index}", prompt, draw.randrange(8), options))
    jobs += [Job(f"again-{job.name}", [*job.prompt, 5, 6], 70, job.options) for job in jobs]
    return jobs


@pytest.mark.long
@pytest.mark.parametrize("family", HYBRIDS, indirect=True)
def test_recurrent_state_survives_prefix_caching(family: Served) -> None:
    jobs, length = (
        across_blocks(BLOCK[family.name]),
        {"max_model_len": 2 * BLOCK[family.name] + 100},
    )
    expected = family.engine(**length).run(jobs)
    with pytest.MonkeyPatch.context() as patch:
        copied = aligned_states.mamba_align(patch)
        options = length | {"enable_prefix_caching": True, "block_size": 32}
        engine = family.engine(RANDOM, **options)
        assert engine.scheduler.vllm_config.cache_config.mamba_block_size == BLOCK[family.name]
        reused = count_reused(engine)
        answers = engine.run(jobs)
        family.close()
    tie = TIE if "gdn_float32" in FAMILIES[family.name].operators else 0.0
    assert different(answers, expected, tie) == []
    assert sum(reused) >= BLOCK[family.name], "no prefix was reused"
    assert max(copied) > 0, "no state was taken from the middle of accepted drafts"


@pytest.mark.parametrize("family", with_marks(HYBRIDS), indirect=True)
def test_the_size_of_recurrent_states_is_the_engines(family: Served) -> None:
    """`doctor --recipe` has no engine: it asks vLLM's classes."""
    from vllm.v1.kv_cache_interface import MambaSpec

    scheduler = family.engine().scheduler
    held = sum(
        len(group.layer_names) * group.kv_cache_spec.state_content_size_bytes
        for group in scheduler.kv_cache_config.kv_cache_groups
        if isinstance(group.kv_cache_spec, MambaSpec)
    )
    assert held > 0
    assert state_bytes(scheduler.vllm_config) == held


@pytest.mark.long
@pytest.mark.parametrize("family", ON_V1, indirect=True)
def test_off_keeps_what_doctor_says(family: Served) -> None:
    """vllm#49548, #51575: a configured drafter costs this at K = 0, too. Prints a row (`-s`)."""
    options: dict[str, Any] = {"enable_prefix_caching": True, "num_gpu_blocks_override": None}
    jobs = repeated_prompts()
    if family.name in HYBRIDS:
        block = BLOCK[family.name]
        jobs = across_blocks(block)
        options |= {"max_model_len": 2 * block + 100, "block_size": 32}
    off = {"policy": "off", "fail_open": PATIENT}
    found = {}
    for arm, adaptive in {"never": None, "off": off}.items():
        with pytest.MonkeyPatch.context() as patch:
            if family.name in HYBRIDS:
                aligned_states.mamba_align(patch)
            engine = family.engine(adaptive, **options)
            reused = count_reused(engine)
            engine.run(jobs)
            config = engine.scheduler.vllm_config
            blocks = engine.scheduler.kv_cache_manager.block_pool.num_gpu_blocks
            found[arm] = sum(reused), blocks, cpu_of_a_step(engine)
            family.close()
    (never_reused, never_blocks, never_cpu), (off_reused, off_blocks, off_cpu) = found.values()
    # The operators that the tests mend for a CPU take another time than a GPU's.
    time_ratio = "" if FAMILIES[family.name].operators else f"{off_cpu / never_cpu:.2f}"
    kv = f"{off_blocks / never_blocks:.2f}"
    print(f"\n| {family.name} | {never_reused} | {off_reused} | {kv} | {time_ratio} |")
    said = " ".join(kept_at_zero(config))
    assert off_blocks <= never_blocks
    if "last cached block" in said:
        assert off_reused < never_reused
    else:
        assert off_reused == never_reused
    if family.name in HYBRIDS:
        kmax = config.speculative_config.num_speculative_tokens
        assert off_blocks < never_blocks
        assert f"{1 + kmax} recurrent states" in said


def repeated_prompts() -> list[Job]:
    """Three prompts of four blocks and a rest, each three times."""
    draw = random.Random(5)
    texts = [[draw.randrange(3, VOCABULARY) for _ in range(150)] for _ in range(3)]
    return [
        Job(f"r{n}-{turn}", text, 40 * turn, {"max_tokens": 24})
        for turn in range(3)
        for n, text in enumerate(texts)
    ]


def cpu_of_a_step(engine: Engine) -> float:
    """CPU time (s) of the model runner for a step that decodes, the least of six runs."""
    spent = [0.0]

    def timed(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            result = function(*arguments, **named)
            spent[0] += time.process_time() - began
            return result

        return call

    for name in ("execute_model", "sample_tokens"):
        setattr(engine.runner, name, timed(getattr(engine.runner, name)))
    found = []
    for run in range(6):
        before, spent[0] = engine.steps, 0.0
        engine.run(
            [Job(f"s{run}-{n}", [5 + run + 9 * n] * 20, 0, {"max_tokens": 60}) for n in range(4)]
        )
        found.append(spent[0] / (engine.steps - before))
    return min(found)


@pytest.mark.long  # falcon_h1 is preempted in the test of tokens
@pytest.mark.parametrize("family", ["qwen3_next_mtp"], indirect=True)
@SCHEDULING
def test_recurrent_state_survives_preemption(family: Served, asynchronous: bool) -> None:
    """A request needs another block, and may be preempted, only past as many tokens as fill one."""
    block = BLOCK[family.name]
    jobs = [job for job in across_blocks(block) if len(job.prompt) < block][:6]
    length = {"max_model_len": block + 60}
    expected = family.engine(**length).run(jobs)
    engine = family.engine(
        RANDOM, asynchronous=asynchronous, num_gpu_blocks_override=ROOM_FOR_THREE, **length
    )
    record = record_steps(engine)
    answers = engine.run(jobs)
    assert different(answers, expected, TIE) == []
    assert engine.preemptions > 0
    verified = {int(k) for _, _, outcome in record if outcome for k in outcome.verified}
    assert verified >= {0, 1, 2}
    assert engine.controller.counters.failures == {}
    check_adapter(record, live_requests=len(engine.controller.slots))


@pytest.mark.long
@pytest.mark.parametrize("family", ["deepseek_mtp"], indirect=True)
def test_mla_is_only_watched_where_mixed_k_reads_stale_kv(
    family: Served, unspeculated: dict[str, Answer]
) -> None:
    """And steered there, its tokens are wrong: when vLLM mends this, the test says so."""
    with pytest.MonkeyPatch.context() as patch:
        cpu_operators.apply(patch, ["mla_uniform"])
        for scheduling in (False, True):
            engine = family.engine(RANDOM, asynchronous=scheduling)
            record = record_steps(engine)
            assert different(engine.run(crowd()), unspeculated, 0.0) == []
            assert all(plan.acts is not scheduling for _, plan, _ in record)
        family.close()
        patch.setattr(capability, "mixed_lengths_refusal", lambda config: "")
        engine = family.engine(RANDOM, asynchronous=True)
        assert different(engine.run(crowd()), unspeculated, 0.0) != []
        family.close()
