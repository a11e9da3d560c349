"""TP = 2 on gloo: both ranks run the same K at every step, though their clocks differ."""

import os
from pathlib import Path
from typing import Any

import pytest
from records import plans, read
from serving import LADDER, PATIENT, Job
from traffic import prompts

pytestmark = pytest.mark.engine


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3", "STANDALONE", "ADAPTIVE_NGRAM"])
def test_ranks_run_the_same_k_at_every_step(shelf: Any, tmp_path: Path, algorithm: str) -> None:
    steps = 1000
    noisy: dict[str, Any] = {
        "policy": "recorded_policies:NoisyClockPolicy",
        "memory_guard": False,
        "fail_open": PATIENT,
    }
    engine = shelf.get(
        algorithm,
        adaptive=noisy,
        variables={
            "RANK_RECORD": str(tmp_path / "rank"),
            # SGLang wants a socket, or a set of cores, for each rank.
            "SGLANG_CPU_OMP_THREADS_BIND": f"0|{min((os.cpu_count() or 1) - 1, 1)}",
        },
        tp_size=2,
        max_total_tokens=6000,
    )
    turn = 0
    while len(plans(read(engine.record_file))) < steps:
        jobs = [
            Job(f"{turn}-{index}", text, {"max_new_tokens": (index + 1) * steps // 4})
            for index, text in enumerate(prompts(3, 51 + turn))
        ]
        answers = engine.run(jobs)
        assert all(len(answers[job.name].tokens) == job.options["max_new_tokens"] for job in jobs)
        turn += 1
    first, second = (path.read_text().splitlines() for path in sorted(tmp_path.glob("rank.*")))
    shared = min(len(first), len(second))  # a rank may be a line ahead
    assert shared >= steps
    assert first[:shared] == second[:shared]
    assert {int(line.split()[1]) for line in first} == set(LADDER)
    assert "ranks=2" in engine.log
    assert engine.log.count("adaptive_spec: mode=on") == 1
