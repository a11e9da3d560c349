"""V6: EAGLE on vLLM, H100, gsm8k (SpecDecode-Bench, arXiv 2601.11580), and their own simulator.

Step times are theirs (`h100-llama-8b`; a prompt token costs what a verified token costs, and the
proposal is one term whatever K is), acceptance is theirs: the lengths that a step at every output
position would have, of 300 gsm8k requests. Nothing is fitted.

A batch, in their simulator, is so many copies of one request: they prefill together and stay in
step. The published 1.21 is measured on vLLM; their simulator gives 1.18 on its own data, and what
it gives is reproduced more closely. Of `THEIR_SIMULATOR` the figure for K = 3 comes from running
simulator.py of commit 2fdccbd, those for K = 1 and 5 from the same arithmetic written anew, which
agreed with their code at the batches where both were run.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptive_spec.sim.acceptance.data import AcceptanceData
from adaptive_spec.sim.acceptance.per_position import read_per_position
from adaptive_spec.sim.engine.options import EngineOptions
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, MeasuredDraft
from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.profiles import published_profile
from benchmarks.validation.arms import Batches, one_per_record, simulated
from benchmarks.validation.row import Row, compared

TITLE = "SpecDecode-Bench, vLLM, H100, Llama-3.1-8B, EAGLE, gsm8k"
FILE = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
PUBLISHED = 1.21
BOUND = 0.05
"""Of the measured figure; the issue asks for "reproduced" and names no bound."""
THEIR_SIMULATOR = {1: 1.136, 3: 1.182, 5: 1.070}
"""K: ratio of throughputs at batch 128."""
SIMULATOR_BOUND = 0.01

_BATCH = 128
_K = 3


def rows(data_folder: Path, draft_lengths: tuple[int, ...] = (3, 1, 5)) -> list[Row]:
    """The measured figure at K = 3, then their simulator's at each K. Raises DataError."""
    data = read_per_position(data_folder / FILE, "eagle")
    plain = _throughput(data, 0)
    ratios = {k: _throughput(data, k) / plain for k in draft_lengths}
    measured = f"measured, batch {_BATCH}, K = {_K}"
    note = "nothing fitted; the coefficients and the accepted lengths are theirs"
    found = []
    if _K in ratios:
        found.append(compared("V6", measured, PUBLISHED, ratios[_K], bound=BOUND, note=note))
    for k, ratio in ratios.items():
        label = f"their simulator, batch {_BATCH}, K = {k}"
        note = "the same arithmetic in two programs"
        theirs = THEIR_SIMULATOR[k]
        found.append(compared("V6", label, theirs, ratio, bound=SIMULATOR_BOUND, note=note))
    return found


def _throughput(data: AcceptanceData, k: int) -> float:
    copies = one_per_record(data.lengths.tolist(), data.prompt_tokens.tolist(), copies=_BATCH)
    # Their batches have no token budget and no end of memory.
    options = EngineOptions(max_batch_tokens=1 << 20, kv_tokens=1 << 20)
    return simulated(
        Batches(copies, (_BATCH,)), data, _profile(k), k, options=options
    ).throughput_tok_s


def _profile(k: int) -> HardwareProfile:
    """`h100-llama-8b` with their own forms where ours differ: prompts, and drafts at any K."""
    profile = hardware_profile(published_profile("h100-llama-8b"))
    eagle = profile.drafts["eagle"]
    # The profile splits the proposal, measured at K = 3, over three passes.
    fixed = (eagle.pass_ - eagle.proposal) * _K
    passes = max(k, 1)
    per_proposal = MeasuredDraft(
        proposal=eagle.proposal,
        pass_=fixed / passes + eagle.proposal,
        pass_per_context_token=eagle.pass_per_context_token * _K / passes,
    )
    return msgspec.structs.replace(
        profile, per_prefill_context_token=0.0, drafts={"eagle": per_proposal}
    )
