"""Facts of vLLM's workers, where the adapter reads the drafter's confidence.

Part of `facts`, by what does not work without them.
"""

from __future__ import annotations

from adaptive_spec.engines.source_facts import AnyOf, Fact, Function, Names, Order

SIGNAL = "the drafter's confidence"
EARLY_EXIT = "ending the draft loop early"
COPIES = "copying looked-up drafts in the worker"
V2_COPIES = "copying looked-up drafts on model runner V2"
V2_SIGNAL = "the drafter's confidence on model runner V2"

SHOWN = "the reader is shown what drafts come from, before anything changes it"
OUTPUT = ("v1/core/sched/output.py",)
SCHEDULER = ("v1/core/sched/scheduler.py",)
V2 = "v1/worker/gpu"

WORKER_FACTS: dict[str, tuple[Fact, ...]] = {
    SIGNAL: (
        Function(
            files=SCHEDULER,
            name="Scheduler.update_draft_token_ids",
            parameters=("self", "draft_token_ids"),
            why="confidence arrives with the drafts",
        ),
        Names(
            files=("v1/worker/gpu_worker.py",),
            within="Worker",
            names=("execute_model", "load_model", "sample_tokens", "take_draft_token_ids"),
            why="our worker class stands before it",
        ),
        Names(
            files=("v1/worker/gpu_model_runner.py",),
            names=("draft_token_ids_copy_stream", "input_batch", "max_num_reqs", "num_spec_tokens"),
            why="whose drafts they are, and the way to the host",
        ),
        Names(
            files=("v1/spec_decode/llm_base_proposer.py",),
            names=("compute_logits", "_sample_draft_tokens", "propose"),
            why="the drafter's logits, by position and round",
        ),
        Names(
            files=("v1/spec_decode/ngram_proposer.py",),
            names=("max_n", "propose"),
            why="how much text matched",
        ),
        Names(
            files=("v1/spec_decode/suffix_decoding.py",),
            names=("speculate", "suffix_cache"),
            why="how often each token followed",
        ),
    ),
    V2_SIGNAL: (
        Names(
            files=(f"{V2}/spec_decode/speculator.py",),
            within="DraftModelSpeculator",
            names=(
                "acceptance_estimator",
                "device",
                "draft_logits",
                "max_num_reqs",
                "num_speculative_steps",
                "temperature",
                "use_local_argmax_reduction",
            ),
            why="where a reader of the drafter's logits goes, and what they are",
        ),
        AnyOf(
            facts=tuple(
                Order(
                    file=f"{V2}/spec_decode/speculator.py",
                    function="DraftModelSpeculator.sample_draft",
                    calls=(logits, "_maybe_predict_acceptance"),
                    why=SHOWN,
                )
                for logits in ("compute_draft_logits", "compute_logits")
            ),
            why=SHOWN,
        ),
        Function(
            files=(f"{V2}/spec_decode/acceptance_estimator.py",),
            name="OnlineAcceptanceEstimator.predict",
            parameters=(
                "self",
                "logits",
                "idx_mapping",
                "draft_step",
                "confidence_probs",
                "temperature",
            ),
            why="what the reader is called with",
        ),
        Function(
            files=(f"{V2}/spec_decode/acceptance_estimator.py",),
            name="OnlineAcceptanceEstimator.step",
            parameters=("self", "idx_mapping", "num_sampled", "num_rejected"),
            why="what it is also called with",
        ),
        Order(
            file=f"{V2}/model_runner.py",
            function="GPUModelRunner.sample_tokens",
            calls=("AsyncOutput", "observe_verification", "propose"),
            why="a step's results leave before its drafts are made",
        ),
        Names(
            files=(f"{V2}/model_runner.py",),
            within="GPUModelRunner",
            names=("num_speculative_tokens", "speculator", "vllm_config"),
            why="whose drafts they are, and how many are asked for",
        ),
        Names(
            files=(f"{V2}/input_batch.py",),
            within="InputBatch",
            names=("num_reqs", "req_ids"),
            why="which request each row is",
        ),
    ),
    COPIES: (
        Names(
            files=("v1/worker/gpu_model_runner.py",),
            within="GPUModelRunner",
            names=(
                "_draft_prob_req_ids",
                "_draft_probs",
                "_draft_token_ids",
                "_get_spec_decode_draft_probs",
                "draft_token_ids_cpu",
                "num_spec_tokens",
                "prev_num_spec_tokens",
                "propose_draft_token_ids",
            ),
            why="drafts on the device, what they were drawn from, and what a step has emitted",
        ),
    ),
    V2_COPIES: (
        Names(
            files=(f"{V2}/states.py",),
            within="RequestState",
            names=(
                "all_token_ids",
                "draft_tokens",
                "num_speculative_steps",
                "req_id_to_index",
                "total_len",
            ),
            why="text and drafts on the device",
        ),
        Names(
            files=(f"{V2}/model_runner.py",),
            within="GPUModelRunner",
            names=("req_states",),
            why="the same",
        ),
    ),
    EARLY_EXIT: (
        Order(
            file="v1/spec_decode/llm_base_proposer.py",
            function="SpecDecodeBaseProposer.propose",
            calls=("range", "set_forward_context", "_sample_draft_tokens", "stack"),
            why="a pass ends with its sampling, and after the last one drafts are stacked",
        ),
        Names(
            files=("config/vllm.py",),
            within="VllmConfig",
            names=("instance_id",),
            why="how the drafter finds the scheduler of its engine",
        ),
    ),
}
"""What does not work without them -> facts."""
