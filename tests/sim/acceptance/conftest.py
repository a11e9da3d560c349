import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GSM8K = "unlicensed/acceptance_specdecodebench_llama31_8b_gsm8k.jsonl.gz"
INSTRUCTCODER = "unlicensed/acceptance_specdecodebench_llama31_8b_instructcoder.jsonl.gz"


@pytest.fixture
def rows_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSON lines, gzip if the name says so."""

    def write(*rows: Any, name: str = "rows.jsonl") -> Path:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        return path

    return write
