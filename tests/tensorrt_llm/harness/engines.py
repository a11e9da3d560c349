"""Model engines for the executor's loop, without a model.

`OneEngine` drafts inside its forward pass, as EAGLE3 does. What the device holds is kept apart from
the host's requests, as under the overlap scheduler. `HostEngine` verifies what a `Drafter` has put
on the requests. Both keep the truth about every draft of every forward pass.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
from types import SimpleNamespace
from typing import Any

from harness.target import VOCABULARY, greedy, next_token
from harness.violations import GraphShapeError, StaleDraftsError

MAX_SEQUENCE = 512


class Engine:
    """What both have: the log, planned failures, checks that ranks agree.

    Attributes:
        log: per forward pass, (decoding requests, K, replayed or eager; None with prompts).
        truth: per forward pass, request -> (drafts that are no filler, accepted drafts).
        fail_at: forward passes that raise.
        violations: what no executor may swallow.
    """

    enable_attention_dp = False
    is_warmup = False
    model = None
    max_seq_len = MAX_SEQUENCE

    def __init__(self, spec_config: Any, kmax: int, max_batch_size: int) -> None:
        self.spec_config = spec_config
        self.batch_size = max_batch_size
        self.is_spec_decode = self.enable_spec_decode = True
        self.max_draft_len = self.max_total_draft_tokens = self.runtime_draft_len = kmax
        self.llm_args = SimpleNamespace(max_num_tokens=8192, model="target")
        self.log: list[tuple[int, int, bool | None]] = []
        self.truth: list[dict[str, tuple[int, int]]] = []
        self.fail_at: set[int] = set()
        self.violations: list[Exception] = []
        self.dist: Any = None

    @property
    def history(self) -> list[tuple[int, int]]:
        """(decoding requests, K) of each forward pass with decoding requests."""
        return [(count, k) for count, k, _ in self.log if count]

    def forward(self, batch: Any, resource_manager: Any, new_tensors_device: Any, **_: Any) -> Any:
        """Run a batch. Raises what was planned, and any violation."""
        self.truth.append({})
        if len(self.truth) - 1 in self.fail_at:
            raise RuntimeError("planned failure of the forward pass")
        try:
            return self._forward(batch, resource_manager, new_tensors_device)
        except Exception as error:
            self.violations.append(error)
            raise

    def _forward(self, batch: Any, resource_manager: Any, new_tensors_device: Any) -> Any:
        raise NotImplementedError

    def _agree(self, batch: Any, k: int) -> None:
        self.dist.require_same("draft length", k)
        if not self.enable_attention_dp:
            names = tuple(request.py_request_id for request in batch.generation_requests)
            self.dist.require_same("requests", names)


class OneEngine(Engine):
    """Target and drafter in one forward pass.

    Args:
        package: modules of TensorRT-LLM.
        spec_config: its configuration of speculation.
        max_batch_size: largest batch.
        sizes: batch sizes with graphs.
        skill: share of right drafts.
    """

    def __init__(
        self,
        package: Any,
        spec_config: Any,
        max_batch_size: int = 8,
        sizes: tuple[int, ...] = (1, 2, 4, 8),
        skill: float = 0.7,
    ) -> None:
        super().__init__(spec_config, int(spec_config.max_draft_len), max_batch_size)
        self.enable_attention_dp = False
        self.skill = skill
        self.stale_passes = 0
        """Drafting passes on a drafter state that lacks accepted tokens."""
        self._sizes = list(sizes)
        runner = object.__new__(package.runner.DecoderRunner)
        runner._config = SimpleNamespace(
            spec_config=spec_config,
            is_draft_model=False,
            cuda_graph_batch_sizes=list(sizes),
            original_max_draft_len=self.max_draft_len,
            max_draft_len=self.max_draft_len,
            max_batch_size=max_batch_size,
        )
        runner._dynamic_draft_len_mapping = runner._compute_dynamic_draft_len_mapping()
        runner.kv_cache_manager_key = package.resource_manager.ResourceManagerType.KV_CACHE_MANAGER
        runner._warmup_timer = contextlib.nullcontext()
        graphs = object.__new__(package.cuda_graph_runner.CUDAGraphRunner)
        graphs.enabled = graphs.padding_enabled = True
        graphs.supported_batch_sizes, graphs.max_supported_batch_size = list(sizes), max(sizes)
        graphs.spec_config = spec_config
        graphs.dynamic_draft_len_mapping = runner._dynamic_draft_len_mapping
        graphs.padding_dummy_requests, graphs.graphs = {}, {}
        graphs.config = SimpleNamespace(
            enable_attention_dp=False,
            batch_size=max_batch_size,
            use_mrope=False,
            is_draft_model=False,
            is_encoder_decoder=False,
            max_beam_width=1,
            kv_cache_manager_key=runner.kv_cache_manager_key,
        )
        self.runner, self.cuda_graph_runner = runner, graphs
        self.device: dict[int, _OnDevice] = {}

    def warm_up(self, resource_manager: Any) -> None:
        """Capture graphs and make the dummies, through upstream's `warmup` where it is known."""

        def capture(*_: Any) -> None:
            sizes = sorted(self._sizes, reverse=True)
            for key in self.runner._get_graphs_to_capture(sizes):
                self.cuda_graph_runner.graphs[tuple(key)] = "graph"
            self.cuda_graph_runner.preallocate_padding_dummies(resource_manager)

        if not hasattr(type(self.runner), "_warmup_scheduled"):
            capture()
            return
        self.runner._warmup_scheduled = capture
        self.runner.warmup(resource_manager)

    def _forward(self, batch: Any, resource_manager: Any, new_tensors_device: Any) -> Any:
        k = self.runtime_draft_len
        self._agree(batch, k)
        widths = {len(request.py_draft_tokens) for request in batch.generation_requests}
        if widths - {k}:
            raise GraphShapeError(f"numbers of drafts {widths} at K = {k}")
        managers = resource_manager.resource_managers
        kv = next(manager for manager in managers.values() if hasattr(manager, "reserved"))
        replayed = None
        if not batch.context_requests:
            with self.cuda_graph_runner.pad_batch(batch, resource_manager, k) as padded:
                replayed = (padded.batch_size, k) in self.cuda_graph_runner.graphs
        self.log.append((sum(not r.is_dummy for r in batch.generation_requests), k, replayed))
        rows: list[tuple[list[int], list[int]]] = []
        for request in batch.context_requests_chunking:
            self._state_of(request).sees(k, self.spec_config)
            rows.append(([], [0] * k))
        for request in batch.context_requests_last_chunk:
            state = self._state_of(request)
            state.tokens = list(request.get_tokens(0))
            rows.append(self._advance(request, state, greedy(state.tokens, 1), k))
        for request in batch.generation_requests:
            request.py_batch_idx = request.py_seq_slot
            if request.is_dummy:
                rows.append(([0], [0] * k))
                continue
            state = self.device[request.py_request_id]
            real = min(len(state.drafts), k)
            if new_tensors_device is None and request.py_draft_tokens[:real] != state.drafts[:real]:
                raise StaleDraftsError(f"request {request.py_request_id}: host and device differ")
            drafts = state.drafts[:k] + [0] * (k - real)
            kv.require(request, len(state.tokens) + k, 1 + k)
            wanted = greedy(state.tokens, k + 1)
            accepted = 0
            while accepted < k and drafts[accepted] == wanted[accepted]:
                accepted += 1
            self.truth[-1][str(request.py_request_id)] = (real, accepted)
            rows.append(self._advance(request, state, wanted[: accepted + 1], k))
        return {
            "logits": None,
            "new_tokens": _table([new for new, _ in rows], k + 1),
            "new_tokens_lens": _array([len(new) for new, _ in rows]),
            "next_draft_tokens": _table([drafts for _, drafts in rows], k),
            "next_new_tokens": _table([[] for _ in rows], k + 1),
        }

    def _state_of(self, request: Any) -> _OnDevice:
        if request.is_first_context_chunk:
            self.device[request.py_request_id] = _OnDevice()
        return self.device[request.py_request_id]

    def _advance(
        self, request: Any, state: _OnDevice, new: list[int], k: int
    ) -> tuple[list[int], list[int]]:
        """Append verified tokens, then draft K."""
        state.tokens = state.tokens + new
        state.sees(k, self.spec_config)
        self.stale_passes += bool(state.stale and k)
        state.drafts = []
        extended = list(state.tokens)
        for _ in range(k):
            token = next_token(extended)
            right = random.Random(f"{request.py_request_id}/{len(extended)}").random() < self.skill
            extended.append(token)
            wrong = (token + 1) % VOCABULARY
            state.drafts.append(token if right and not state.stale else wrong)
        return new, state.drafts


