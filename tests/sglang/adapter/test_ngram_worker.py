"""NGRAM's width: which nodes stay, and what happens if SGLang refuses another one."""

import asyncio
import sys
import types
from typing import Any

import numpy as np
import pytest

from adaptive_spec.adapters.sglang import ngram_worker
from adaptive_spec.adapters.sglang.capability import detect
from adaptive_spec.adapters.sglang.ngram_algorithm import let_corpora_know_the_name, trie_problem
from adaptive_spec.adapters.sglang.ngram_worker import ChangingWidth, first_nodes, found_drafts


def test_a_narrower_ngram_tree_keeps_the_first_nodes() -> None:
    rng = np.random.default_rng(0)
    tokens, mask = rng.integers(0, 99, (3, 6)), rng.random((3, 6, 6)) < 0.5
    kept, seen = first_nodes(tokens.reshape(-1), mask.reshape(-1), 3, 6, 2)
    assert kept.tolist() == tokens[:, :2].reshape(-1).tolist()
    assert seen.reshape(3, 2, 2).tolist() == mask[:, :2, :2].tolist()
    assert kept.flags.c_contiguous
    assert seen.flags.c_contiguous


def chain(*tokens: int, nodes: int = 5) -> tuple[list[int], list[int]]:
    """Tokens and mask of a root, a chain below it, and SGLang's filler."""
    mask = np.eye(nodes, dtype=int)
    mask[:, 0] = 1
    for node in range(1 + len(tokens)):
        mask[node, : node + 1] = 1
    return [9, *tokens, *[0] * (nodes - 1 - len(tokens))], mask.reshape(-1).tolist()


def test_filler_of_a_tree_is_no_found_draft() -> None:
    trees = [chain(), chain(4), chain(4, 0), chain(4, 7, 8, 0)]
    tokens = np.array([token for tree in trees for token in tree[0]])
    mask = np.array([seen for tree in trees for seen in tree[1]])
    assert found_drafts(tokens, mask, len(trees), 5).tolist() == [0, 1, 2, 4]


class Graphs:
    """Captured graphs of a width."""

    def __init__(
        self, runner: Any, *, attn_backend: Any, speculative_num_draft_tokens: int
    ) -> None:
        assert attn_backend == speculative_num_draft_tokens, "captured with another's backend"
        self.width = self.captured_req_width = speculative_num_draft_tokens
        runner.captured.append(self.width)


class ModelRunner:
    """Has a backend, which is made for the width that SGLang was told last, and graphs."""

    init_new_workspace = False

    def __init__(self, told: list[int], *, graphs: bool) -> None:
        self.told = told
        self.captured: list[int] = []
        self.attn_backend = 4
        self.decode_cuda_graph_runner: Any = None
        if graphs:
            launched = Graphs(self, attn_backend=4, speculative_num_draft_tokens=4)
            self.decode_cuda_graph_runner = launched

    def _get_attention_backend(self, init_new_workspace: bool) -> int:
        self.init_new_workspace = init_new_workspace
        return self.told[-1]


class Worker:
    """What SGLang's worker has of what is used."""

    draft_token_num = speculative_num_draft_tokens = 4

    def __init__(self, told: list[int] | None = None, *, graphs: bool = True) -> None:
        self.server_args = types.SimpleNamespace(speculative_adaptive_config=None)
        self.model_runner: Any = ModelRunner([] if told is None else told, graphs=graphs)

    def alloc_memory_pool(self) -> None:
        self._init_preallocated_tensors()

    def init_cuda_graphs(self) -> None: ...

    def _init_preallocated_tensors(self) -> None:
        for name in ngram_worker._BUFFERS:
            setattr(self, name, (name, self.draft_token_num))

    def forward_batch_generation(self, batch: Any) -> tuple[int, Any]:
        width, runner = self.draft_token_num, self.model_runner
        assert all(getattr(self, name) == (name, width) for name in ngram_worker._BUFFERS)
        assert runner.attn_backend == width
        assert not runner.captured or runner.decode_cuda_graph_runner.width == width
        return width, batch


class Adaptive(ChangingWidth, Worker):
    pass


class Decoding:
    reqs = (None, None)
    forward_mode = types.SimpleNamespace(is_decode=lambda: True)


class Told(list[int]):
    """Widths that SGLang was told."""

    refused = 0
    """A width that it does not take."""


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Where SGLang's configuration and its candidates are asked for."""
    told = Told()

    class Context:
        def override(self, source: str, speculative_num_draft_tokens: int) -> None:
            if speculative_num_draft_tokens == told.refused:
                raise RuntimeError("refused")
            told.append(speculative_num_draft_tokens)

    context = types.ModuleType("sglang.srt.runtime_context")
    vars(context)["get_context"] = Context
    params = types.ModuleType("sglang.srt.speculative.adaptive_spec_params")
    vars(params)["resolve_candidate_steps_from_config"] = lambda cfg_path: [0, 1, 3, 7]
    monkeypatch.setitem(sys.modules, context.__name__, context)
    monkeypatch.setitem(sys.modules, params.__name__, params)
    return told


class Decides:
    watching, ran_own_k, k = False, True, 3

    def decided_k(self, batch_size: int) -> int | None:
        return self.k

    def think(self, batch: Any) -> None: ...


