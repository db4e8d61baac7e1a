"""The loop: rollouts, scores, optimizer steps, pushed weights, choosing on dev."""
