#!/usr/bin/env bash
# Triton 3.9.0 (with torch 2.13.0+cpu and numpy 2.3.5, all public).
#
# A mask that joins a block of truth values with a scalar one, `(i < n) & (tl.load(flag) > 0)`,
# compiles: the scalar is spread over the block and stays one bit wide. TRITON_INTERPRET=1 keeps the
# compared operand's type, int32, beside the result of a comparison, and spreads it over the block as
# that type (`create_splat` of runtime/interpreter.py). The conjunction is int32 then, and the load
# refuses it: "mask has unsupported dtype".
# vLLM 0.32's n-gram drafter for its model runner V2 has such a mask (its second kernel), so that
# Triton cannot interpret it as it stands.
#
# Seen:
#   compiled for sm_90: the mask is tensor<16xi1>
#   interpreted: ValueError('mask has unsupported dtype')
#
# Needs CPython 3.11 and the package indexes; 2 GB. Exit status 1: Triton behaves otherwise now.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip install --quiet --no-deps"
# PyPI has no +cpu builds of torch.
$pip torch==2.13.0+cpu || $pip --index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu
$pip triton==3.9.0 numpy==2.3.5 filelock==4.2.11 typing_extensions==4.16.0 sympy==1.14.0 \
    mpmath==1.3.0 networkx==3.6.1 Jinja2==3.1.6 MarkupSafe==3.0.4 fsspec==2026.9.0
cat > "$folder/run.py" <<'PYTHON'
import sys

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def copy(source, flag, target, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = (i < n) & (tl.load(flag) > 0)
    tl.store(target + i, tl.load(source + i, mask=mask, other=0))


if sys.argv[1] == "compile":
    types = {"source": "*i32", "flag": "*i32", "target": "*i32", "n": "i32", "BLOCK": "constexpr"}
    made = triton.compile(
        ASTSource(fn=copy, signature=types, constexprs={"BLOCK": 16}),
        target=GPUTarget("cuda", 90, 32),
    )
    [conjunction] = [line for line in made.asm["ttir"].splitlines() if "arith.andi" in line]
    print("compiled for sm_90: the mask is", conjunction.split(" : ")[1].split()[0])
else:
    values = torch.arange(16, dtype=torch.int32)
    try:
        copy[(1,)](values, torch.ones(1, dtype=torch.int32), torch.zeros_like(values), 8, BLOCK=16)
    except Exception as error:
        print("interpreted:", error)
    else:
        print("interpreted: taken")
PYTHON
export TRITON_CACHE_DIR="$folder/cache"
"$folder/venv/bin/python" -W ignore "$folder/run.py" compile | tee "$folder/seen"
TRITON_INTERPRET=1 "$folder/venv/bin/python" -W ignore "$folder/run.py" interpret | tee -a "$folder/seen"
diff - "$folder/seen" <<'SEEN'
compiled for sm_90: the mask is tensor<16xi1>
interpreted: ValueError('mask has unsupported dtype')
SEEN
echo "as stated"
