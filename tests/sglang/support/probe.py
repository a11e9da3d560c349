"""Loads SGLang's plugins as a scheduler process does, and prints what they changed, as JSON.

    python probe.py CONFIG

One line for a process in which nothing is switched on, one for a process with that configuration.
"""

import importlib
import importlib.util
import json
import os
import sys
from typing import Any

MODULES = (
    "managers.scheduler",
    "managers.schedule_batch",
    "managers.scheduler_components.batch_result_processor",
    "managers.scheduler_components.internal_state",
    "speculative.adaptive_runtime_state",
    "speculative.adaptive_spec_params",
    "speculative.eagle_worker_v2",
    "speculative.ngram_worker",
    "speculative.spec_info",
    "speculative.spec_registry",
    "speculative.standalone_worker_v2",
)
"""What hooks could be in; 0.5.18 to 0.5.21 have no `internal_state`."""


def main() -> None:
    """Import first, as the scheduler does, then load: twice, since importing takes longest."""
    found = filter(importlib.util.find_spec, (f"sglang.srt.{name}" for name in MODULES))
    modules = [importlib.import_module(name) for name in found]
    print(flush=True)
    for config in ("", sys.argv[1]):
        child = os.fork()
        if child == 0:
            if config:
                os.environ["ADAPTIVE_SPEC_CONFIG"] = config
            describe(modules)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"a process with configuration {config!r} has failed")


def describe(modules: list[Any]) -> None:
    """Load the plugins; what of SGLang is ours then."""
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry

    load_plugins()
    changed, count = [], 0
    for module in modules:
        for owner in [module, *classes_of(module)]:
            for name, value in vars(owner).items():
                if callable(value):
                    count += 1
                    if is_ours(value):
                        changed.append(f"{owner.__name__}.{name}")
    print(
        json.dumps(
            {
                "ours": sorted(changed),
                "functions": count,
                "hooks": sorted(
                    target
                    for target, hooks in HookRegistry._hooks.items()
                    if any(is_ours(hook) for _, hook, _ in hooks)
                ),
                "modules": sorted(name for name in sys.modules if name.startswith("adaptive_spec")),
            }
        )
    )


def classes_of(module: Any) -> list[type]:
    """Classes that the module defines."""
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def is_ours(function: Any) -> bool:
    """Defined by us, or wrapped around one of ours."""
    seen = []
    while function is not None and function not in seen:
        seen.append(function)
        held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        for each in [function, *held]:
            if str(getattr(each, "__module__", "")).startswith("adaptive_spec"):
                return True
        function = getattr(function, "__wrapped__", None)
    return False


if __name__ == "__main__":
    main()
