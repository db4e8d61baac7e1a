#!/usr/bin/env bash
# From nothing to a better instruction: sets up, trains the embedded model on the embedded task for a few minutes,
# and measures the best rewrite against the initial instruction on the test split.
#   bash scripts/quickstart.sh [further arguments of train.py, as --set seed=2]
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
PATH="$PWD/.venv/bin:$PATH"

run=quickstart-$(date +%Y%m%d-%H%M%S)
echo "quickstart: training, into runs/$run"
python train.py --config configs/quickstart.json "$@" --set run_name="$run"
echo "quickstart: measuring on the test split, which training never saw"
python evaluate.py --prompts "runs/$run" --task sentiment --top-k 1

cat <<END

The run lies in runs/$run:
  best.json      the best instruction, with its held-out score beside the initial one's
  log.jsonl      every rewrite with its reward          metrics.jsonl   every step's figures
Next: configs/sst2.json trains on real film reviews; README.md explains the rest.
END
