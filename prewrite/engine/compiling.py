"""Compiling the policy's layers (`policy.torch_compile`)."""

import os
import subprocess
from typing import Any

import torch

from prewrite.config import PolicySettings
from prewrite.errors import UserError


def refuse_compiling_without_compiler(settings: PolicySettings) -> None:
    """UserError where layers are to be compiled and no compiler runs; costs little, so a run asks before it starts."""
    compiler = os.environ.get("CXX", "g++")  # the one that torch will call
    if settings.torch_compile and not compiler_runs(compiler):
        way_out = "install it, name another in the environment variable CXX, or set torch_compile to false"
        needs = f"torch needs a C++ compiler for it, and {compiler!r} does not run here"
        raise UserError(f"policy.torch_compile: {needs}: {way_out}")


def compiler_runs(compiler: str) -> bool:
    """Whether there is such a program and it answers; its headers may still be missing."""
    try:
        return subprocess.run([compiler, "--version"], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def compile_layers(lm: Any) -> None:
    """Compiles what each decoder layer computes; its hooks (gathering under ZeRO-3, checkpointing) stay outside."""
    layers = [module for module in lm.modules() if type(module).__name__ in (lm._no_split_modules or ())]
    if not layers:
        raise UserError(f"policy.torch_compile: {type(lm).__name__} does not name its decoder layers: set it to false")
    for layer in layers:
        layer.forward = torch.compile(layer.forward, dynamic=True)
