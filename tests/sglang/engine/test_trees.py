"""Trees of a depth that changes at every step, chains among them: the text is that without drafts.

SGLang's default for Llama is a tree. Depth 1 is listed with two nodes, which is a chain; the
others are derived trees.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from records import by_request, check_labels, outcomes, plans, read, read_settled, status
from samples import COMPARISONS, LEVEL, PROMPTS, TOKENS, p_values, sample
from serving import PATIENT, PLAIN
from traffic import mixed_lengths

from adaptive_spec.adapters.sglang.settings import TREES_VARIABLE

pytestmark = pytest.mark.engine

STEPS, TOPK, NODES = 5, 4, 8
CANDIDATES = {"1": {"candidate_steps": [0, 1, 3, 5]}}
DERIVED, WITH_A_CHAIN = {0: 1, 1: 3, 3: 6, 5: 8}, {0: 1, 1: 2, 3: 5, 5: 8}
ADAPTIVE = {"policy": "recorded_policies:TreePolicy", "memory_guard": False, "fail_open": PATIENT}
DRAWS = 100_000


def tree(shelf: Any, algorithm: str, folder: Any, listed: str = "", **options: Any) -> Any:
    """An engine of SGLang's default tree, with SGLang's own option for adaptive K left out."""
    candidates = folder / "candidates.json"
    candidates.write_text(json.dumps(CANDIDATES), encoding="utf-8")
    return shelf.get(
        algorithm,
        adaptive=ADAPTIVE,
        variables={TREES_VARIABLE: listed},
        without=("speculative_adaptive",) if algorithm != "STANDALONE" else (),
        speculative_adaptive_config=str(candidates),
        speculative_num_steps=STEPS,
        speculative_eagle_topk=TOPK,
        speculative_num_draft_tokens=NODES,
        **options,
    )


@pytest.mark.parametrize(
    ("algorithm", "listed", "nodes", "turns"),
    [
        ("EAGLE", "", DERIVED, 2),
        pytest.param("EAGLE", "1:2,3:5", WITH_A_CHAIN, 10, marks=pytest.mark.long),
        pytest.param("EAGLE3", "1:2,3:5", WITH_A_CHAIN, 10, marks=pytest.mark.long),
        pytest.param("STANDALONE", "1:2,3:5", WITH_A_CHAIN, 10, marks=pytest.mark.long),
    ],
)
def test_text_and_labels_while_the_depth_changes(
    reference: dict[str, Any],
    shelf: Any,
    tmp_path: Any,
    algorithm: str,
    listed: str,
    nodes: dict[int, int],
    turns: int,
) -> None:
    engine = tree(shelf, algorithm, tmp_path, listed)
    once = mixed_lengths()
    jobs = [replace(job, name=f"{job.name}.{turn}") for turn in range(turns) for job in once]
    answers = engine.run(jobs)
    for name, answer in answers.items():
        assert answer.tokens == reference[name.partition(".")[0]].tokens, name
    record = read_settled(engine.record_file)
    ladder, counts = (",".join(map(str, each)) for each in (nodes, nodes.values()))
    assert f"ladder={ladder} scheduling=sync nodes={counts} " in engine.log
    ran = {line["step"]: line["depth"] for line in outcomes(record) if line["ids"]}
    asked = {line["step"]: line for line in plans(record) if line["step"] in ran}
    free = [step for step, line in asked.items() if max(line["available"]) >= line["k"]]
    assert {ran[step] for step in free} == set(nodes)
    assert [ran[step] for step in free] == [asked[step]["k"] for step in free]
    # SGLang reserves the slots that a step drafts into before the depth is known.
    assert {line["slots"] for line in record if line["kind"] == "reserve"} == {STEPS * TOPK}
    told = by_request(record)
    check_labels(answers, told, STEPS)
    assert sum(totals["accepted"] for totals in told.values()) > 2 * len(jobs)
    assert status(engine.status_file)["fail_opens"] == {}
    assert "Traceback" not in engine.log


@pytest.mark.long
def test_sampled_output_of_trees_has_the_distribution_without_speculation(
    shelf: Any, tmp_path: Any
) -> None:
    each = DRAWS // (PROMPTS * TOKENS)
    unspeculated = sample(shelf.get(**PLAIN), each)
    engine = tree(shelf, "EAGLE", tmp_path, "1:2,3:5", **PLAIN)
    since = len(read(engine.record_file))
    speculated = sample(engine, each)
    told = by_request(read_settled(engine.record_file, since))
    assert sum(totals["accepted"] for totals in told.values()) > DRAWS // 20, "hardly any draft"
    values = p_values(speculated, unspeculated)
    assert len(values) == COMPARISONS
    assert min(values) > LEVEL, values
