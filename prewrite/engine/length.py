"""Whether the policy takes texts as long as the config asks for, told before any of its weights are loaded."""

from transformers import AutoConfig

from prewrite.config import Config
from prewrite.errors import UserError


def refuse_too_long(config: Config) -> None:
    """UserError where requests and completions, or rows of SFT, may be longer than the model's positions.

    Of positions that its config scales (rope_type) vLLM computes how many there are, and says so.
    """
    policy, rollout = config.policy, config.rollout
    origin = {"revision": policy.model_revision or "main", "trust_remote_code": policy.trust_remote_code}
    own = AutoConfig.from_pretrained(policy.model, **origin).get_text_config()
    limit = getattr(own, "max_position_embeddings", None)
    scaling = getattr(own, "rope_parameters", None) or getattr(own, "rope_scaling", None) or {}
    if not isinstance(limit, int) or scaling.get("rope_type", "default") != "default":
        return
    if config.method == "sft":
        needed, told = config.sft.max_length, "sft.max_length"
    else:
        needed = rollout.max_prompt_length + rollout.max_completion_length
        told = "rollout.max_prompt_length + max_completion_length"
    if needed > limit:
        raise UserError(
            f"{told} = {needed}: policy.model {policy.model!r} takes {limit} tokens (max_position_embeddings of "
            "its config): lower it"
        )