@pytest.mark.parametrize("graphs", [True, False])
def test_every_width_has_its_buffers_and_graphs_and_a_refused_one_leaves_the_last(
    overrides: Told, caplog: pytest.LogCaptureFixture, graphs: bool
) -> None:
    worker: Any = Adaptive(overrides, graphs=graphs)
    worker.alloc_memory_pool()
    assert worker.steered_params.candidate_steps == [0, 1, 3]
    worker.init_cuda_graphs()
    assert sorted(worker.model_runner.captured) == ([1, 2, 4] if graphs else [])
    assert sorted(overrides[:-1]) == [1, 2], "the launch's own backend is kept"
    assert overrides[-1] == 4
    assert not worker.model_runner.init_new_workspace
    assert not worker.one_width
    del overrides[:]
    overrides.refused = 2
    decides = Decides()
    worker.steered_params.driver = decides
    batch = Decoding()
    widths = []
    for decides.k in (3, 0, 3, 0, 1, 3, 0):
        widths.append(worker.forward_batch_generation(batch)[0])
    assert widths == [4, 1, 4, 1, 1, 1, 1]
    assert overrides == [1, 4, 1]
    assert [line for line in caplog.messages if "NGRAM stays at K = 0" in line]


def test_where_graphs_of_another_width_are_refused_ngram_is_only_watched(
    overrides: Told, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker: Any = Adaptive(overrides)
    worker.alloc_memory_pool()

    def out_of_memory(self: ModelRunner, init_new_workspace: bool) -> int:
        raise MemoryError("planted")

    monkeypatch.setattr(ModelRunner, "_get_attention_backend", out_of_memory)
    worker.init_cuda_graphs()
    assert overrides[-1] == 4, "SGLang goes on with the width of the launch"
    assert worker.forward_batch_generation(Decoding())[0] == 4
    assert "no NGRAM graphs of another width: MemoryError: planted" in caplog.text
    scheduler = types.SimpleNamespace(
        spec_algorithm=types.SimpleNamespace(name="ADAPTIVE_NGRAM", is_ngram=lambda: True),
        server_args=types.SimpleNamespace(),
        enable_overlap=False,
        draft_worker=worker,
    )
    support = detect(scheduler, worker.steered_params)
    assert support.shadow == ("NGRAM with graphs of one width (MemoryError: planted)",)


def test_without_buffers_of_other_widths_ngram_runs_as_launched(
    monkeypatch: pytest.MonkeyPatch, overrides: Told, caplog: pytest.LogCaptureFixture
) -> None:
    own = Worker._init_preallocated_tensors

    def fails_when_narrow(self: Worker) -> None:
        if self.draft_token_num < 4:
            raise MemoryError("planted")
        own(self)

    monkeypatch.setattr(Worker, "_init_preallocated_tensors", fails_when_narrow)
    worker: Any = Adaptive()
    worker.alloc_memory_pool()
    assert worker.steered_params is None
    assert worker.forward_batch_generation(Decoding())[0] == 4
    assert "no NGRAM buffers: MemoryError" in caplog.text


def ngram_arguments(**changes: int) -> Any:
    sizes = {"max_trie_depth": 18, "capacity": 10_000, "min_bfs_breadth": 1, "max_bfs_breadth": 1}
    named = {f"speculative_ngram_{name}": value for name, value in (sizes | changes).items()}
    return types.SimpleNamespace(**named)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"capacity": 18}, "--speculative-ngram-capacity 18 holds no path"),
        ({"max_trie_depth": 1}, "--speculative-ngram-max-trie-depth 1 is below 2"),
        ({"min_bfs_breadth": 3}, "--speculative-ngram-min-bfs-breadth 3 must be"),
        ({"capacity": 19}, ""),
        ({}, ""),
    ],
)
def test_a_trie_that_sglang_cannot_hold_is_refused_in_one_line(
    changes: dict[str, int], named: str
) -> None:
    found = trie_problem(ngram_arguments(**changes))
    assert found.startswith(named)
    assert bool(found) is bool(named)
    assert "\n" not in found


@pytest.mark.engine
@pytest.mark.every_version
@pytest.mark.parametrize("algorithm", ["ADAPTIVE_NGRAM", "EAGLE"])
def test_external_corpora_are_reached_under_our_name(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """sglang#35102, with SGLang's own methods; others still hear that NGRAM is off."""
    module = pytest.importorskip("sglang.srt.managers.tokenizer_control_mixin")
    settings = types.SimpleNamespace(speculative_algorithm=algorithm, other=5)
    monkeypatch.setattr(module, "get_spec", lambda: settings)
    let_corpora_know_the_name()
    let_corpora_know_the_name()  # once is enough
    assert module.get_spec().other == 5
    asked = []

    async def answered(request: Any) -> list[Any]:
        asked.append(type(request).__name__)
        return [types.SimpleNamespace(success=True, message="", corpus_token_counts={"a": 3})]

    server = types.SimpleNamespace(
        auto_create_handle_loop=lambda: None,
        list_external_corpora_communicator=answered,
        remove_external_corpus_communicator=answered,
    )
    mixin = module.TokenizerControlMixin
    listed = asyncio.run(mixin.list_external_corpora(server))
    removed = asyncio.run(mixin.remove_external_corpus(server, "a"))
    assert listed.success is removed.success is (algorithm == "ADAPTIVE_NGRAM")
    assert bool(asked) is listed.success
