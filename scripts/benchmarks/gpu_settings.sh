#!/usr/bin/env bash
# What settings that save memory cost, on one GPU by itself: a whole step, training phases side by side, loss curves.
#   usage: TOKENIZER=<folder of a small chat model> OUT=<new folder of results> [DUMMY=1.5b] [STEPS=150 of a curve] \
#          scripts/benchmarks/gpu_settings.sh [flags for the two benchmarks, as --set policy.torch_compile=true ...]
# Each part has its JSON and its log in $OUT; a part that fails does not keep the next from being measured.
set -uo pipefail
: "${TOKENIZER:?}" "${OUT:?}"
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
model=(--dummy "${DUMMY:-1.5b}" --tokenizer "$TOKENIZER")
grads=policy.grad_accum_dtype=bfloat16 eight=training.optim=adamw_8bit offload=policy.offload_optimizer=true
python3 -c 'import train, bitsandbytes' || { echo "this machine lacks a package: nothing was measured"; exit 2; }
mkdir -p "$OUT"

part() { # name, then the command: its log, its seconds, its exit code
  local name=$1 start=$SECONDS
  shift
  "$@" >"$OUT/$name.log" 2>&1
  echo "$name: exit code $?, $((SECONDS - start)) s"
}

# The card's memory is looked at as a whole, so this part wants it to itself.
for name in step step_expandable; do
  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:$([ $name = step ] && echo False || echo True)
  part $name python3 -m scripts.benchmarks.step "${model[@]}" --gradient-checkpointing --no-peer --steps 2 --warmup 1 \
    --micro-batch-tokens 16384 --set $eight --set $grads --set rollout.sleep_level=2 --out "$OUT/$name.json" "$@"
done
unset PYTORCH_CUDA_ALLOC_CONF
part training python3 -m scripts.benchmarks.training "${model[@]}" --set policy.gradient_checkpointing=true --repeats 3 \
  --versus $eight --versus $grads --versus $eight $grads --versus $offload --out "$OUT/training.json" "$@"
curve() { # name, then settings
  local name=$1 settings=()
  shift
  for setting in "$@"; do settings+=(--set "$setting"); done
  part "curve_$name" python3 train.py --config configs/sft_math.json --set policy.model="$TOKENIZER" --set num_train_epochs=null --set max_steps="${STEPS:-150}" \
    --set save_steps=0 --set max_tokens_per_micro_batch=4096 --set output_dir="$OUT" --set run_name="curve-$name" "${settings[@]}"
  rm -rf "$OUT/curve-$name/checkpoints"
}
curve float32 &
curve bfloat16 $grads &
curve eight_bits $eight &
curve both $eight $grads &
wait
