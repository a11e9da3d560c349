"""Other features of vLLM beside speculation: pauses, new weights, LoRA, what vLLM refuses."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cpu_operators
import pytest
from engines import RANDOM, Job, check_same
from scenarios import json_jobs, prompts


class Seconds:
    """Step durations a policy was told."""

    def __init__(self, engine: Any) -> None:
        self.seen: list[float] = []
        controller = engine.controller
        self._original = controller.observe

        def observe(outcome: Any) -> None:
            self.seen.append(outcome.seconds)
            self._original(outcome)

        controller.observe = observe
        self._controller = controller

    def stop(self) -> None:
        self._controller.observe = self._original


@pytest.mark.engine
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_steps_across_a_pause_give_no_time_sample(
    shelf: Any, reference: dict[str, Any], asynchronous: bool
) -> None:
    from vllm.v1.core.sched.interface import PauseState

    engine = shelf.get("draft_model", adaptive=RANDOM, asynchronous=asynchronous)
    watched = Seconds(engine)

    def pause(step: int) -> None:
        if step == 12:
            engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        if step == 13:
            engine.scheduler.set_pause_state(PauseState.UNPAUSED)

    answers = engine.run(with_logprobs(), pause)
    watched.stop()
    lost = sum(map(math.isnan, watched.seen))
    assert 1 <= lost <= 3, watched.seen
    check_same(answers, reference["with_logprobs"])
    assert engine.controller.counters.failures.keys() <= {"plan took"}


def with_logprobs() -> list[Job]:
    from scenarios import SCENARIOS

    jobs: list[Job] = SCENARIOS["with_logprobs"]()
    return jobs


@pytest.mark.engine
def test_a_pause_lets_no_draft_past_the_grammar(shelf: Any) -> None:
    """vLLM alone answers two thirds of these wrongly: it verifies drafts its grammar never saw."""
    from vllm.v1.core.sched.interface import PauseState

    jobs = json_jobs(10, seed=71)
    expected = shelf.get(max_num_batched_tokens=512, num_gpu_blocks_override=160).run(jobs)
    engine = shelf.get(
        "draft_model",
        adaptive={"policy": "static", "options": {"k": 4}},
        asynchronous=True,
        num_gpu_blocks_override=160,
    )

    def pause(step: int) -> None:
        if step % 5 == 0:
            engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
        elif step % 5 == 2:
            engine.scheduler.set_pause_state(PauseState.UNPAUSED)

    check_same(engine.run(jobs, pause), expected)
    assert engine.controller.status()["accepted_tokens"] > 20


@pytest.mark.engine
@pytest.mark.parametrize("door", ["version", "reload", "transfer"])
def test_new_weights_make_the_policy_start_over(
    shelf: Any, reference: dict[str, Any], door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = shelf.get("draft_model", adaptive=RANDOM, asynchronous=False)
    before = engine.controller.policy
    engine.core.collective_rpc("synchronize_device")
    assert engine.controller.policy is before
    if door == "version":
        engine.core.set_weight_version("second")
        assert engine.core.get_weight_version() == "second"
    elif door == "reload":  # as after sleep level 2
        engine.core.collective_rpc("reload_weights")
    else:  # a trainer's, whose workers no CPU has
        monkeypatch.setattr(engine.core.model_executor, "collective_rpc", lambda *_: [None])
        engine.core.collective_rpc(method="finish_weight_update")
        monkeypatch.undo()
    assert engine.controller.policy is not before
    assert engine.controller.policy.name == before.name
    answers = engine.run(with_logprobs())
    check_same(answers, reference["with_logprobs"])


@pytest.mark.engine
def test_when_the_engine_ends_vllms_classes_are_its_own_again(shelf: Any) -> None:
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    shelf.get("draft_model", adaptive=RANDOM, asynchronous=False)
    assert hasattr(EngineCore, "adaptive_spec_control")
    shelf.clear()
    assert not hasattr(EngineCore, "adaptive_spec_control")
    for owner, name in (
        (EngineCore, "set_weight_version"),
        (EngineCore, "collective_rpc"),
        (GPUModelRunner, "propose_draft_token_ids"),
    ):
        assert getattr(owner, name).__module__.startswith("vllm.")
        assert not hasattr(getattr(owner, name), "__wrapped__")


LORA: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 8}
TEXTS = prompts(5, 51)


@pytest.fixture(scope="module")
def loras(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """No adapter, and two of which each changes the text."""
    from vllm.lora.request import LoRARequest

    folder = tmp_path_factory.mktemp("adapters")
    return [None] + [
        LoRARequest(name, number, str(adapter(models["target"], folder / name, number)))
        for number, name in enumerate(("first", "second"), start=1)
    ]


@pytest.fixture
def masked_operators(shelf: Any) -> Iterator[None]:
    """vLLM's LoRA operators for engines that start meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        cpu_operators.apply(patch, ["lora_of_nobody"])
        yield
    shelf.clear()


def mixed(loras: Sequence[Any]) -> list[Job]:
    """Each text with each adapter, from its prompt on in the same steps."""
    return [
        Job(f"{place}-{number}", text, number, {"max_tokens": 40}, lora=lora)
        for number, text in enumerate(TEXTS)
        for place, lora in enumerate(loras)
    ]


@pytest.mark.engine
@pytest.mark.long  # vLLM's LoRA kernels are compiled first
@pytest.mark.usefixtures("masked_operators")
def test_with_lora_tokens_are_those_without_speculation(shelf: Any, loras: list[Any]) -> None:
    plain = shelf.get().run(mixed(loras[:1]))
    expected = shelf.get(**LORA).run(mixed(loras))
    assert len({expected[f"{place}-0"].tokens[0] for place in range(3)}) == 3, "LoRA had no effect"
    # Who shares the batch decides nothing: else K would, which decides who does.
    check_same({name: expected[name] for name in plain}, plain)
    for method, asynchronous in (("ngram", False), ("draft_model", False), ("draft_model", True)):
        engine = shelf.get(method, adaptive=RANDOM, asynchronous=asynchronous, **LORA)
        check_same(engine.run(mixed(loras)), expected)
        assert engine.controller.counters.verified > 0
        assert engine.controller.counters.failures.keys() <= {"plan took"}


def adapter(target: Path, folder: Path, seed: int) -> Path:
    """A LoRA adapter of random numbers for the bench target."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((target / "config.json").read_text())
    hidden, rank = config["hidden_size"], 8
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        place = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        heads = config["num_attention_heads"] * (
            config.get("head_dim") or hidden // config["num_attention_heads"]
        )
        weights[f"{place}.lora_A.weight"] = 0.2 * torch.randn(rank, heads, generator=random)
        weights[f"{place}.lora_B.weight"] = 0.2 * torch.randn(hidden, rank, generator=random)
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    settings = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rank,
        "target_modules": ["o_proj"],
        "bias": "none",
        "base_model_name_or_path": str(target),
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder
