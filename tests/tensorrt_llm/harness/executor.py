"""A `PyExecutor` without its constructor, and its run from start to end."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from types import SimpleNamespace
from typing import Any

from harness import engines, managers
from harness.package import Stream
from harness.ranks import Rank
from harness.traffic import Traffic

KMAX = 5
BATCH = 8


class Quiet:
    """Anything of upstream that is switched off: false, empty, and takes any call."""

    enabled = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def __bool__(self) -> bool:
        return False

    def __call__(self, *_: Any, **__: Any) -> None:
        return None

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _Timing(Quiet):
    def create_timing_events(self) -> tuple[None, None, None]:
        return None, None, None

    @contextlib.contextmanager
    def record_perf_events(self, *_: Any) -> Any:
        yield SimpleNamespace(start_time=0, end_time=0)


class _Budget(Quiet):
    """Failed forward passes never end the run."""

    budget = 1.0

    def consume(self, message: str) -> bool:
        return False


class Queue(list[Any]):
    """Requests that wait."""

    def remove_by_ids(self, names: Any) -> None:
        """Drop cancelled ones."""
        self[:] = [request for request in self if request.py_request_id not in names]


def spec_config_of(
    package: Any, schedule: dict[int, int], kind: str = "Eagle3", **more: Any
) -> Any:
    """Return upstream's configuration of speculation, with a schedule of draft lengths."""
    known = vars(package.llm_args)
    cls = known.get(f"{kind}DecodingConfig") or known[f"{kind.rstrip('3')}DecodingConfig"]
    more.setdefault("max_draft_len", KMAX)
    return cls(speculative_model="none", draft_len_schedule=schedule, **more)


def one_engine_executor(
    package: Any,
    traffic: Traffic,
    *,
    spec_config: Any = None,
    skill: float = 0.7,
    kv_cache_manager: Any = None,
    spec_resource_manager: Any = None,
    **options: Any,
) -> Any:
    """Return an executor with graphs captured, not started. Options: those of `executor_of`."""
    spec_config = spec_config or spec_config_of(package, {BATCH: KMAX})
    engine = engines.OneEngine(package, spec_config, skill=skill)
    sampler_args = _filled(
        package.sampler.TorchSampler.Args,
        max_seq_len=engines.MAX_SEQUENCE,
        max_draft_len=engine.max_draft_len,
        max_num_sequences=BATCH,
        max_total_draft_tokens=engine.max_draft_len,
        max_beam_width=1,
        disable_overlap_scheduler=False,
        enable_async_worker=False,
    )
    executor = executor_of(
        package,
        engine,
        package.spec_sampler.SpecSampler(sampler_args),
        traffic,
        kv_cache_manager=kv_cache_manager,
        spec_resource_manager=spec_resource_manager,
        **options,
    )
    engine.warm_up(executor.resource_manager)
    return executor


def host_executor(
    package: Any, traffic: Traffic, drafter: Any, companion: Any = None, *, kmax: int = KMAX
) -> Any:
    """Return an executor of the host-drafter path; without a drafter it decodes plainly."""
    engine = engines.HostEngine(kmax)
    if drafter is None:
        engine.is_spec_decode = False
    executor = executor_of(
        package,
        engine,
        engines.HostSampler(package),
        traffic,
        overlap=False,
        drafter=drafter,
        spec_resource_manager=companion,
    )
    executor.max_total_draft_tokens = 0 if drafter is None else kmax
    return executor


def executor_of(
    package: Any,
    engine: Any,
    sampler: Any,
    traffic: Traffic,
    *,
    overlap: bool = True,
    dist: Any = None,
    attention_dp: bool = False,
    drafter: Any = None,
    kv_cache_manager: Any = None,
    spec_resource_manager: Any = None,
    max_batch_size: int = BATCH,
    chunk: int = 24,
    drops_failed_batches: bool = False,
) -> Any:
    """Return an executor around an engine.

    Args:
        package: modules of TensorRT-LLM.
        engine: of `engines`.
        sampler: upstream's sampler, or `HostSampler`.
        traffic: requests; called once an iteration.
        overlap: run the overlap loop.
        dist: the rank's communicator; None is one rank.
        attention_dp: each rank has requests of its own.
        drafter: upstream's `Drafter`.
        kv_cache_manager: of `managers`; None makes a V1 of 512 blocks.
        spec_resource_manager: the drafter's slots, or its companion.
        max_batch_size: requests at once.
        chunk: prompt tokens per iteration and request.
        drops_failed_batches: stand-in only: the overlap loop survives a failed forward pass.
    """
    kinds = package.resource_manager.ResourceManagerType
    kv = kv_cache_manager or managers.KVCacheManager(package)
    resources: dict[Any, Any] = {
        kinds.KV_CACHE_MANAGER: kv,
        kinds.SEQ_SLOT_MANAGER: managers.SequenceSlots(2 * max_batch_size),
    }
    if spec_resource_manager is not None:
        resources[kinds.SPEC_RESOURCE_MANAGER] = spec_resource_manager
    e: Any = object.__new__(_executor_class(package))
    e.asked = set()
    e.model_engine, e.draft_model_engine = engine, None
    e.sampler, e.drafter, e.guided_decoder = sampler, drafter, None
    e.use_spec_decode = False
    e.resource_manager = package.resource_manager.ResourceManager(resources)
    e.kv_cache_manager, e.draft_kv_cache_manager = kv, None
    e.dist = engine.dist = dist or Rank()
    e.enable_attention_dp = engine.enable_attention_dp = attention_dp
    e.device_id = e.global_rank = 0
    e.disable_overlap_scheduler = not overlap
    e._is_kv_manager_v2 = isinstance(kv, managers.KVCacheManagerV2)
    e.enable_joint_kv_cache_reuse = False
    e.max_draft_len = e.max_total_draft_tokens = engine.max_draft_len
    e.max_batch_size, e.max_input_len, e.max_beam_width = max_batch_size, 1 << 30, 1
    e.is_warmup = e.is_shutdown = e.worker_started = False
    e.active_requests, e.waiting_queue = [], Queue()
    e.canceled_req_ids = []
    e.previous_batch, e.has_previous_draft_tokens = None, False
    e.iter_counter = 0
    e.inflight_req_ids = package.ReqIdsSet()
    e.execution_stream = Stream()
    e.speculation_gate, e.speculation_permanently_disabled = None, False
    e.kv_cache_transceiver = e.kv_connector_manager = e.dwdp_manager = None
    e._disagg_pp_termination_handler = e._fatal_error = None
    e._error_budget = _Budget()
    e.gather_all_responses, e.result_wait_queues, e.stream_interval = False, {}, 1
    e._pending_transfer_responses, e._pending_response_terminations = [], []
    e._prefetched_request_ids = set()
    e._iter_adp_dummy_ctx_tokens = e._iter_adp_dummy_gen_tokens = 0
    e.perf_manager, e.hang_detector = _Timing(), Quiet()
    e.drops_failed_batches = drops_failed_batches
    e.worker_lock, e.shutdown_event = threading.Lock(), threading.Event()
    e.executor_request_queue = Quiet()
    for name in _SWITCHED_OFF:
        setattr(e, name, Quiet())
    e.engine, e.traffic, e.chunk, e.error, e.stop = engine, traffic, chunk, None, False
    return e


