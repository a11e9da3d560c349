"""The worker of ``ADAPTIVE_NGRAM``: SGLang's NGRAM worker, with a width that changes.

The corpus always answers with the launch width; a step that verifies K drafts keeps the first K + 1
nodes. Nodes come with each parent before its children, so a prefix of them is a tree of its own.
Buffers exist once per width, made by SGLang's own function; so do an attention backend and, where
SGLang captures graphs, the graphs, as SGLang makes them for each K of EAGLE.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from adaptive_spec.adapters.sglang.capability import unsupported_here
from adaptive_spec.adapters.sglang.housekeeping import OUR_SOURCE
from adaptive_spec.adapters.sglang.outcome import FOUND
from adaptive_spec.adapters.sglang.steered_params import FixedSchedule, SteeredParams
from adaptive_spec.step import IntArray

_LOG = logging.getLogger("sglang.adaptive_spec")
_BUFFERS = (
    "draft_tokens",
    "draft_tokens_batch",
    "positions",
    "positions_batch",
    "retrieve_indexes",
    "retrieve_indexes_batch",
    "retrieve_next_sibling",
    "retrieve_next_sibling_batch",
    "retrieve_next_token",
    "retrieve_next_token_batch",
    "tree_mask",
    "tree_mask_batch",
)


class ChangingWidth:
    """Mixed in before SGLang's `NGRAMWorker`. A width is K + 1 nodes.

    Attributes:
        steered_params: who is asked for K; None where it may not change.
        one_width: why no other width has graphs; empty where they have.
    """

    steered_params: SteeredParams | None = None
    one_width: str = ""
    _found: IntArray | None = None
    """[B] drafts that were found for the batch about to run; the others are filler."""

    def alloc_memory_pool(self, **kwargs: Any) -> None:
        """Allocate SGLang's own buffers and those of other widths; keep one width if these fail."""
        worker: Any = self
        engine: Any = super()
        engine.alloc_memory_pool(**kwargs)
        self._launch_width = int(worker.draft_token_num)
        self._width = self._launch_width
        self._buffers: dict[int, dict[str, Any]] = {self._launch_width: _buffers_of(worker)}
        if unsupported_here(worker.server_args):
            return
        try:
            self._make_widths(worker)
        except Exception as error:
            self._buffers = {self._launch_width: self._buffers[self._launch_width]}
            _LOG.error("adaptive_spec: no NGRAM buffers: %s: %s", type(error).__name__, error)
        finally:
            worker.draft_token_num = self._launch_width
            self._restore(self._launch_width)

    def _make_widths(self, worker: Any) -> None:
        from sglang.srt.speculative.adaptive_spec_params import resolve_candidate_steps_from_config

        path = getattr(worker.server_args, "speculative_adaptive_config", None)
        own = FixedSchedule(
            self._launch_width - 1, resolve_candidate_steps_from_config(cfg_path=path)
        )
        for k in own.candidate_steps[:-1]:
            worker.draft_token_num = k + 1
            worker._init_preallocated_tensors()
            self._buffers[k + 1] = _buffers_of(worker)
        self.steered_params = SteeredParams(own)

    def init_cuda_graphs(self) -> None:
        """Make backend and graphs of the other widths, once SGLang has captured its own."""
        worker: Any = self
        engine: Any = super()
        engine.init_cuda_graphs()
        runner: Any = worker.model_runner
        self._runs = {self._launch_width: (runner.attn_backend, runner.decode_cuda_graph_runner)}
        if self.steered_params is None:
            return
        from sglang.srt.runtime_context import get_context

        try:
            for width in self._buffers.keys() - self._runs.keys():
                get_context().override(OUR_SOURCE, speculative_num_draft_tokens=width)
                self._runs[width] = _run_of(runner, width)
        except Exception as error:
            self.one_width = f"{type(error).__name__}: {error}"
            _LOG.error("adaptive_spec: no NGRAM graphs of another width: %s", self.one_width)
        finally:
            get_context().override(OUR_SOURCE, speculative_num_draft_tokens=self._launch_width)

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the width that was decided, then run the step."""
        engine: Any = super()
        if self.steered_params is not None and batch.forward_mode.is_decode():
            width = self.steered_params.get_steps_for_batch(len(batch.reqs)) + 1
            if width != self._width and width in self._buffers:
                self._use(width)
        result = engine.forward_batch_generation(batch, *args, **kwargs)
        if self.steered_params is not None:
            found, self._found = self._found, None
            if found is not None:
                setattr(result, FOUND, found)
            self.steered_params.launched(batch)
        return result

    def _prepare_draft_tokens(self, batch: Any) -> tuple[Any, Any]:
        worker: Any = self
        engine: Any = super()
        width, launched = self._width, self._launch_width
        worker.draft_token_num = launched
        try:
            tokens, mask = engine._prepare_draft_tokens(batch)
        finally:
            worker.draft_token_num = width
        self._found = found_drafts(tokens, mask, len(batch.reqs), launched)
        if width == launched:
            return tokens, mask
        return first_nodes(tokens, mask, len(batch.reqs), launched, width)

    def _use(self, width: int) -> None:
        """Change the width; after a failure, keep the earlier width for good."""
        before = self._width
        try:
            from sglang.srt.runtime_context import get_context

            # First what is SGLang's: if it refuses, nothing has changed yet.
            get_context().override(OUR_SOURCE, speculative_num_draft_tokens=width)
            self._set_width(width)
        except Exception as error:
            self._set_width(before)
            self._buffers = {before: self._buffers[before]}
            _LOG.error(
                "adaptive_spec: NGRAM stays at K = %d (%s: %s)",
                before - 1,
                type(error).__name__,
                error,
            )

    def _set_width(self, width: int) -> None:
        worker: Any = self
        runner: Any = worker.model_runner
        runner.attn_backend, runner.decode_cuda_graph_runner = self._runs[width]
        self._restore(width)
        self._width = width
        worker.draft_token_num = worker.speculative_num_draft_tokens = width

    def _restore(self, width: int) -> None:
        for name, value in self._buffers[width].items():
            setattr(self, name, value)


def first_nodes(tokens: Any, mask: Any, batch_size: int, nodes: int, width: int) -> tuple[Any, Any]:
    """Return the first `width` of `nodes` nodes of each tree.

    Args:
        tokens: [B * nodes] node tokens.
        mask: [B * nodes * nodes] which node sees which.
        batch_size: B.
        nodes: nodes of each tree.
        width: nodes to keep.
    """
    kept = np.asarray(tokens).reshape(batch_size, nodes)[:, :width]
    seen = np.asarray(mask).reshape(batch_size, nodes, nodes)[:, :width, :width]
    return np.ascontiguousarray(kept).reshape(-1), np.ascontiguousarray(seen).reshape(-1)


def found_drafts(tokens: Any, mask: Any, batch_size: int, nodes: int) -> IntArray:
    """Return the drafts [B] that were found; SGLang fills trees up with token 0 below the root.

    Args:
        tokens: [B * nodes] node tokens.
        mask: [B * nodes * nodes] which node sees which.
        batch_size: B.
        nodes: nodes of each tree.
    """
    token = np.asarray(tokens).reshape(batch_size, nodes)
    sees = np.asarray(mask).reshape(batch_size, nodes, nodes).astype(bool)
    filler = (token == 0) & (sees.sum(axis=2) == 2)
    last = nodes - np.argmin(filler[:, ::-1], axis=1)  # the root, which sees itself only, is none
    found: IntArray = last - 1
    return found


def _run_of(runner: Any, width: int) -> tuple[Any, Any]:
    """Return an attention backend and a graph runner of a width; SGLang must have been told it.

    Args:
        runner: SGLang's ModelRunner, with those of the launch.
        width: K + 1.
    """
    before = runner.init_new_workspace
    try:
        backend = runner._get_attention_backend(init_new_workspace=True)
    finally:
        runner.init_new_workspace = before
    graphs = runner.decode_cuda_graph_runner
    if not hasattr(graphs, "captured_req_width"):  # nothing is captured for a width
        return backend, graphs
    return backend, type(graphs)(runner, attn_backend=backend, speculative_num_draft_tokens=width)


@functools.cache
def adaptive_worker_class() -> Any:
    """Return SGLang's NGRAM worker with `ChangingWidth` before it."""
    from sglang.srt.speculative.ngram_worker import NGRAMWorker

    return type("AdaptiveNgramWorker", (ChangingWidth, NGRAMWorker), {"__module__": __name__})


def _buffers_of(worker: Any) -> dict[str, Any]:
    return {name: getattr(worker, name) for name in _BUFFERS}
