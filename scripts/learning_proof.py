"""Does the algorithm learn? A small model, from random weights, on a toy task whose reward can be verified.

    python -m scripts.learning_proof                    all settings, and one with the advantage's sign flipped
    python -m scripts.learning_proof --settings dapo    one of them

The request is a digit; the right completion counts on from it, four digits (7: 8 9 0 1), then EOS. The reward is the
share of right tokens. Everything but the model and the toy is the package's own: advantages, collation, micro-batches,
log-probs in chunks, loss. Prints the reward reached, and draws docs/learning_proof.png. No GPU; two cores are enough.

Legend: B rollouts, T positions, H hidden size.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prewrite.algorithm.advantages import group_advantages
from prewrite.algorithm.batching import Batch, collate, micro_batches
from prewrite.algorithm.logprobs import chunked_logprobs
from prewrite.algorithm.losses import LossTensors, StepTotals, policy_loss
from prewrite.config import LossSettings
from prewrite.types import Sample

EOS, VOCABULARY = 10, 11
COMPLETION = 5
REQUESTS_PER_STEP, NUM_GENERATIONS, NUM_ITERATIONS = 8, 8, 2
CHANCE, GOAL = 1 / VOCABULARY, 0.9

SETTINGS: dict[str, dict] = {
    "grpo": {"loss_type": "grpo", "epsilon_high": 0.2},
    "dapo": {"loss_type": "dapo", "epsilon_high": 0.28},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon_high": 0.2},
    "cispo": {"loss_type": "cispo"},
    # A sequence's ratio is a mean, closer to 1 than a token's: its clip has to be tighter to act.
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.03},
    "sapo": {"loss_type": "sapo"},
}


class ToyModel(nn.Module):
    """A causal transformer of about a million parameters."""

    def __init__(self, width: int = 160, layers: int = 3, heads: int = 4):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(1 + COMPLETION, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def hidden(self, input_ids_BT: Tensor) -> Tensor:
        length = input_ids_BT.shape[1]
        hidden_BTH = self.token(input_ids_BT) + self.position.weight[:length]
        causal_TT = nn.Transformer.generate_square_subsequent_mask(length)
        for block in self.blocks:
            hidden_BTH = block(hidden_BTH, causal_TT, is_causal=True)
        return self.norm(hidden_BTH)

    def forward(self, batch: Batch) -> Tensor:
        hidden_BTH = self.hidden(batch.input_ids_BT)
        return chunked_logprobs(hidden_BTH, self.head, batch.target_BT, mask_BT=batch.mask_BT)[0]


@torch.no_grad()
def sample_completions(model: ToyModel, prompt_BT: Tensor) -> list[Sample]:
    ids_BT, logprobs = prompt_BT, []
    for _ in range(COMPLETION):
        logp_BV = F.log_softmax(model.head(model.hidden(ids_BT)[:, -1]), -1)
        token_B1 = torch.multinomial(logp_BV.exp(), 1)
        logprobs.append(logp_BV.gather(1, token_B1))
        ids_BT = torch.cat([ids_BT, token_B1], 1)
    samples = []
    for ids, logprob in zip(ids_BT.tolist(), torch.cat(logprobs, 1).tolist(), strict=True):
        completion = ids[1:]
        length = completion.index(EOS) + 1 if EOS in completion else COMPLETION
        reason = "stop" if EOS in completion else "length"
        samples.append(Sample(tuple(ids[:1]), tuple(completion[:length]), tuple(logprob[:length]), "", reason))
    return samples


def reward(sample: Sample) -> float:
    """Share of right tokens; tokens that are missing are wrong."""
    right = (*((sample.prompt_ids[0] + step) % 10 for step in range(1, COMPLETION)), EOS)
    return sum(got == want for got, want in zip(sample.completion_ids, right, strict=False)) / COMPLETION


def learn(setting: dict, *, max_steps: int = 1000, seed: int = 0, sign: float = 1.0, goal: float = 0.92) -> list[float]:
    """Mean reward of each step's rollouts, until the mean of the last five passes `goal` or max_steps are over."""
    torch.manual_seed(seed)
    settings = LossSettings(sampler_correction="none", **setting)
    model = ToyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.99), weight_decay=0.0)
    history: list[float] = []
    while len(history) < max_steps and (len(history) < 5 or sum(history[-5:]) / 5 < goal):
        prompt_BT = torch.randint(10, (REQUESTS_PER_STEP, 1)).repeat_interleave(NUM_GENERATIONS, 0)
        samples = sample_completions(model, prompt_BT)
        reward_B = torch.tensor([reward(sample) for sample in samples])
        history.append(float(reward_B.mean()))
        advantage_B = sign * group_advantages(reward_B, NUM_GENERATIONS)
        step = collate(samples, advantage_B, pad_token_id=EOS)
        # The model that sampled is the model that is trained: the sampler's log-probs are the old ones.
        totals = StepTotals(step.num_tokens, step.num_sequences, max_completion_length=COMPLETION)
        parts = [step.select(rows) for rows in micro_batches(step, size=len(samples) // 2)]
        for _ in range(NUM_ITERATIONS):
            for part in parts:
                tensors = LossTensors(model(part), part.sampler_logprob_BT, part.advantage_B, part.mask_BT)
                policy_loss(tensors, settings, totals).value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return history


def draw(histories: dict[str, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120)
    for name, history in histories.items():
        axes.plot(history, label=name, linewidth=1.2)
    axes.axhline(GOAL, color="grey", linestyle=":", linewidth=1)
    axes.set_xlabel(f"rollout step ({REQUESTS_PER_STEP} requests x {NUM_GENERATIONS} completions)")
    axes.set_ylabel("mean reward (1 = all tokens right)")
    axes.set_ylim(0, 1.02)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains a toy model with every kind of loss.")
    parser.add_argument("--settings", nargs="*", choices=[*SETTINGS, "flipped"], default=[*SETTINGS, "flipped"])
    parser.add_argument("--plot", type=Path, default=Path(__file__).parents[1] / "docs" / "learning_proof.png")
    arguments = parser.parse_args()
    print(f"{sum(p.numel() for p in ToyModel().parameters()):,} parameters, chance {CHANCE:.2f}")
    histories, failures = {}, []
    for name in arguments.settings:
        start, start_cpu = time.perf_counter(), time.process_time()
        flipped = name == "flipped"
        history = learn(SETTINGS["dapo" if flipped else name], sign=-1.0 if flipped else 1.0,
                        max_steps=150 if flipped else 1000)  # fmt: skip
        reached = sum(history[-5:]) / 5
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
        print(
            f"{name:8} reward {reached:.3f} after {len(history)} steps, {seconds:.0f} s ({cpu_seconds:.0f} s CPU)",
            flush=True,
        )
        histories[name] = history
        if (reached >= GOAL) == flipped:
            failures.append(name)
    draw(histories, arguments.plot)
    print(f"not as expected: {', '.join(failures)}" if failures else "all as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
