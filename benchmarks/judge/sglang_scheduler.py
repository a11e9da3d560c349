"""SGLang's scheduler in this process: how it is built, who decides in it, and what a batch runs."""

from __future__ import annotations

import json
import os
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from .arms import SGLANG_LIST, SGLANG_RULE, Arm
from .device import Work
from .engines import SLOW_DECISION_MS, WITHOUT_MODEL
from .trees import DEPTH, NODES, TREE

LAUNCH_K = 3
"""K that SGLang's rule begins with, its own default for EAGLE."""
LAUNCHED = {"eagle": 7, "ngram": 7, TREE: DEPTH}
"""Largest K by method. SGLang has no rule for the last two: they run this K."""
_SUPPORT = Path(__file__).resolve().parents[2] / "tests/sglang/support"


def build_scheduler(arguments: dict[str, Any], folder: Path, *, hooked: bool) -> Any:
    """Build SGLang's Scheduler on a CPU as its process does; once per process.

    Args:
        arguments: of SGLang's ServerArgs, beside those that a CPU and this process need.
        folder: for files.
        hooked: our hooks are placed.
    """
    if str(_SUPPORT) not in sys.path:
        sys.path.insert(0, str(_SUPPORT))
    from serving import environment

    switch = folder / "switch.json"
    switch.write_text("{}", encoding="utf-8")
    os.environ |= environment(
        config=switch if hooked else None, SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION="4096"
    )
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.plugins import load_plugins
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, ServerArgs

    load_plugins()
    given = ServerArgs(
        device="cpu",
        dtype="float32",
        attention_backend="intel_amx",
        mem_fraction_static=0.4,
        disable_cuda_graph=True,
        disable_overlap_schedule=True,
        disable_radix_cache=True,
        skip_tokenizer_init=True,
        random_seed=1,
        log_level="error",
        **arguments,
    )
    ports = PortArgs.init_new(given)
    for address in (ports.detokenizer_ipc_name, ports.tokenizer_ipc_name):
        threading.Thread(target=_drain, args=(address,), daemon=True).start()
    publish(given, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=None, gpu_id=0))
    return Scheduler(given, ports)


def _drain(address: str) -> None:
    """Take what the scheduler sends, as a detokenizer would."""
    import zmq

    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.bind(address)
    while True:
        socket.recv()


def let_decide(
    scheduler: Any,
    arm: Arm,
    kmax: int,
    folder: Path,
    clock: Callable[[], float],
    captured: Sequence[int] | None = None,
    method: str = "eagle",
) -> Any:
    """Let an arm decide on K, with everything as at a server's start; return what is attached.

    Args:
        scheduler: with our hooks and SGLang's adaptive controller.
        arm: what decides.
        kmax: largest candidate of an arm that adapts; SGLang's rule has its own candidates.
        folder: for files.
        clock: of our plugin.
        captured: batch sizes with captured graphs; None: no graphs.
        method: of drafting, of `LAUNCHED`.
    """
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    from adaptive_spec.adapters.sglang import hooks
    from adaptive_spec.adapters.sglang.attach import attach
    from adaptive_spec.adapters.sglang.settings import Settings
    from adaptive_spec.adapters.sglang.steered_params import SteeredParams
    from adaptive_spec.config import parse_config

    if hooks.SHARED.attached is not None:
        hooks.SHARED.attached.driver.close()
        hooks.SHARED.attached = None
    own = _own_schedule(arm, kmax, method, folder)
    # As `AdaptiveController.init_states` does where it captures graphs.
    params = scheduler.draft_worker.adaptive_controller.params = SteeredParams(own)
    params.set_cuda_graph_bs(None if captured is None else list(captured))
    for k in params.candidate_steps:
        params.cuda_graph_bs_for_step(k)
    if not arm.policy:
        return None
    config = {
        "fail_open": {"max_decision_ms": SLOW_DECISION_MS},
        "policy": arm.policy,
        "options": dict(arm.options),
        "audit": msgspec.to_builtins(arm.audit),
        "state_directory": arm.state or None,
        "seed": arm.seed,
    }
    settings = Settings(config=parse_config(config, source=arm.name))
    own_algorithm = scheduler.spec_algorithm
    if method in WITHOUT_MODEL:  # what the capability is read from
        scheduler.spec_algorithm = SpeculativeAlgorithm.NGRAM
    try:
        attached = attach(scheduler, settings, hooks.SHARED.source)
    finally:
        scheduler.spec_algorithm = own_algorithm
    assert attached is not None, "nothing was attached"
    attached.driver.clock = clock
    hooks.SHARED.attached = attached
    return attached


def _own_schedule(arm: Arm, kmax: int, method: str, folder: Path) -> Any:
    """SGLang's schedule with the candidates of an arm; a fixed one where SGLang has none."""
    from sglang.srt.speculative.adaptive_spec_params import AdaptiveSpeculativeParams

    from adaptive_spec.adapters.sglang.steered_params import FixedSchedule

    rule = arm.name == SGLANG_RULE
    adapts = arm.name == SGLANG_LIST or bool(arm.policy)
    wanted = list(range(kmax + 1)) if adapts else [max(arm.k or 0, 0)]
    if method != "eagle":
        wanted = [kmax] if rule else wanted
        nodes = {k: NODES[k] for k in wanted} if method == TREE else None
        return FixedSchedule(wanted[-1], wanted, nodes)
    path = folder / "candidates-of-arm.json"
    path.write_text(json.dumps({"1": {"candidate_steps": wanted}}), encoding="utf-8")
    return AdaptiveSpeculativeParams(LAUNCH_K, None if rule else str(path))


def submit(scheduler: Any, name: str, prompt: Sequence[int], **sampling: Any) -> None:
    """Put a request into the scheduler's queue, as its request handler does."""
    from sglang.srt.managers.schedule_batch import Req
    from sglang.srt.sampling.sampling_params import SamplingParams

    wanted = SamplingParams(**sampling)
    wanted.normalize(None)
    scheduler._add_request_to_queue(
        Req(
            rid=name,
            origin_input_text="",
            origin_input_ids=array("q", prompt),
            sampling_params=wanted,
            eos_token_ids=set(),
            vocab_size=scheduler.model_config.vocab_size,
        )
    )


def next_batch(scheduler: Any) -> Any:
    """Let the scheduler choose its next batch, as its loops do; None if there is none."""
    scheduler.ingest_requests()
    plan = scheduler.get_next_batch_to_run(
        running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
    )
    scheduler.running_batch = plan.running_batch
    return plan.batch_to_run


def work_of(batch: Any) -> Work:
    """Return what an SGLang ScheduleBatch runs, without its drafts and the drafter's passes."""
    work, size = Work(), len(batch.reqs)
    work.drafting = size
    if batch.forward_mode.is_decode():
        work.requests = work.tokens = size
        work.context = int(batch.seq_lens_cpu.sum())
        return work
    for tokens, before in zip(batch.extend_lens, batch.prefix_lens, strict=True):
        work.prefill += tokens
        work.prefill_context += tokens * before + tokens * (tokens - 1) // 2
    return work


def count_drafts(work: Work, result: Any) -> None:
    """Note the one K that a decode batch ran."""
    if work.requests and (nodes := getattr(result, "speculative_num_draft_tokens", None)):
        work.tokens = work.requests * nodes
        work.least_k = work.most_k = nodes - 1
