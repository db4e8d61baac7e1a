#!/usr/bin/env bash
# The measurement on a GPU machine: servers of one model on one card, then verdict tables and optimizers in order of
# worth. Servers and jobs are sessions of their own: they outlive this script, and a second call waits for them again
# (or, where they ended, starts them anew; they go on with the lines they have).
#   usage: MODEL=<folder> STATE=<folder kept between calls> OUT=<folder of results> \
#          [SERVERS=2] [PORT=8100] [WAIT=560 seconds] [SIDE_BY_SIDE=2] [VERDICTS="flags"] [OPTIMIZERS="flags"] [SERVER_ARGS="flags"] \
#          scripts/benchmarks/gpu_calls.sh [job ...]
# A job is verdicts:<task> or optimizers:<task>; a third part, as in optimizers:gsm8k:one_parent, is a folder of results of
# its own, and adds the flags that the variable ONE_PARENT holds.
# Of a 1.5B two servers and two runs of train.py (45 GB each) fill a card of 140 GB; of several cards CUDA_VISIBLE_DEVICES names
# the one to use, and each has a PORT and a STATE of its own. PREWRITE_DATA names the data. Lines and logs come as $OUT/results.tgz, written anew about every 45 s.
set -uo pipefail
: "${MODEL:?}" "${STATE:?}" "${OUT:?}"
deadline=$(($(date +%s) + ${WAIT:-560})) servers=${SERVERS:-2} port=${PORT:-8100} urls=()
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 VLLM_NO_USAGE_STATS=1
mkdir -p "$STATE/results" "$STATE/logs" "$STATE/pids"
[ $# -gt 0 ] || set -- verdicts:gsm8k optimizers:gsm8k verdicts:ag_news optimizers:ag_news verdicts:boolq verdicts:sst2 \
  verdicts:cb verdicts:math-500

# A package that the machine lacks is told now, and not by every job after minutes of servers that start.
python3 -c 'import train, evaluate' || { echo "this machine lacks a package: nothing was started"; exit 2; }

left() { echo $((deadline - $(date +%s))); }
lives() { [ -f "$STATE/pids/$1" ] && kill -0 "$(cat "$STATE/pids/$1")" 2>/dev/null; }
start() { # name, then the command
  local name=$1; shift
  setsid nohup "$@" >>"$STATE/logs/$name.log" 2>&1 </dev/null &
  echo $! >"$STATE/pids/$name"
}
save() { tar czf "$OUT/results.tmp" --exclude=checkpoints -C "$STATE" results logs && mv "$OUT/results.tmp" "$OUT/results.tgz"; }

# The KV cache is given in bytes: engines that start together would count each other's memory as their own.
for n in $(seq 0 $((servers - 1))); do
  urls+=("http://127.0.0.1:$((port + n))/v1")
  lives "server-$n" || curl -sf "http://127.0.0.1:$((port + n))/health" >/dev/null ||
    VLLM_CACHE_ROOT="$STATE/cache-$n" start "server-$n" python3 -m vllm.entrypoints.openai.api_server \
      --model "$MODEL" --served-model-name task --host 127.0.0.1 --port $((port + n)) --generation-config vllm \
      --no-enable-log-requests --disable-log-stats --uvicorn-log-level warning --max-model-len 4096 \
      --enable-prefix-caching ${SERVER_ARGS---gpu-memory-utilization 0.02 --kv-cache-memory-bytes 16000000000}
done
up=()
for n in $(seq 0 $((servers - 1))); do
  until curl -sf "http://127.0.0.1:$((port + n))/health" >/dev/null; do
    lives "server-$n" || { echo "server $n ended:"; tail -n 15 "$STATE/logs/server-$n.log"; continue 2; }
    [ "$(left)" -gt 60 ] || { echo "server $n is not up"; continue 2; }
    sleep 1
  done
  up+=("${urls[$n]}")
done
[ ${#up[@]} -gt 0 ] || { save; exit 1; }
echo "${#up[@]} servers up, $(left) s left"

waiting=("$@")
while [ "$(left)" -gt 0 ]; do
  running=0
  for job in "$@"; do ! lives "${job//:/-}" || running=$((running + 1)); done
  while [ ${#waiting[@]} -gt 0 ] && [ "$running" -lt "${SIDE_BY_SIDE:-2}" ]; do
    job=${waiting[0]} waiting=("${waiting[@]:1}")
    lives "${job//:/-}" && continue
    flags=${VERDICTS-}; [ "${job%%:*}" = verdicts ] || flags=${OPTIMIZERS-}
    rest=${job#*:} label=
    [ "$rest" = "${rest#*:}" ] || label=${rest#*:}
    more=${label^^}; [ -z "$label" ] || flags="$flags ${!more-}"
    # shellcheck disable=SC2086  # flags are words
    start "${job//:/-}" python3 "scripts/benchmarks/${job%%:*}.py" --task "${rest%%:*}" --base-urls "${up[@]}" \
      --model task --out "$STATE/results${label:+/$label}" $flags
    running=$((running + 1))
  done
  [ "$running" -gt 0 ] || break
  sleep 3
  [ $(($(date +%s) % 45)) -ge 3 ] || { save; echo "$(left) s left: $(wc -l "$STATE"/results/{,*/}*.jsonl 2>/dev/null | awk '{print $2 "=" $1}' | xargs -n1 basename | xargs)"; }
done
echo "${running:-0} jobs run on, ${#waiting[@]} have not begun, $(left) s left"
for log in "$STATE"/logs/{optimizers,verdicts}-*.log; do [ ! -f "$log" ] || { echo "== $log"; tail -n 4 "$log"; }; done
nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader 2>/dev/null
save