class _OnDevice:
    """What only the device knows of a request."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.drafts: list[int] = []
        self.stale = False

    def sees(self, k: int, spec_config: Any) -> None:
        """A pass at K = 0 leaves the drafter behind, unless it has no state or is kept warm."""
        warm = getattr(spec_config, "keep_drafter_warm", False)
        stateless = getattr(spec_config.spec_dec_mode, "is_sa", bool)()
        self.stale = self.stale or not (k or warm or stateless)


class HostEngine(Engine):
    """Target that verifies a host drafter's drafts: Kmax of them, or none in the whole batch."""

    def __init__(self, kmax: int, max_batch_size: int = 8) -> None:
        super().__init__(None, kmax, max_batch_size)

    def _forward(self, batch: Any, resource_manager: Any, new_tensors_device: Any) -> Any:
        widths = {len(request.py_draft_tokens) for request in batch.generation_requests}
        if len(widths) > 1 or widths - {0, self.max_draft_len}:
            raise GraphShapeError(f"numbers of drafts {widths}")
        managers = resource_manager.resource_managers
        kv = next(manager for manager in managers.values() if hasattr(manager, "reserved"))
        self.log.append((len(batch.generation_requests), max(widths, default=0), None))
        wanted = {}
        for request in batch.context_requests_last_chunk:
            wanted[request.py_request_id] = ([], greedy(request.get_tokens(0), 1))
        for request in batch.generation_requests:
            drafts = list(request.py_draft_tokens)
            tokens = request.get_tokens(0)
            kv.require(request, len(tokens) + len(drafts), 1 + len(drafts))
            new = greedy(tokens, len(drafts) + 1)
            accepted = 0
            while accepted < len(drafts) and drafts[accepted] == new[accepted]:
                accepted += 1
            self.truth[-1][str(request.py_request_id)] = (len(drafts), accepted)
            wanted[request.py_request_id] = (drafts, new[: accepted + 1])
        return {"logits": None, "wanted": wanted}


