"""V5, for information: SpecForge on one H200, and how acceptance falls with depth.

* Throughput with EAGLE-3 over that without, Llama-3.1-8B in SGLang, chains of 3, 5 and 7, one
  request (SpecForge's raw data; accepted lengths stated there). Step times and the drafter's
  passes: `h200-llama-8b`.
* Mean accepted length at K = 8, predicted from K = 3 with one hazard, against InferenceX's
  measurements. It comes out high: hazards fall with depth, for MTP most of all.

No row counts: nothing was fitted, and the issue gives no bound.
"""

from __future__ import annotations

from pathlib import Path

from adaptive_spec.sim.hardware.registry import hardware_profile
from benchmarks.validation.arms import Arms, like_requests
from benchmarks.validation.row import Row, compared
from benchmarks.validation.table_files import numbers, read_table

TITLE = "For information: SpecForge on H200, and accepted length by K (InferenceX)"
FILE = "validation/specforge_sglang_h200_eagle3.csv"
GOLDEN = "validation/inferencex_golden_accept_length.csv"

_MODEL = "Llama-3.1-8B-Instruct"
_PROMPT_TOKENS = 128
_OUTPUT_TOKENS = 256
_REQUESTS = 8
_FROM_K, _TO_K = 3, 8


def rows(data_folder: Path) -> list[Row]:
    """Both sets. Raises DataError."""
    return [*_ratios(data_folder), *_golden(data_folder)]


def _ratios(data_folder: Path) -> list[Row]:
    path = data_folder / FILE
    columns = ("batch_size", "steps", "topk", "output_tok_s", "accept_length")
    frame = read_table(path, ("model", "benchmark", "draft", *columns))
    arms = _arms()
    plain_simulated = arms.plain().throughput_tok_s
    plain: dict[tuple[str, float], float] = {}
    found = []
    words = frame.select("model", "benchmark", "draft").rows()
    for (model, benchmark, draft), (batch, steps, topk, rate, length) in zip(
        words, numbers(frame, path, *columns).tolist(), strict=True
    ):
        if model != _MODEL or batch != 1 or topk != 1:
            continue
        if draft == "none":
            plain[benchmark, steps] = rate
        elif (benchmark, steps) in plain:
            simulated = arms.speculating(round(steps), length).throughput_tok_s
            found.append(
                compared(
                    "V5",
                    f"{benchmark}, K = {steps:g}, {draft.split('/')[-1]}",
                    rate / plain[benchmark, steps],
                    simulated / plain_simulated,
                    counted=False,
                    note=f"for information; accepted length {length:.2f} (stated)",
                )
            )
    return found


def _golden(data_folder: Path) -> list[Row]:
    path = data_folder / GOLDEN
    columns = ("num_speculative_tokens", "mean_accept_len")
    frame = read_table(path, ("file", "mode", *columns))
    lengths: dict[str, dict[int, float]] = {}
    for (file, mode), (k, length) in zip(
        frame.select("file", "mode").rows(), numbers(frame, path, *columns).tolist(), strict=True
    ):
        lengths.setdefault(f"{file.removesuffix('.yaml')} {mode}", {})[round(k)] = length
    arms = _arms()
    found = []
    for name, by_k in lengths.items():
        if _FROM_K in by_k and _TO_K in by_k:
            # The hazard that explains K = 3, run at K = 8.
            predicted = arms.speculating(_TO_K, by_k[_FROM_K], _FROM_K).accepted_per_step + 1.0
            found.append(
                compared(
                    "V5",
                    f"accepted length at K = {_TO_K}: {name}",
                    by_k[_TO_K],
                    predicted,
                    counted=False,
                    note=f"for information; one hazard, from K = {_FROM_K}",
                )
            )
    return found


def _arms() -> Arms:
    profile = hardware_profile("h200-llama-8b")
    return like_requests(profile, _REQUESTS, _PROMPT_TOKENS, _OUTPUT_TOKENS)
