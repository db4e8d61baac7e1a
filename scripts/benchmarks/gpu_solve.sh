#!/usr/bin/env bash
# Solving on one GPU: trains for at most so many seconds, then scores the model before and after on the test split, with
# the system prompt that it was trained with. Goes on where a call before it was ended.
#   usage: MODEL=<folder> STATE=<folder kept between calls> [CONFIG=configs/solve_math.json] [TASK=gsm8k] [SECONDS_OF_TRAINING=840] \
#          [EVALUATE="flags of evaluate.py"] scripts/benchmarks/gpu_solve.sh [flags of train.py ...]
set -uo pipefail
: "${MODEL:?}" "${STATE:?}"
config=${CONFIG:-configs/solve_math.json} task=${TASK:-gsm8k}
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
mkdir -p "$STATE/runs"
system=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rollout"].get("system_prompt", ""))' "$config")
date
[ -d "$STATE/runs/solve/checkpoints" ] ||
  timeout --signal=TERM "${SECONDS_OF_TRAINING:-840}" python3 train.py --config "$config" --set policy.model="$MODEL" \
    --set run_name=solve --set output_dir="$STATE/runs" "$@"
date
trained=$(ls -d "$STATE"/runs/solve/checkpoints/step_* | tail -n 1)
nvidia-smi --query-gpu=memory.used --format=csv,noheader 2>/dev/null
for model in "$trained" "$MODEL"; do
  # shellcheck disable=SC2086  # flags are words
  python3 evaluate.py --model "$model" --task "$task" --set task_model.temperature=0 --set max_tokens=512 --set max_model_len=4096 \
    ${system:+--set task_model.system_prompt="$system"} ${EVALUATE-}
done
date
