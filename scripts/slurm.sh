#!/usr/bin/env bash
# Trains on several machines under Slurm: torchrun on each of them, a rank on each GPU. From the project's root:
#   sbatch scripts/slurm.sh --config configs/math.json --set base_url=http://HOST:8000/v1
#   sbatch --nodes 4 --gpus-per-node 4 --partition NAME scripts/slurm.sh ...    sbatch's own options go before the script
#   bash scripts/slurm.sh --dry-run --config ...                                prints what would run, and runs nothing
#SBATCH --job-name=prewrite
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --output=%x-%j.log
set -euo pipefail
# sbatch runs a copy of this file that lies elsewhere.
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"

fail() { printf 'slurm: %s\n' "$@" >&2; exit 2; }

dry_run=
[ "${1:-}" != --dry-run ] || { dry_run=1; shift; }
[ $# -gt 0 ] || fail "no arguments for train.py: give at least --config FILE"
[ -e train.py ] || fail "no train.py in $PWD: call sbatch in the project's root"
torchrun=$(PATH="$PWD/.venv/bin:$PATH" command -v torchrun) ||
  fail "no torchrun in $PWD/.venv/bin: run scripts/setup.sh first, on a machine with a GPU"

if [ -n "${SLURM_JOB_ID:-}" ]; then
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
elif [ -n "$dry_run" ]; then  # outside a job: names that stand for what Slurm will give
  first=FIRST_NODE
else
  fail "not in a Slurm job: sbatch $0 ..., or bash $0 --dry-run ... to see what would run"
fi
nodes=${SLURM_JOB_NUM_NODES:-2}
port=$((20000 + ${SLURM_JOB_ID:-0} % 10000))  # jobs that share a machine do not share it

threads=$((${SLURM_CPUS_ON_NODE:-8} / ${SLURM_GPUS_ON_NODE:-8}))

# --kill-on-bad-exit: where one machine fails, Slurm ends the others too. --cpu-bind: the one task may use every core.
# OMP_NUM_THREADS: torchrun would give each rank one thread, with which an offloaded optimizer takes for ever.
command=(
  srun --nodes "$nodes" --ntasks-per-node 1 --kill-on-bad-exit=1 --cpu-bind=none
  env OMP_NUM_THREADS="${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}"
  "$torchrun" --nnodes "$nodes" --nproc-per-node gpu
  --rdzv-backend c10d --rdzv-endpoint "$first:$port" --rdzv-id "${SLURM_JOB_ID:-JOB}"
  train.py "$@"
)
printf 'slurm: in %s:' "$PWD"
printf ' %q' "${command[@]}"
printf '\n'
[ -n "$dry_run" ] || exec "${command[@]}"
