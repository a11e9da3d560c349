"""The command line in this process, which has imported and compiled what commands need."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from adaptive_spec.commands import cli


def called(
    *arguments: object, cwd: Path | None = None, columns: int = 200, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `adaptive-spec` as a user who has set none of its variables.

    Args:
        arguments: words behind the program's name.
        cwd: folder to run in.
        columns: of the terminal.
        variables: of the environment.
    """
    environment = {key: value for key, value in os.environ.items() if "ADAPTIVE_SPEC" not in key}
    environment |= {"COLUMNS": str(columns), "NO_COLOR": "1", **variables}
    command = ["adaptive-spec", *map(str, arguments)]
    out, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "argv", command),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        try:
            cli.main()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(command, status, out.getvalue(), errors.getvalue())
