"""State of a run on disk: checkpoints, the trainer's state dict and the final model."""
