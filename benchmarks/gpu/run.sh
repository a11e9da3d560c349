#!/bin/sh
# Run parts of the GPU bench: sh benchmarks/gpu/run.sh [PART ...]     (from the repository root)
#
# Parts 1, 2, 3 and 4 take about eight minutes each; without a name all four run. Each goes on where
# an earlier run stopped. Set
#   OUT       folder of the results (default out/gpu), a few files; earlier results in .gpu/results
#             are taken up
#   SCRATCH   folder for logs and step traces, which are packed into OUT (default out/gpu-scratch)
#   PACKED    what benchmarks/gpu/pack.py made (default .gpu/site.tar.xz); without the file, the
#             Python in PYTHON must have vLLM and this project installed
#   PYTHON    interpreter (default python3)
#   MODELS    folder of the models, 22 GB (default: /dev/shm if there is room, else /tmp)
#   TINY      --tiny: toy models on a CPU, to try this script
#   COMPILATION   vLLM's compilation_config; where no engine starts, one without torch.compile is
#             tried
set -u
PYTHON=${PYTHON:-python3} OUT=${OUT:-out/gpu} PACKED=${PACKED:-.gpu/site.tar.xz} TINY=${TINY:-}
SITE=${SITE:-/tmp/adaptive-spec-site} SCRATCH=${SCRATCH:-out/gpu-scratch}
mkdir -p "$OUT" "$SCRATCH"
[ -f "$OUT/results.jsonl" ] || cp "$SCRATCH"/results.jsonl .gpu/results/* "$OUT" 2>/dev/null
[ -d "$SCRATCH/traces" ] || [ ! -f "$OUT/traces.tgz" ] || tar -xzf "$OUT/traces.tgz" -C "$SCRATCH"

if [ -f "$PACKED" ]; then
  "$PYTHON" benchmarks/gpu/unpack.py "$PACKED" "$SITE" || exit 1
  export PYTHONPATH="$PWD:$SITE${PYTHONPATH:+:$PYTHONPATH}"
fi
export VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-/tmp/vllm-cache}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/inductor-cache}
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-/tmp/numba-cache} HF_HUB_OFFLINE=1

if [ -z "${MODELS:-}" ]; then
  room=$(df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
  if [ -z "$TINY" ] && [ "${room:-0}" -ge 30 ]; then MODELS=/dev/shm/bench-pair
  else MODELS=/tmp/bench-pair${TINY:+-tiny}; fi
fi
size=8b; [ -z "$TINY" ] || size=tiny
date +%T
"$PYTHON" benchmarks/bench_pair/llama_shapes.py "$MODELS" --size "$size" || exit 1

bench() {
  date +%T
  "$PYTHON" -m benchmarks.gpu.main "$OUT" --scratch "$SCRATCH" --models "$MODELS" $TINY \
    ${COMPILATION:+--compilation "$COMPILATION"} "$@"
}
part() {
  case $1 in
    1) bench --stage smoke sweep --repeats 1 --seconds 400 ;;
    2) bench --stage sweep overhead ramp --repeats 2 --seconds 450 ;;
    3) bench --stage step_costs confidence adaptive --repeats 2 --loads 1 16 64 256 --seconds 450 ;;
    4) bench --stage sweep --temperatures 0 --repeats 1 --loads 1 16 128 --seconds 200
       bench --stage sweep --method draft_model --repeats 1 --loads 1 16 128 --seconds 200
       bench --stage server --seconds 60 ;;
    *) echo "no part $1: choose 1, 2, 3 or 4"; return 2 ;;
  esac
}
status=0
for each in ${*:-1 2 3 4}; do
  part "$each"; status=$?
  if [ "$status" -eq 3 ] && [ -z "${COMPILATION:-}" ]; then  # no engine started: uncompiled
    COMPILATION='{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}'
    part "$each"; status=$?
  fi
  cp "$OUT/results.jsonl" "$SCRATCH" 2>/dev/null
  for folder in logs traces; do
    [ ! -d "$SCRATCH/$folder" ] || tar -czf "$OUT/$folder.tgz" -C "$SCRATCH" "$folder"
  done
done
date +%T
exit "$status"
