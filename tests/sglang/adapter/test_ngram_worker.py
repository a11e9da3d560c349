"""NGRAM's width: which nodes stay, and what happens if SGLang refuses another one."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from adaptive_spec.adapters.sglang import ngram_worker
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


class Worker:
    """What SGLang's worker has of what is used."""

    draft_token_num = speculative_num_draft_tokens = 4

    def __init__(self) -> None:
        self.server_args = types.SimpleNamespace(speculative_adaptive_config=None)
        self.model_runner = types.SimpleNamespace(attn_backend=object())

    def alloc_memory_pool(self) -> None:
        self._init_preallocated_tensors()

    def _init_preallocated_tensors(self) -> None:
        for name in ngram_worker._BUFFERS:
            setattr(self, name, (name, self.draft_token_num))

    def forward_batch_generation(self, batch: Any) -> tuple[int, Any]:
        width = self.draft_token_num
        assert all(getattr(self, name) == (name, width) for name in ngram_worker._BUFFERS)
        return width, batch


class Adaptive(ChangingWidth, Worker):
    pass


class Decoding:
    reqs = (None, None)
    forward_mode = types.SimpleNamespace(is_decode=lambda: True)


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths that SGLang was told; it refuses 2."""
    told: list[int] = []

    class Context:
        def override(self, source: str, speculative_num_draft_tokens: int) -> None:
            if speculative_num_draft_tokens == 2:
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


def test_every_width_has_its_buffers_and_a_refused_one_leaves_the_last(
    overrides: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    worker: Any = Adaptive()
    worker.alloc_memory_pool()
    assert worker.steered_params.candidate_steps == [0, 1, 3]
    decides = Decides()
    worker.steered_params.driver = decides
    batch = Decoding()
    widths = []
    for decides.k in (3, 0, 3, 0, 1, 3, 0):
        widths.append(worker.forward_batch_generation(batch)[0])
    assert widths == [4, 1, 4, 1, 1, 1, 1]
    assert overrides == [1, 4, 1]
    assert [line for line in caplog.messages if "NGRAM stays at K = 0" in line]


def test_without_buffers_of_other_widths_ngram_runs_as_launched(
    monkeypatch: pytest.MonkeyPatch, overrides: list[int], caplog: pytest.LogCaptureFixture
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
