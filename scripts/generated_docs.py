"""Write the tables of docs/ that come from the code, or from a recorded validation.

    python scripts/generated_docs.py [--check]

A table stands between `<!-- name -->` and `<!-- /name -->`. With --check the script writes nothing,
and its exit status is 1 if a table differs from the code.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compatibility
import msgspec
import validation_tables

from adaptive_spec.adapters.sglang import rules as sglang_rules
from adaptive_spec.adapters.sglang import versions as sglang_versions
from adaptive_spec.adapters.tensorrt_llm import rules as tensorrt_llm_rules
from adaptive_spec.adapters.tensorrt_llm import versions as tensorrt_llm_versions
from adaptive_spec.adapters.vllm import facts, versions
from adaptive_spec.adapters.vllm import rules as vllm_rules
from adaptive_spec.commands.doctor import PolicyReport, installed_policies
from adaptive_spec.config import Config
from adaptive_spec.engines.rules import markdown_table
from adaptive_spec.operation import metrics
from adaptive_spec.policies.bandit import BanditOptions
from adaptive_spec.policies.goodput import GoodputOptions
from adaptive_spec.policies.regression import RegressionOptions

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks import tree_or_chain  # noqa: E402
from benchmarks.judge import page, real_text  # noqa: E402


def tables() -> dict[str, dict[str, str]]:
    """Every generated table, by file and by the name of its section."""
    measured = page.tables()
    return {
        "README.md": {"results": page.readme_table()},
        "docs/architecture.md": {"evidence": compatibility.evidence()},
        "docs/will_it_work.md": {
            "features": feature_table(),
            "sglang": compatibility.matrix(sglang_versions.VERSIONS),
            "tensorrt_llm": compatibility.matrix(tensorrt_llm_versions.VERSIONS),
            "vllm": compatibility.matrix(versions.VERSIONS),
        },
        "docs/configuration.md": {"config": config_table(Config)},
        "docs/measured.md": measured,
        "docs/mechanisms.md": real_text.tables(real_text.published()),
        "docs/policies.md": {
            "bandit": config_table(BanditOptions, "options."),
            "baselines": baseline_table(),
            "goodput": config_table(GoodputOptions, "options."),
            "policies": policy_table(),
            "regression": config_table(RegressionOptions, "options."),
        },
        "docs/sglang.md": {
            "interplay": markdown_table(sglang_rules.RULES),
            "versions": sglang_versions.VERSIONS.markdown(),
        },
        "docs/tensorrt_llm.md": {
            "interplay": markdown_table(tensorrt_llm_rules.RULES),
            "versions": tensorrt_llm_versions.VERSIONS.markdown(),
        },
        "docs/simulator.md": {**validation_tables.sections(), "trees": tree_or_chain.published()},
        "docs/vllm.md": {
            "figures": metrics.markdown_table(),
            "interplay": markdown_table(vllm_rules.RULES),
            "versions": versions.VERSIONS.markdown(),
        },
    }


def render(file: str, text: str) -> str:
    """A file's text with its generated tables renewed."""
    for name, table in tables()[file].items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, found = re.subn(pattern, rf"\g<1>{_escaped(table)}\n\g<2>", text, flags=re.DOTALL)
        if found != 1:
            raise SystemExit(f"error: {file} has {found} sections `<!-- {name} -->`, not 1")
    return text


def config_table(struct: type[msgspec.Struct], prefix: str = "") -> str:
    """Every key of a structure, its default and what it does."""
    return "\n".join(
        ["| key | default | what it does |", "| --- | --- | --- |", *_rows(struct, prefix)]
    )


def feature_table() -> str:
    """The features that some version of vLLM lacks."""
    lines = ["| feature | missing in vLLM |", "| --- | --- |"]
    for feature in facts.FACTS:
        without = dict.fromkeys(r.version for r in versions.VERSIONS.rows if feature in r.lacks)
        if without:
            lines.append(f"| {feature} | {', '.join(without)} |")
    return "\n".join(lines)


def policy_table() -> str:
    """Every policy of this project that comes with the package."""
    rows = [f"| `{policy.name}` | {policy.summary} |" for policy in _shipped(baselines=False)]
    return "\n".join(["| policy | what it does |", "| --- | --- |", *rows])


def baseline_table() -> str:
    """Every baseline that comes with the package."""
    rows = [
        f"| `{policy.name}` | {policy.summary} | {policy.granularity}"
        f"{', greedy drafts only' if policy.greedy_drafts_only else ''} |"
        for policy in _shipped(baselines=True)
    ]
    return "\n".join(["| baseline | rule | steers |", "| --- | --- | --- |", *rows])


def _shipped(*, baselines: bool) -> list[PolicyReport]:
    own = [policy for policy in installed_policies() if policy.distribution == "adaptive-spec"]
    return [policy for policy in own if bool(policy.source) == baselines]


def _rows(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        nested = field.type
        if isinstance(nested, type) and issubclass(nested, msgspec.Struct):
            yield from _rows(nested, f"{prefix}{field.name}.")
            continue
        default = _default(field)
        shown = "" if default is msgspec.NODEFAULT else f"`{msgspec.json.encode(default).decode()}`"
        meaning = re.sub(r"``(.*?)``", r"`\1`", _meaning(struct, field.name)).replace("|", "\\|")
        yield f"| `{prefix}{field.name}` | {shown} | {meaning[:1].upper() + meaning[1:]} |"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory: Any = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _meaning(struct: type[msgspec.Struct], name: str) -> str:
    """The text under `Attributes:`, or the literal below the field, or the class's first line."""
    source = inspect.getsource(struct)
    under_attributes = rf'^        {name}: (.*?)(?=^        \w+: |^    """)'
    below = rf'^    {name}: [^\n]*\n    """(.*?)"""'
    for pattern in (under_attributes, below):
        if match := re.search(pattern, source, re.DOTALL | re.MULTILINE):
            return " ".join(match.group(1).split())
    return (struct.__doc__ or "").splitlines()[0]


def _escaped(table: str) -> str:
    return table.replace("\\", r"\\")


def main() -> int:
    """Write or check."""
    status = 0
    for name in tables():
        file = ROOT / name
        before = file.read_text(encoding="utf-8")
        after = render(name, before)
        if before == after:
            continue
        if "--check" in sys.argv[1:]:
            print(f"error: tables in {name} are out of step with the code; run `make docs`")
            status = 1
        else:
            file.write_text(after, encoding="utf-8")
            print(f"{name}: tables renewed")
    return status


if __name__ == "__main__":
    sys.exit(main())
