"""The bandits by name, found by dotted path so that no installation is needed."""

from typing import Any

from adaptive_spec.policy import Policy, build_policy

PATHS = {
    "ucb": "ucb:UcbPolicy",
    "thompson": "thompson:ThompsonPolicy",
    "linucb": "linucb:LinUcbPolicy",
}


def bandit(name: str, seed: int = 0, **options: Any) -> Policy:
    return build_policy(f"adaptive_spec.policies.bandits.{PATHS[name]}", options, seed=seed)
