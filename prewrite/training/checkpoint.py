"""A checkpoint: a folder that transformers and vLLM load, written whole or not at all."""

import os
import shutil
from pathlib import Path
from typing import Any

from prewrite.engine.policy import Policy
from prewrite.engine.weight_sync import full_weights


def save_checkpoint(policy: Policy, tokenizer: Any, folder: Path, step: int) -> Path:
    """Writes folder/step_NNNNNN with the policy's weights, config and tokenizer. A collective; rank 0 writes.

    Tied weights are written once, as the architecture's own save does.
    """
    weights = {}
    for name, weight in full_weights(policy.lm):
        if policy.world.is_main:
            weights[name] = weight.detach().cpu().clone()
    target = folder / f"step_{step:06d}"
    if policy.world.is_main:
        draft = folder / f".{target.name}.part"
        shutil.rmtree(draft, ignore_errors=True)
        policy.lm.save_pretrained(draft, state_dict=weights)
        tokenizer.save_pretrained(draft)
        os.replace(draft, target)
    return target
