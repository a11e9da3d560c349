"""The installed policies, with options under which they decide something in a small world."""

from pathlib import Path
from typing import Any

from adaptive_spec import Capability, Level
from adaptive_spec.policies.goodput import GoodputPolicy
from adaptive_spec.policy import Policy, available_policies, build_policy
from tests.losslessness.exact.joint_law import Shown
from tests.losslessness.exact.request import Copies, Drafting
from tests.losslessness.exact.season import Text
from tests.losslessness.exact.server import Server, Signal

OPTIONS: dict[str, dict[str, Any]] = {
    "batch_table": {"table": [[1, 2, 2], [3, 8, 1]]},
    # It tries nothing and learns little: what drafts cost, and are worth, it must know.
    "regression": {"model": str(Path(__file__).with_name("believes_confidence.json"))},
    "trtllm_schedule": {"schedule": [[3, 2], [8, 1]]},
}
LIVE = frozenset({"goodput", "regression", "vllm_adaptive_verification"})
"""Those whose K follows what the drafter says of the round at hand."""
NAMES = tuple(sorted(available_policies(baselines=True)))


def shipped(name: str, seed: int = 1) -> Policy:
    """A new instance."""
    return build_policy(name, OPTIONS.get(name), seed=seed, baselines=True)


def engines(kmax: int) -> dict[str, Capability]:
    """By level: a ladder with gaps, captured sizes, and a free depth."""
    ladder = (0, 1, kmax) if kmax > 2 else (0, kmax)
    captured = tuple(range(2, 2 * kmax + 3, 2))
    return {
        "one K for all": Capability(level=Level.UNIFORM, max_draft_tokens=kmax, ladder=ladder),
        "K per request": Capability(
            level=Level.VERIFY, max_draft_tokens=kmax, token_buckets=captured
        ),
        "K and depth free": Capability(
            level=Level.FULL, max_draft_tokens=kmax, token_buckets=captured
        ),
    }


def experienced(
    policy: Policy,
    capability: Capability,
    rounds: int,
    *,
    signal: Signal = "live",
    shown: Shown = "maximum",
    drafting: Drafting = "sampled",
    copies: Copies = "",
    blocks: bool = False,
) -> Text:
    """Two requests under this policy, some rounds on."""
    text = Text(Server(policy, capability, signal=signal), shown, drafting, copies, blocks=blocks)
    text.run(rounds)
    if isinstance(policy, GoodputPolicy):
        # However little confidence tells of these drafts: it is to be used where it may be.
        policy.acceptance.weight, policy.acceptance._shown = 1.0, 10_000
    return text
