"""V1: the speed-up that Leviathan et al. expect (arXiv 2211.17192, tables 2 and 4).

One request, constant hazards, step times as in the paper: a target pass takes one unit however
many tokens it verifies, a draft pass c. Nothing is fitted. The closed formula,
(1 - alpha^(gamma + 1)) / ((1 - alpha)(gamma c + 1)), stands in the notes.
"""

from __future__ import annotations

from pathlib import Path

from adaptive_spec.sim.drafters.chains import DraftModel
from adaptive_spec.sim.hardware.profile_file import HardwareProfile, MeasuredDraft
from adaptive_spec.sim.load.base import OpenLoad
from benchmarks.validation.arms import Arms, one_per_record
from benchmarks.validation.row import Row, compared
from benchmarks.validation.table_files import numbers, read_table

TITLE = "Leviathan et al., expected speed-up, T5-XXL, one request"
FILE = "validation/leviathan2023_table2_table4.csv"
BOUND = 0.1

_TOKENS = 8_000


def rows(data_folder: Path) -> list[Row]:
    """Twelve rows, against the paper's Expected column. Raises DataError."""
    path = data_folder / FILE
    names = ("temp", "gamma", "alpha", "c", "speedup_expected", "speedup_measured")
    frame = read_table(path, ("task", "draft", *names))
    figures = numbers(frame, path, *names).tolist()
    found = []
    for (task, draft), (temperature, gamma, alpha, cost, expected, measured) in zip(
        frame.select("task", "draft").rows(), figures, strict=True
    ):
        found.append(
            compared(
                "V1",
                f"{task} {draft}, temperature {temperature:g}",
                expected,
                speed_up(alpha, round(gamma), cost),
                bound=BOUND,
                relative=False,
                note=f"formula {formula(alpha, round(gamma), cost):.2f}, measured {measured:g}",
            )
        )
    return found


def speed_up(alpha: float, gamma: int, cost: float, tokens: int = _TOKENS) -> float:
    """Speed-up of the engine loop over a pass per token, with hazard alpha and K = gamma."""
    lengths = (tokens,)
    arms = Arms(
        load=lambda: OpenLoad(one_per_record(lengths, prompt_tokens=1)),
        lengths=lengths,
        profile=HardwareProfile(
            schema=1,
            name="unit",
            source="a target pass takes one second",
            memory_bytes=1e12,
            weight_bytes=22e9,
            kv_bytes_per_token=1.0,
            layers=24,
            fixed=1.0,
            drafts={"draft_model": MeasuredDraft(pass_=cost)},
        ),
        drafter=DraftModel(),
    )
    hazard_length = sum(alpha**j for j in range(gamma + 1))
    # Without drafts a token takes one unit of time, by construction of the profile.
    return arms.speculating(gamma, hazard_length).throughput_tok_s


def formula(alpha: float, gamma: int, cost: float) -> float:
    """Theorem 3.8 of the paper."""
    return (1.0 - alpha ** (gamma + 1)) / ((1.0 - alpha) * (gamma * cost + 1.0))
