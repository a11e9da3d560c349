"""`adaptive-spec new-policy`: a package with a policy, its entry point and its test."""

from __future__ import annotations

import keyword
from pathlib import Path

from adaptive_spec.errors import AdaptiveSpecError
from adaptive_spec.policy import available_policies

PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["adaptive-spec"]

[project.entry-points."adaptive_spec.policies"]
{name} = "{module}:{cls}"

[tool.setuptools]
py-modules = ["{module}"]
"""

MODULE = '''\
"""The policy `{name}`: replace the rule in `plan` by yours."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from adaptive_spec import FinishedStep, SpecPlan, StatelessPolicy, StepContext, fixed_plan


class {cls}Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options: the keys of `options` in the configuration."""

    busy: Annotated[int, msgspec.Meta(ge=1)] = 8
    """Batch size from which on one draft is enough."""


class {cls}(StatelessPolicy):
    """All drafts while few requests decode, one draft otherwise."""

    name: ClassVar[str] = "{name}"
    summary: ClassVar[str] = "all drafts in a small batch, one in a large or waiting one"
    Options: ClassVar[type[msgspec.Struct]] = {cls}Options

    def __init__(self, options: {cls}Options, *, seed: int = 0) -> None:
        self._options = options

    def plan(self, context: StepContext) -> SpecPlan:
        """Decide one K for the batch; `fixed_plan` keeps it within what the engine can run."""
        busy = context.waiting > 0 or context.batch_size >= self._options.busy
        k = 1 if busy else context.capability.max_draft_tokens
        return fixed_plan(context, k, "busy" if busy else "room for drafts")

    def observe(self, step: FinishedStep) -> None:
        """Learn here: `step.outcome` has verified, accepted and emitted tokens, and seconds."""
'''

TEST = '''\
"""`{name}` keeps the contract of a policy."""

from adaptive_spec import check_policy
from {module} import {cls}, {cls}Options


def test_the_contract_is_kept() -> None:
    """`check_policy` raises with one line where it is not."""
    report = check_policy(lambda seed: {cls}({cls}Options(), seed=seed))
    print(report)
'''


def make_package(name: str, folder: Path) -> list[Path]:
    """Write the package and return its files.

    Args:
        name: of the policy, letters, digits and underscores.
        folder: that the package's folder is made in.

    Raises AdaptiveSpecError for a name that is no identifier or that an installed policy has, or a
    folder that exists.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise AdaptiveSpecError(
            f"policy name {name!r}: use letters, digits and underscores, such as my_policy"
        )
    if name in available_policies(baselines=True):
        raise AdaptiveSpecError(f"a policy {name!r} is installed; choose another name")
    root = folder / name.replace("_", "-")
    if root.exists():
        raise AdaptiveSpecError(f"{root} exists already")
    words = {
        "name": name,
        "module": name,
        "cls": "".join(part.title() for part in name.split("_")),
        "distribution": f"adaptive-spec-{name.replace('_', '-')}",
    }
    files = {
        "pyproject.toml": PROJECT,
        f"{words['module']}.py": MODULE,
        f"tests/test_{words['module']}.py": TEST,
    }
    try:
        for path, text in files.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text.format(**words), encoding="utf-8")
    except OSError as error:
        raise AdaptiveSpecError(f"{root}: {error.strerror}") from error
    return [root / path for path in files]
