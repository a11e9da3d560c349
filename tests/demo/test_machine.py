from __future__ import annotations

import os
import subprocess
import sys

from demo.machine import busy_seconds, seconds_of_others

SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"


def test_what_a_group_uses_is_not_counted_as_that_of_others() -> None:
    def seconds() -> tuple[float, float]:
        return busy_seconds(), seconds_of_others({os.getpgrp(), child.pid})

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True, **pipes) as child:
        busy, others = seconds()
        assert child.stdout is not None
        child.stdout.readline()
        more_busy, more_others = seconds()
        child.communicate(b"\n")
    assert (more_busy - busy) - (more_others - others) > 0.4
