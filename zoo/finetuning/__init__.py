"""What fine-tuning on labelled data shares, on the trainer of pretraining; see ``zoo.tasks``."""
