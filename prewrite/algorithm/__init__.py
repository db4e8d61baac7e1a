"""The algorithm: pure tensors, no input or output. Reward to advantage, log-probs, loss, batches."""
