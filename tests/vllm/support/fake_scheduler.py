"""A scheduler with the attributes of vLLM's that the adapter reads, and steps on it."""

from types import SimpleNamespace
from typing import Any

from adaptive_spec.adapters.vllm.steps import StepDriver

KMAX = 4


class Request(SimpleNamespace):
    """The attributes of vLLM's request that we read."""

    def __init__(self, name: str, **changes: Any) -> None:
        values: dict[str, Any] = {
            "request_id": name,
            "is_prefill_chunk": False,
            "num_tokens": 20,
            "num_prompt_tokens": 10,
            "num_computed_tokens": 19,
            "num_output_placeholders": 0,
            "max_tokens": 100,
            "spec_token_ids": [7] * KMAX,
            "sampling_params": SimpleNamespace(extra_args=None, temperature=0.8),
            "lora_request": None,
            "use_structured_output": False,
        }
        super().__init__(**(values | changes))

    def is_finished(self) -> bool:
        return False


def scheduler_with(*requests: Request, **changes: Any) -> Any:
    manager = SimpleNamespace(
        block_pool=SimpleNamespace(get_num_free_blocks=lambda: 50),
        coordinator=SimpleNamespace(single_type_managers=[SimpleNamespace(block_size=16)]),
    )
    values: dict[str, Any] = {
        "running": list(requests),
        "waiting": [],
        "requests": {request.request_id: request for request in requests},
        "block_size": 16,
        "cache_config": SimpleNamespace(num_gpu_blocks=100),
        "kv_cache_manager": manager,
        "num_lookahead_tokens": KMAX,
        "max_model_len": 1000,
        "max_num_running_reqs": 8,
        "max_num_scheduled_tokens": 256,
        "dynamic_sd_lookup": None,
        # Model runner V2 drafts for each request alone, whatever the others' length.
        "vllm_config": SimpleNamespace(
            use_v2_model_runner=True,
            speculative_config=SimpleNamespace(method="eagle"),
            scheduler_config=SimpleNamespace(async_scheduling=False),
        ),
    }
    return SimpleNamespace(**(values | changes))


def hinted(**hints: Any) -> Any:
    return SimpleNamespace(extra_args=hints, temperature=0.0)


def output_of(drafts: dict[str, int], extra: dict[str, int] | None = None, **changes: Any) -> Any:
    """vLLM's SchedulerOutput: decoding requests with their drafts, others with their tokens."""
    tokens = {name: 1 + count for name, count in drafts.items()} | (extra or {})
    values = {
        "num_scheduled_tokens": tokens,
        "total_num_scheduled_tokens": sum(tokens.values()),
        "scheduled_spec_decode_tokens": {n: [5] * count for n, count in drafts.items() if count},
        "num_invalid_spec_tokens": None,
        "preempted_req_ids": None,
        "num_spec_tokens_to_schedule": KMAX,
    }
    return SimpleNamespace(**(values | changes))


def results_of(**sampled: int) -> Any:
    names = list(sampled)
    return SimpleNamespace(
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[9] * sampled[name] for name in names],
    )


def run_step(driver: StepDriver, output: Any) -> None:
    driver.before_schedule()
    driver.scheduled(output)


def arrive(
    driver: StepDriver, output: Any, results: Any, appended: dict[str, int] | None = None
) -> None:
    """Results arrive; vLLM keeps so many of the tokens of each request."""
    driver.read(output, results)
    for name, count in (appended or {}).items():
        del results.sampled_token_ids[results.req_id_to_index[name]][count:]
    driver.processed()


def learn_at_once(driver: StepDriver) -> None:
    """What an idle engine does."""
    running, driver._scheduler.running = driver._scheduler.running, []
    driver.processed()
    driver._scheduler.running = running
