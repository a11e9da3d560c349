"""Forms of the stand-in that differ between versions, each as an edit of its text."""

import shutil
from pathlib import Path

STAND_IN = Path(__file__).parents[1] / "stand_in"
EXECUTOR = "_torch/pyexecutor/py_executor.py"

NEWEST_BODY = """\
        update_draft_len(
            self.model_engine,
            scheduled_batch,
            speculation_permanently_disabled=self.speculation_permanently_disabled,
        )
"""
OLDER_BODY = """\
        engine = self.model_engine
        config = engine.spec_config
        if self.speculation_permanently_disabled:
            engine.runtime_draft_len = 0
        elif config.draft_len_schedule and config.spec_dec_mode.support_dynamic_draft_len():
            from tensorrt_llm._torch.speculative.utils import get_draft_len_for_batch_size

            engine.runtime_draft_len = get_draft_len_for_batch_size(
                config.draft_len_schedule, scheduled_batch.batch_size, engine.max_draft_len
            )
        else:
            engine.runtime_draft_len = engine.max_draft_len
        k = engine.runtime_draft_len
        for request in scheduled_batch.generation_requests:
            drafts = request.py_draft_tokens[:k]
            request.py_draft_tokens = drafts + [0] * (k - len(drafts))
"""
OLDER_UTILS = '''\
"""Look-up of a schedule."""


def get_draft_len_for_batch_size(draft_len_schedule, batch_size, max_draft_len):
    fitting = [k for bound, k in draft_len_schedule.items() if batch_size <= bound]
    return fitting[0] if fitting else 0


def is_dynamic(spec_config):
    return bool(
        spec_config.draft_len_schedule and spec_config.spec_dec_mode.support_dynamic_draft_len()
    )
'''


RESERVE = """\
        elif self.model_engine.is_spec_decode:
            # So that the scheduler counts them; drafts at hand stay.
            for request in self._decoding():
                if not request.py_draft_tokens:
                    request.py_draft_tokens = [0] * self.max_total_draft_tokens
                request.draft_tokens = [0] * self.max_total_draft_tokens
"""


def newest(folder: Path) -> Path:
    """The stand-in as it is."""
    del folder
    return STAND_IN


def before_19204(folder: Path) -> Path:
    """Copy the stand-in as main was before #19204: the executor looks K up itself."""
    package = folder / "tensorrt_llm"
    shutil.copytree(STAND_IN / "tensorrt_llm", package)
    edit(package / EXECUTOR, NEWEST_BODY, OLDER_BODY)
    edit(
        package / EXECUTOR,
        "from tensorrt_llm._torch.speculative.utils import update_draft_len\n",
        "",
    )
    (package / "_torch/speculative/utils.py").write_text(OLDER_UTILS)
    runner = package / "_torch/pyexecutor/engine/runners/decoder/runner.py"
    edit(runner, "(schedule, size, largest, least)", "(schedule, size, largest)")
    return folder


def before_16101(folder: Path) -> Path:
    """Copy the stand-in without the room that a batch has for drafts when it is composed."""
    package = folder / "tensorrt_llm"
    shutil.copytree(STAND_IN / "tensorrt_llm", package)
    edit(package / EXECUTOR, RESERVE, "")
    return folder


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text, f"{file}: {before!r}"
    file.write_text(text.replace(before, after))
