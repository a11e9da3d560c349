"""Facts of vLLM's workers, where the adapter reads the drafter's confidence.

Part of `facts`, by what does not work without them.
"""

from __future__ import annotations

from adaptive_spec.engines.source_facts import AnyOf, Fact, function, names, order

SIGNAL = "the drafter's confidence"
COPIES = "copying looked-up drafts in the worker"
V2_COPIES = "copying looked-up drafts on model runner V2"
V2_SIGNAL = "the drafter's confidence on model runner V2"

SHOWN = "the reader is shown what drafts come from, before anything changes it"
OUTPUT = "v1/core/sched/output.py"
SCHEDULER = "v1/core/sched/scheduler.py"
V2 = "v1/worker/gpu"

WORKER_FACTS: dict[str, tuple[Fact, ...]] = {
    SIGNAL: (
        function(
            SCHEDULER,
            "Scheduler.update_draft_token_ids(self, draft_token_ids)",
            "confidence arrives with the drafts",
        ),
        names(
            "v1/worker/gpu_worker.py",
            "Worker",
            "execute_model load_model sample_tokens take_draft_token_ids",
            "our worker class stands before it",
        ),
        names(
            "v1/worker/gpu_model_runner.py",
            "",
            "draft_token_ids_copy_stream input_batch max_num_reqs num_spec_tokens",
            "whose drafts they are, and the way to the host",
        ),
        names(
            "v1/spec_decode/llm_base_proposer.py",
            "",
            "compute_logits _sample_draft_tokens propose",
            "the drafter's logits, by position and round",
        ),
        names("v1/spec_decode/ngram_proposer.py", "", "max_n propose", "how much text matched"),
        names(
            "v1/spec_decode/suffix_decoding.py",
            "",
            "speculate suffix_cache",
            "how often each token followed",
        ),
    ),
    V2_SIGNAL: (
        names(
            f"{V2}/spec_decode/speculator.py",
            "DraftModelSpeculator",
            "acceptance_estimator device draft_logits max_num_reqs num_speculative_steps "
            "temperature use_local_argmax_reduction",
            "where a reader of the drafter's logits goes, and what they are",
        ),
        AnyOf(
            facts=tuple(
                order(
                    f"{V2}/spec_decode/speculator.py",
                    "DraftModelSpeculator.sample_draft",
                    f"{logits} _maybe_predict_acceptance",
                    SHOWN,
                )
                for logits in ("compute_draft_logits", "compute_logits")
            ),
            why=SHOWN,
        ),
        function(
            f"{V2}/spec_decode/acceptance_estimator.py",
            "OnlineAcceptanceEstimator.predict(self, logits, idx_mapping, draft_step, "
            "confidence_probs, temperature)",
            "what the reader is called with",
        ),
        function(
            f"{V2}/spec_decode/acceptance_estimator.py",
            "OnlineAcceptanceEstimator.step(self, idx_mapping, num_sampled, num_rejected)",
            "what it is also called with",
        ),
        order(
            f"{V2}/model_runner.py",
            "GPUModelRunner.sample_tokens",
            "AsyncOutput observe_verification propose",
            "a step's results leave before its drafts are made",
        ),
        names(
            f"{V2}/model_runner.py",
            "GPUModelRunner",
            "num_speculative_tokens speculator vllm_config",
            "whose drafts they are, and how many are asked for",
        ),
        names(
            f"{V2}/input_batch.py", "InputBatch", "num_reqs req_ids", "which request each row is"
        ),
    ),
    COPIES: (
        names(
            "v1/worker/gpu_model_runner.py",
            "GPUModelRunner",
            "_draft_prob_req_ids _draft_probs _draft_token_ids _get_spec_decode_draft_probs "
            "draft_token_ids_cpu num_spec_tokens prev_num_spec_tokens propose_draft_token_ids",
            "drafts on the device, what they were drawn from, and what a step has emitted",
        ),
    ),
    V2_COPIES: (
        names(
            f"{V2}/states.py",
            "RequestState",
            "all_token_ids draft_tokens num_speculative_steps req_id_to_index total_len",
            "text and drafts on the device",
        ),
        names(f"{V2}/model_runner.py", "GPUModelRunner", "req_states", "the same"),
    ),
}
"""What does not work without them -> facts."""
