"""Each heavy library has one home here. What they read from the environment is set before any of them is imported."""

import os

import torch

# DeepSpeed otherwise looks for every accelerator it knows and warns where it finds none.
os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
# The sampler's engine lives in the trainer's process, so that weights reach it without a copy between processes.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