_SWITCHED_OFF = (
    *("enable_iter_perf_stats", "enable_kv_cache_events", "enable_early_first_token_response"),
    *("_mm_encoder_item_scheduling_enabled", "_resource_governor_enabled", "is_benchmark_disagg"),
    *("_packed_sync_enabled", "force_terminate_ctx_for_partial_reuse", "control_requests"),
    *("_poll_encoder_steps", "_handle_control_request", "_prefetch_for_context_requests"),
    *("_pad_empty_attention_dp_batch", "_finalize_adp_dummy_allocation", "_send_kv_async"),
    *("_maybe_prefetch_next_iter_mm_encoders", "_handle_guided_decoder_errors"),
    *("_flush_iter_stats_synced", "_attach_encoder_output_to_execution_stream"),
    *("_mark_cross_kv_projection_consumed", "_enqueue_responses"),
    *("_adp_clear_packed_sync_state", "_flush_pending_transfer_responses"),
    *("_prepare_disagg_gen_transmission_complete", "_stage_begin", "_stage_mark", "_stage_end"),
)
"""Features of the executor that take no part in what is tested."""


def _executor_class(package: Any) -> type[Any]:
    """Return PyExecutor with our scheduler, and what an unknown constructor would have set."""
    states = package.LlmRequestState

    class Executor(package.py_executor.PyExecutor):  # type: ignore[misc,name-defined]
        disagg = Quiet()

        @property
        def should_stop_processing(self) -> bool:
            return bool(self.stop)

        def __getattr__(self, name: str) -> Any:
            if name.startswith(("__", "_adaptive_spec", "_harness")):
                raise AttributeError(name)
            self.asked.add(name)
            return Quiet()

        def _profiler(self) -> Any:
            return contextlib.nullcontext(lambda: None)

        def _step_scope(self, *_: Any, **__: Any) -> Any:
            return contextlib.nullcontext()

        def _check_benchmark_disagg_gate(self, batch: Any, can_forward: bool) -> tuple[bool, bool]:
            return True, False

        def _compute_adp_dummy_tokens(self, batch: Any) -> tuple[int, int]:
            return 0, 0

        def _fetch_and_activate_new_requests(self) -> list[Any]:
            more = self.traffic(self)
            before = (
                () if self.previous_batch is None else self.previous_batch.sample_state.requests
            )
            under_way = any(not request.is_dummy for request in before)
            busy = bool(more or self.active_requests or self.waiting_queue or under_way)
            self.stop = not any(self.dist.tp_allgather(busy))
            new = []
            while self.waiting_queue and len(self.active_requests) + len(new) < self.max_batch_size:
                new.append(self.waiting_queue.pop(0))
            self.active_requests.extend(new)
            return new

        def _schedule(self) -> tuple[Any, list[Any], int]:
            """Every active request, except what the traffic leaves out or pauses."""
            batch = package.scheduler.ScheduledRequests()
            for request in self.active_requests:
                if request.state == states.CONTEXT_INIT:
                    request.context_chunk_size = min(self.chunk, request.context_remaining_length)
                    batch.append_context_request(request)
                elif request.state == states.GENERATION_IN_PROGRESS and not self.traffic.skips(
                    request
                ):
                    self.kv_cache_manager.scheduled(request)
                    batch.append_generation_request(request)
            self.traffic.pauses(batch)
            return batch, [], batch.batch_size

        def _event_loop_wrapper(self) -> None:
            loop = self._executor_loop
            try:
                (loop if self.disable_overlap_scheduler else self._executor_loop_overlap)()
            except BaseException as error:
                self.error = error
                self.dist.abort()
            finally:
                self.shutdown_event.set()

    return Executor


def wait(e: Any) -> Any:
    """Wait for the end of a started run; raise what went wrong. Returns the executor."""
    e.worker_thread.join()
    e.shutdown()
    for error in (*e.engine.violations, e.error):
        if error is not None:
            raise error
    return e


def run(e: Any) -> Any:
    """Run from start to end; raise what went wrong. Returns the executor."""
    e.start_worker()
    return wait(e)


def _filled(cls: type[Any], **values: Any) -> Any:
    """Build a dataclass of upstream with the fields that it has in this version."""
    names = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in names})
