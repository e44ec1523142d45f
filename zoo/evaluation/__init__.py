"""What evaluations share, from a checkpoint and files to numbers; see ``zoo.tasks``."""
