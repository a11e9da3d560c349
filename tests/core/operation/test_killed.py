"""A process killed at any moment leaves files that the next start reads, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from adaptive_spec.config import Trace
from adaptive_spec.operation.trace import read_trace
from tests.core.operation.test_saved_state import controller, learned, run

CODE = """
import sys
from pathlib import Path
from adaptive_spec.config import Trace
from tests.core.operation.test_saved_state import controller, run
folder = Path(sys.argv[1])
target = controller(
    folder / "state",
    status_file=str(folder / "status.json"),
    trace=Trace(directory=str(folder / "trace"), segment_mb=0.02, max_segments=4),
)
while True:
    run(target, 60, accepted=1, seconds=1.0)
    print("steps", flush=True)
"""


def test_killed_while_writing_and_started_again(tmp_path: Path) -> None:
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", CODE, str(tmp_path)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            for _ in range(3):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        assert msgspec.json.decode((tmp_path / "status.json").read_bytes())["fail_opens"] == {}
        assert sum(1 for _ in read_trace(tmp_path / "trace")) > 20
        assert len(list((tmp_path / "trace").iterdir())) <= 4
    trace = Trace(directory=str(tmp_path / "trace"), segment_mb=0.02, max_segments=4)
    after = controller(tmp_path / "state", status_file=str(tmp_path / "status.json"), trace=trace)
    assert learned(after)
    run(after, 60, accepted=1, seconds=1.0)
    after.close()
    assert after.status()["output_failures"] == {}
    assert not list(tmp_path.rglob("*.new"))
