"""Test only, an SGLang plugin: writes the K of every step to a file of each rank.

Active where the variable RANK_RECORD names the beginning of the files' names.
"""

import os
import sys
from pathlib import Path
from typing import Any


def register() -> None:
    """Called by SGLang in each of its processes."""
    beginning = os.environ.get("RANK_RECORD")
    if not beginning or "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    file = Path(f"{beginning}.{os.getpid()}")

    def write(batch_size: int, k: int) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{batch_size} {k}\n")

    def after_activation(result: Any, self: Any, batch_size: int, *_: Any, **__: Any) -> None:
        write(batch_size, self.worker.speculative_num_steps)

    def before_forward(self: Any, batch: Any, *_: Any, **__: Any) -> None:
        if batch.forward_mode.is_decode():
            write(len(batch.reqs), self.draft_token_num - 1)

    speculative = "sglang.srt.speculative."
    HookRegistry.register(
        speculative + "adaptive_runtime_state.AdaptiveController.activate_step_by_batch",
        after_activation,
        HookType.AFTER,
    )
    HookRegistry.register(
        speculative + "ngram_worker.NGRAMWorker.forward_batch_generation",
        before_forward,
        HookType.BEFORE,
    )