class HostSampler:
    """Sampler of the host path, greedy."""

    def __init__(self, package: Any) -> None:
        self._complete = package.LlmRequestState.GENERATION_COMPLETE

    def get_cache_indirection(self) -> None:
        """No beams."""

    def is_generation_model(self) -> bool:
        """It generates."""
        return True

    def beam_width(self, requests: Any) -> int:
        """Greedy."""
        return 1

    def sample_async(self, batch: Any, outputs: Any, num_context_logits_prefix_sum: Any) -> Any:
        """Return the state of a batch's results."""
        requests = batch.context_requests_last_chunk + batch.generation_requests
        return SimpleNamespace(requests=requests, device=None, host=outputs["wanted"])

    def update_requests(self, state: Any, resource_manager: Any = None) -> None:
        """Apply results."""
        for request in state.requests:
            if request.state == self._complete:
                continue
            drafts, new = state.host[request.py_request_id]
            for token in new:
                request.add_new_token(token, 0)
                length = request.get_num_tokens(0) - request.py_orig_prompt_len
                if token == request.py_end_id or length >= request.py_max_new_tokens:
                    request.state = self._complete
                    break
            request.py_num_accepted_draft_tokens = len(new) - 1
            request.py_num_draft_tokens_verified = len(drafts)
            request.py_rewind_len = request.py_draft_pages_allocated - (len(new) - 1)
            request.py_decoding_iter += 1


def _table(rows: list[list[int]], width: int) -> Any:
    return _array([row + [0] * (width - len(row)) for row in rows], (len(rows), width))


def _array(values: list[Any], shape: tuple[int, int] | None = None) -> Any:
    """Return an integer tensor, or an array where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        array = importlib.import_module("numpy").array(values, dtype="int32")
        return array if shape is None else array.reshape(shape)
    torch = importlib.import_module("torch")
    tensor = torch.tensor(values, dtype=torch.int)
    return tensor if shape is None else tensor.reshape(shape)
