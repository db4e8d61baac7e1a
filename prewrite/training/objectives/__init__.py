"""What a step trains on: the seam between the trainer, which knows no task, and the work that is rewarded."""
