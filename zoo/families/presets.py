"""Presets of fine-tuning: nested settings by name, as ``zoo.training.config.finetune`` has them.

A family adds its paper's, as ``PRESETS`` of its module ``recipe``. Under ``tasks``, a preset
has the settings of single tasks of fine-tuning by their names, such as ``question-answering`` or
``glue/rte``, which take precedence.
"""

from collections.abc import Mapping
from typing import Any

Preset = Mapping[str, Any]
PAPER = "paper"
DEFAULT = "default"
TINY = "tiny"  # of random weights of that size, in minutes
BY_TASK = "tasks"  # key of a preset

SHARED: Mapping[str, Preset] = {
    # run_glue.py of transformers' examples
    DEFAULT: {
        "max_seq_len": 128,
        "batch_size": 32,
        "num_train_epochs": 3.0,
        "optimizer": {"learning_rate": 2e-5},
        # its README
        "tasks": {name: {"num_train_epochs": 5.0} for name in ("glue/mrpc", "glue/wnli")},
    },
    # Mosbach et al. 2021, arXiv:2006.04884, section 6: bias correction, a small learning rate, and
    # a long run; other values are from Devlin et al. 2019, arXiv:1810.04805
    "stable": {
        "max_seq_len": 128,
        "batch_size": 16,
        "num_train_epochs": 20.0,
        "warmup_ratio": 0.1,
        "optimizer": {
            "learning_rate": 2e-5,
            "eps": 1e-6,
            "weight_decay": 0.01,
            "bias_correction": True,
        },
    },
}
