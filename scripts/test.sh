#!/usr/bin/env bash
# Sets up, then lint, types and tests. Arguments go to pytest:
#   bash scripts/test.sh                              everything (tests marked gpu only where there is a GPU)
#   bash scripts/test.sh tests/test_loss.py -m 'not slow'
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"

for folder in "${PREWRITE_DATA:-../shared/data}" "${PREWRITE_CASES:-../shared/cases}"; do
  [ -d "$folder" ] || echo "test: NO FOLDER $folder: the tests that need it are skipped (PREWRITE_DATA, PREWRITE_CASES)"
done

marks=()
nvidia-smi -L >/dev/null 2>&1 || marks=(-m "not gpu")

echo "test: ruff"
ruff check
echo "test: pyright, beside pytest; its findings come last"
types=$(mktemp)
trap 'rm -f "$types"' EXIT
PYRIGHT_PYTHON_IGNORE_WARNINGS=1 pyright >"$types" 2>&1 &
pyright=$!
echo "test: pytest"
# Three workers share out the files: a run that starts its models waits more than it computes. Each process has one thread: several that spin on few cores take several times as long.
# A test that hangs (ranks waiting for one another) is ended with a traceback of every thread.
# Dozens of processes are started: what one has compiled of the project serves the others.
unset PYTHONDONTWRITEBYTECODE
tests=0
OMP_NUM_THREADS=1 pytest -n 3 --dist loadfile --no-loadscope-reorder --timeout 600 "${marks[@]}" "$@" || tests=$?
wait "$pyright" || { cat "$types"; echo "test: pyright found faults"; exit 1; }
cat "$types"
exit "$tests"
