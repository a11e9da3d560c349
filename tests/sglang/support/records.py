"""What the policies of `recorded_policies` and the adapter wrote down about an engine."""

import json
import time
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(file: Path, since: int = 0) -> list[Line]:
    """Lines of a record from number `since` on."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[since:]]


def read_settled(file: Path, since: int = 0) -> list[Line]:
    """The same once every decision has its result, or nothing was written for two seconds.

    A last answer is on its way before the step that it ends is written down; what was planned for
    the step after it never runs.
    """
    lines, since_growth = read(file, since), 0
    while since_growth < 40:
        if {line["step"] for line in plans(lines)} <= {line["step"] for line in outcomes(lines)}:
            break
        time.sleep(0.05)
        before, lines = lines, read(file, since)
        since_growth = since_growth + 1 if len(lines) == len(before) else 0
    return lines


def plans(lines: list[Line]) -> list[Line]:
    """Decisions only."""
    return [line for line in lines if line["kind"] == "plan"]


def outcomes(lines: list[Line]) -> list[Line]:
    """Results only."""
    return [line for line in lines if line["kind"] == "outcome"]


def by_request(lines: list[Line]) -> dict[str, dict[str, int]]:
    """Drafts accepted, drafts verified and steps of each request, as the policy was told."""
    found: dict[str, dict[str, int]] = {}
    for line in outcomes(lines):
        for name, verified, accepted in zip(
            line["ids"], line["verified"], line["accepted"], strict=True
        ):
            totals = found.setdefault(name, {"accepted": 0, "verified": 0, "steps": 0})
            totals["accepted"] += accepted
            totals["verified"] += verified
            totals["steps"] += 1
    return found


def check_labels(answers: dict[str, Any], told: dict[str, dict[str, int]], deepest: int) -> None:
    """Hold what the policy was told against SGLang's own counts; a last step may be untold."""
    for name, answer in answers.items():
        own, seen = answer.meta, told.get(name, {"steps": 0, "accepted": 0})
        if own.get("num_retractions"):
            continue
        unseen = own["spec_verify_ct"] - seen["steps"]
        assert unseen in (0, 1), name
        assert 0 <= own["spec_num_correct_drafts"] - seen["accepted"] <= unseen * deepest, name


def status(file: Path) -> dict[str, Any]:
    """The adapter's status file; it follows within about a second of decoding."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def settled_status(file: Path, steps: int) -> dict[str, Any]:
    """The same once it counts this many steps."""
    for _ in range(200):
        if file.exists() and status(file)["steps"] >= steps:
            break
        time.sleep(0.05)
    return status(file)
