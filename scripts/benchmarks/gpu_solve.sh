#!/usr/bin/env bash
# Solving on one GPU: trains for at most so many seconds, with SFT first where SFT names a config, then scores the model
# after each training and before all on the test split, with the system prompt that it was trained with. A training that
# ended has its checkpoint, and an answer that was paid for is kept: the same call again goes on after them.
#   usage: MODEL=<folder> STATE=<folder kept between calls> [CONFIG=configs/solve_math.json] [TASK=gsm8k] [SECONDS_OF_TRAINING=840] \
#          [SFT=configs/sft_math.json] [SECONDS_OF_SFT=300] [EVALUATE="flags of evaluate.py"] \
#          scripts/benchmarks/gpu_solve.sh [flags of train.py for what CONFIG trains ...]
set -uo pipefail
: "${MODEL:?}" "${STATE:?}"
config=${CONFIG:-configs/solve_math.json} task=${TASK:-gsm8k} sft=${SFT-}
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
mkdir -p "$STATE/runs"
system=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["rollout"].get("system_prompt", ""))' "$config")

train() { # name, config, model, seconds, flags: sets `trained` to the last checkpoint
  local run=$STATE/runs/$1 name=$1 config=$2 model=$3 seconds=$4
  shift 4
  date
  [ -d "$run/checkpoints" ] ||
    timeout --signal=TERM "$seconds" python3 train.py --config "$config" --set policy.model="$model" \
      --set run_name="$name" --set output_dir="$STATE/runs" --set save_steps=0 "$@"
  trained=$(ls -d "$run"/checkpoints/step_* | tail -n 1)
  [ -n "$trained" ] || exit 1
  # The optimizer's state is six times the weights, and nothing here resumes.
  rm -f "$trained"/rank_*.pt
  python3 - "$run/metrics.jsonl" "$trained" <<'END'
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
seconds = sum(step.get("seconds/step", 0) for step in steps)
peak = max((step.get("gpu_memory_peak_gib", 0) for step in steps), default=0)
print(f"{sys.argv[2]}: {steps[-1]['step']} steps in {seconds:.0f} s, at most {peak:.2f} GiB of GPU memory held")
END
}

models=("$MODEL")
if [ -n "$sft" ]; then
  train sft "$sft" "$MODEL" "${SECONDS_OF_SFT:-300}"
  models=("$trained" "${models[@]}")
fi
train solve "$config" "${models[0]}" "${SECONDS_OF_TRAINING:-840}" "$@"
models=("$trained" "${models[@]}")
date
for model in "${models[@]}"; do
  case $model in "$STATE"/runs/*) name=$(basename "${model%/checkpoints/*}") ;; *) name=start ;; esac
  # shellcheck disable=SC2086  # flags are words
  python3 evaluate.py --model "$model" --task "$task" --set task_model.temperature=0 --set max_tokens=512 --set max_model_len=4096 \
    ${system:+--set task_model.system_prompt="$system"} --out "$STATE/evaluation_$name.json" ${EVALUATE-}
done
date
