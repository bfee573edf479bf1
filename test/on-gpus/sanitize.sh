#!/usr/bin/env bash
# compute-sanitizer over a short run of round trips on two GPUs; ends with an error where it reports any.
# After `npm run build:gpu-test`:   test/on-gpus/sanitize.sh [--processes] [memcheck|racecheck|synccheck ...]
# The ranks share one process; --processes gives each its own, for tools that hold back a launch until the kernel
# before it has ended: one process would then never launch what the first rank's kernel waits for.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
check() {
  local options=()
  # A driver call that fails is no fault here: windows ask for fabric handles, and most machines refuse.
  [[ $1 == memcheck ]] && options=(--report-api-errors no)
  timeout -k 10 270 "$sanitizer" --tool "$1" "${options[@]}" --target-processes application-only --error-exitcode 9 \
    node .gpu-test/test/on-gpus/programs/short-run.js
}
processes=
if [[ ${1-} == --processes ]]; then
  shift
  processes=yes
  export HEDDLE_WORLD=2 HEDDLE_ADDRESS=${HEDDLE_ADDRESS:-127.0.0.1:29417}
fi
status=0
for tool in "${@:-memcheck}"; do
  if [[ $processes ]]; then
    HEDDLE_RANK=1 check "$tool" &
    HEDDLE_RANK=0 check "$tool" || status=$?
    wait $! || status=$?
  else
    check "$tool" || status=$?
  fi
done
exit "$status"
