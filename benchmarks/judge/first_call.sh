#!/bin/sh
# The first minutes on a GPU:  sh benchmarks/judge/first_call.sh [first | second]      (from the root)
#
# For a bare Hopper machine without a network, lent by the minute. Every result is written when it
# is there, so a cut loses nothing, and the same command goes on where it stopped.
#
#   first    0 s  unpack vLLM and its dependencies (15 s)
#           15 s  make the models of the bench pair in Llama 3.1 8B's shape on the GPU (20 s)
#           35 s  start three engines at once: no speculation, vLLM with its table of K, adaptive-spec
#                 (EAGLE, graphs; torch.compile, else graphs alone, else eager) (115 s)
#          150 s  greedy answers of 32 requests in every arm (15 s)
#          165 s  16, 1, 64, 128 clients, every arm for 3 s, arms interleaved, twice (270 s)
#          435 s  the plugin's own CPU time per step, then step times by tokens, context and depth,
#                 for a profile, until the time is up (what is left follows in a second run of it)
#   second   0 s  the draft model in Llama 3.2 1B's shape (10 s)
#           10 s  start two engines: varlen and uniform graphs (45 s)
#           55 s  step times of both (30 s)
#           85 s  16 and 64 clients: fixed K, one K per batch, K per request, for 3 s each (45 s)
#          130 s  start three engines for n-gram drafts: none, vLLM at K = 5, adaptive-spec (45 s)
#          175 s  their greedy answers, then 1, 16, 64, 128 clients, every arm for 3 s (80 s)
#          255 s  the gain over vLLM's own K at 64 clients by audit blocks (60 s)
#
# Set
#   OUT       folder of the results (default out/gpu)
#   SCRATCH   folder for logs and step traces, which are packed into OUT (default out/gpu-scratch)
#   PACKED    what benchmarks/judge/gpu/pack.py made (default .gpu/site.tar.xz)
#   FALLBACK  the same of vLLM 0.26 (pack.py .gpu-0.26 --vllm 0.26.0; default .gpu-0.26/site.tar.xz):
#             used where PACKED is missing or none of its engines starts. Without either file, the
#             Python in PYTHON must have vLLM and this project installed
#   PYTHON    interpreter (default python3)
#   MODELS    folder of the models, 20 GB (default: /dev/shm if there is room, else /tmp)
#   SECONDS_LEFT  after which no cell is begun (default 450 and 325)
#   TINY      --tiny: toy models on a CPU, to try this script
#   COMPILATION   vLLM's compilation_config (default: vLLM's own; where no engine starts, graphs
#             alone, then eager)
set -u
PYTHON=${PYTHON:-python3} OUT=${OUT:-out/gpu} TINY=${TINY:-} PATH_BEFORE=${PYTHONPATH:-}
PACKED=${PACKED:-.gpu/site.tar.xz} FALLBACK=${FALLBACK:-.gpu-0.26/site.tar.xz}
SITE=${SITE:-/tmp/adaptive-spec-site} SCRATCH=${SCRATCH:-out/gpu-scratch}
COMPILATION=${COMPILATION:-}
part=${1:-first}
drafter=eagle; [ "$part" = first ] || drafter=draft
look_up=ngram_gpu; [ -z "$TINY" ] || look_up=ngram  # the drafter of a CPU
mkdir -p "$OUT" "$SCRATCH"
[ -f "$OUT/results.jsonl" ] || cp "$SCRATCH/results.jsonl" "$OUT" 2>/dev/null

began=$(date +%s)
left() { echo $((${SECONDS_LEFT:-$1} - $(date +%s) + began)); }
say() { echo "$(date +%T) $*"; }

use_packed() {  # file, folder
  say "unpack $1"
  "$PYTHON" benchmarks/judge/gpu/unpack.py "$1" "$2" || return 1
  export PYTHONPATH="$PWD:$2${PATH_BEFORE:+:$PATH_BEFORE}"
}
use_fallback() {
  # vLLM 0.26 runs EAGLE on runner V2 at a fixed depth.
  export VLLM_USE_V2_MODEL_RUNNER=0
  use_packed "$FALLBACK" "$SITE-0.26"
}
if [ -f "$PACKED" ]; then use_packed "$PACKED" "$SITE" || exit 1
elif [ -f "$FALLBACK" ]; then use_fallback || exit 1; FALLBACK=
fi
export VLLM_CACHE_ROOT=${VLLM_CACHE_ROOT:-/tmp/vllm-cache}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/inductor-cache}
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-/tmp/numba-cache} HF_HUB_OFFLINE=1

say "models"
if [ -z "${MODELS:-}" ]; then
  room=$(df --output=avail -BG /dev/shm 2>/dev/null | tail -1 | tr -dc 0-9)
  if [ -z "$TINY" ] && [ "${room:-0}" -ge 24 ]; then MODELS=/dev/shm/bench-pair
  else MODELS=/tmp/bench-pair${TINY:+-tiny}; fi
fi
size=8b; [ -z "$TINY" ] || size=tiny
"$PYTHON" benchmarks/bench_pair/llama_shapes.py "$MODELS" --size "$size" --only target "$drafter" || exit 1

bench() {
  say "$*"
  "$PYTHON" -m benchmarks.judge.gpu.main "$OUT" --scratch "$SCRATCH" --models "$MODELS" $TINY \
    ${COMPILATION:+--compilation "$COMPILATION"} "$@"
}
keep() {
  cp "$OUT/results.jsonl" "$SCRATCH" 2>/dev/null
  for folder in logs traces; do
    [ ! -d "$SCRATCH/$folder" ] || tar -czf "$OUT/$folder.tgz" -C "$SCRATCH" "$folder"
  done
}
run() {
  case $part in
    first) bench --stage smoke sweep own step_costs --seconds "$(left 450)" ;;
    second)
      bench --method draft_model --stage graphs --seconds "$(left 325)" --set 'loads=[16,64]'
      first=$?
      bench --method "$look_up" --stage smoke sweep audit --seconds "$(left 325)" --set repeats=1 'ks=[5]'
      last=$?
      [ "$first" -ne 0 ] || first=$last
      return "$first" ;;
    *) echo "no part $part: choose first or second"; return 2 ;;
  esac
}
run_until_one_starts() {
  compilation=$COMPILATION
  run; status=$?
  for COMPILATION in '{"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}' \
    '{"mode": 0, "cudagraph_mode": "NONE"}'; do
    [ "$status" -eq 3 ] || break  # an engine has started
    keep
    run; status=$?
  done
  COMPILATION=$compilation
}
run_until_one_starts
if [ "$status" -eq 3 ] && [ -f "$FALLBACK" ]; then
  # One file has results of one version.
  mv "$OUT/results.jsonl" "$OUT/nothing_started.jsonl"; rm -f "$SCRATCH/results.jsonl"
  use_fallback && run_until_one_starts
fi
keep
say "done, status $status"
exit "$status"
