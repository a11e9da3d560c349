"""The executor's loops, plain and overlapping, one executor per rank.

As with TensorRT-LLM's own tests that need no GPU, `harness.executor` builds one without its
constructor. What stands here is what an iteration does: its order, what it keeps on the requests,
and what it does about a failed forward pass.
"""

import threading
from collections import namedtuple

from tensorrt_llm._torch.pyexecutor.llm_request import LlmRequestState, get_draft_token_length
from tensorrt_llm._torch.speculative.utils import update_draft_len
from tensorrt_llm.logger import logger

BatchState = namedtuple("BatchState", "scheduled_requests sample_state")


class PyExecutor:
    def start_worker(self):
        with self.worker_lock:
            if not self.worker_started:
                self.worker_thread = threading.Thread(target=self._event_loop_wrapper)
                self.worker_thread.start()
                self.worker_started = True

    def shutdown(self):
        self.executor_request_queue.enqueue_shutdown_request()
        self.shutdown_event.wait()
        self.worker_thread.join()

    def _event_loop_wrapper(self):
        try:
            loop = self.disable_overlap_scheduler
            (self._executor_loop if loop else self._executor_loop_overlap)()
        finally:
            self.shutdown_event.set()

    def _executor_loop(self):
        while True:
            batch, _ = self._prepare_and_schedule_batch()
            if batch is None:
                break
            self._terminate_requests(batch.paused_requests)
            self._pause_requests(batch.paused_requests)
            can_queue, _ = self._can_queue(batch)
            if can_queue:
                self._handle_dynamic_draft_len(batch)
                self.resource_manager.prepare_resources(batch)
                if self.drafter is not None and self.use_spec_decode:
                    self.drafter.prepare_draft_tokens(batch, self.resource_manager)
                    self.drafter.pad_draft_tokens_for_cuda_graph(batch, self.resource_manager)
                outputs = self._forward_step(batch)
                state = self._sample_async(batch, outputs)
                self._update_request_states(batch)
                self._update_requests(state, self.resource_manager)
                self._handle_canceled_requests()
                self._handle_responses()
                self.resource_manager.update_resources(batch)
            self.iter_counter += 1

    def _executor_loop_overlap(self):
        while True:
            batch, _ = self._prepare_and_schedule_batch()
            if batch is None:
                break
            self._terminate_requests(batch.paused_requests)
            can_queue, can_queue_here = self._can_queue(batch)
            if can_queue:
                self._handle_dynamic_draft_len(batch)
                self.resource_manager.prepare_resources(batch)
                batch.generation_requests = sorted(
                    batch.generation_requests, key=lambda request: request.py_batch_idx is not None
                )
                before = self.previous_batch and self.previous_batch.sample_state.device
                outputs = self._forward_step(batch, before)
            results_due = self.previous_batch is not None and (can_queue or not can_queue_here)
            if results_due:
                self._update_requests(self.previous_batch.sample_state)
            self._pause_requests(batch.paused_requests)
            if can_queue:
                state = self._sample_async(batch, outputs)
                if state is None and self.drops_failed_batches:
                    self.previous_batch = None
                    self.iter_counter += 1
                    continue
                assert state is not None, "Sampling failed"
                self._update_request_states(batch)
            if results_due:
                self._process_previous_batch()
            if can_queue:
                for request in batch.generation_requests:
                    if not request.is_finished and request.will_complete_next_iteration():
                        request.state = LlmRequestState.GENERATION_TO_COMPLETE
                self.previous_batch = BatchState(batch, state)
            elif not can_queue_here:
                self.previous_batch = None
            self.iter_counter += 1

    def _process_previous_batch(self):
        self._handle_canceled_requests()
        self._handle_responses()
        self.resource_manager.update_resources(self.previous_batch.scheduled_requests)

    def _prepare_and_schedule_batch(self):
        self._fetch_and_activate_new_requests()
        if self.should_stop_processing:
            return None, None
        self._pad_attention_dp_dummy_request()
        drafter = self.drafter
        if drafter is not None:
            if drafter.draft_len_schedule is not None:
                self.max_total_draft_tokens = drafter.get_draft_len_for_batch_size(
                    len(self.active_requests)
                )
                drafter.update_max_total_draft_tokens(self.max_total_draft_tokens)
            wanted = drafter.should_use_spec_decode(
                self.active_requests,
                self.max_batch_size,
                self.model_engine.llm_args.max_num_tokens,
                self.max_total_draft_tokens,
            )
            self.use_spec_decode = wanted and self.max_total_draft_tokens > 0
            self.model_engine.enable_spec_decode = self.use_spec_decode
            self._prepare_draft_requests()
        elif self.model_engine.is_spec_decode:
            # So that the scheduler counts them; drafts at hand stay.
            for request in self._decoding():
                if not request.py_draft_tokens:
                    request.py_draft_tokens = [0] * self.max_total_draft_tokens
                request.draft_tokens = [0] * self.max_total_draft_tokens
        batch, _, _ = self._schedule()
        if drafter is not None and not self.use_spec_decode:
            for request in batch.all_requests():
                request.py_disable_speculative_decoding = True
        return batch, None

    def _prepare_draft_requests(self):
        for request in self._decoding():
            wanted = self.use_spec_decode and not request.py_disable_speculative_decoding
            width = self.max_total_draft_tokens if wanted else 0
            request.py_draft_tokens = [0] * width
            request.py_draft_pages_allocated = width

    def _decoding(self):
        wanted = LlmRequestState.GENERATION_IN_PROGRESS
        return [request for request in self.active_requests if request.state is wanted]

    def _pad_attention_dp_dummy_request(self):
        """A rank with nothing to do takes part with a request of its own, by the name of 0."""
        if not self.enable_attention_dp or self.active_requests:
            return
        (dummy,) = self.kv_cache_manager.add_dummy_requests([0], is_gen=True)
        dummy.is_attention_dp_dummy = True
        self.active_requests.append(dummy)

    def _can_queue(self, scheduled_batch):
        here = scheduled_batch.batch_size > 0
        if self.enable_attention_dp:
            return 0 not in self.dist.tp_allgather(scheduled_batch.batch_size), here
        return here, here

    def _handle_dynamic_draft_len(self, scheduled_batch):
        """Newest form; `support/older_trees.py` has the form before it."""
        update_draft_len(
            self.model_engine,
            scheduled_batch,
            speculation_permanently_disabled=self.speculation_permanently_disabled,
        )

    def _forward_step(self, scheduled_requests, new_tensors_device=None):
        try:
            return self.model_engine.forward(
                scheduled_requests,
                self.resource_manager,
                new_tensors_device,
                gather_context_logits=False,
                cache_indirection_buffer=self.sampler.get_cache_indirection(),
            )
        except Exception as error:
            logger.error(f"Encountered an error in forward function: {error}")
            self._handle_errors(str(error))
            return None

    def _sample_async(self, scheduled_batch, batch_outputs):
        if batch_outputs is None:
            return None
        return self.sampler.sample_async(scheduled_batch, batch_outputs, [0])

    def _update_request_states(self, scheduled_requests):
        if self.active_requests and self.active_requests[-1].is_attention_dp_dummy:
            dummy = self.active_requests.pop()
            dummy.state = LlmRequestState.GENERATION_COMPLETE
            self._terminate_request(dummy)
        for request in scheduled_requests.context_requests:
            if not request.is_finished:
                request.move_to_next_context_chunk()
            if request.context_remaining_length == 0:
                last = not self.disable_overlap_scheduler and request.will_complete_next_iteration()
                request.state = (
                    LlmRequestState.GENERATION_TO_COMPLETE
                    if last
                    else LlmRequestState.GENERATION_IN_PROGRESS
                )

    def _update_requests(self, sample_state, resource_manager=None):
        try:
            self.sampler.update_requests(sample_state, resource_manager)
            for request in sample_state.requests:
                verified, request.py_num_draft_tokens_verified = (
                    request.py_num_draft_tokens_verified,
                    0,
                )
                if verified > 0:
                    request.py_total_draft_tokens += verified
                    request.py_total_accepted_draft_tokens += request.py_num_accepted_draft_tokens
        except Exception as error:
            logger.error(f"Encountered an error in sampling: {error}")
            self._handle_errors(str(error))

    def _handle_errors(self, error_msg=None, *, requests=None):
        """An iteration that failed takes its requests with it; those that come are served."""
        failed = list(self.active_requests if requests is None else requests)
        self.active_requests = [r for r in self.active_requests if r not in failed]
        for request in failed:
            request.state = LlmRequestState.GENERATION_COMPLETE
            self._terminate_request(request)

    def _handle_canceled_requests(self):
        for request in self.active_requests:
            if request.py_request_id in self.canceled_req_ids:
                request.state = LlmRequestState.GENERATION_COMPLETE
        self.canceled_req_ids.clear()

    def _handle_responses(self):
        for request in list(self.active_requests):
            if request.is_finished:
                self.active_requests.remove(request)
                self._terminate_request(request)

    def _terminate_requests(self, requests):
        for request in requests:
            self._terminate_request(request)

    def _terminate_request(self, request):
        self.resource_manager.free_resources(request)

    def _pause_requests(self, requests):
        for request in requests:
            request.pause(self.max_input_len)

    def statistics(self, batch):
        """What a status page shows."""
        stats = self.kv_cache_manager.get_kv_cache_stats()
        return {
            "blocks": (stats.free_num_blocks, stats.max_num_blocks, stats.tokens_per_block),
            "prompt tokens": sum(r.context_chunk_size for r in batch.context_requests),
            "waiting": len(self.waiting_queue),
            "prompts that end": len(batch.context_requests_last_chunk),
            "drafts": [get_draft_token_length(r) for r in batch.generation_requests],
            "names": [request.py_request_id for request in batch.all_requests()],
            "moves": (self.kv_cache_transceiver, self.kv_connector_manager),
            "reserves early": self._is_kv_manager_v2,
            "warming up": self.is_warmup,
            "drafts per step": self.model_engine.runtime_draft_len,
            "gate": self.speculation_gate,
        }
