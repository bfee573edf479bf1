#!/usr/bin/env bash
# compute-sanitizer over a short run of round trips on two GPUs; ends with an error where it reports any.
# After `npm run build:gpu-test`:   test/gpu/sanitize.sh [memcheck|racecheck|synccheck ...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
status=0
for tool in "${@:-memcheck}"; do
  timeout 120 "$sanitizer" --tool "$tool" --target-processes application-only --error-exitcode 9 \
    node .gpu-test/test/gpu/programs/short-run.js || status=$?
done
exit "$status"
