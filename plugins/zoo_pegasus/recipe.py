"""Settings for pretraining and fine-tuning PEGASUS (arXiv:1912.08777, section 6, appendix C)."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_seq2seq_recipe

OBJECTIVE = "gap-sentences"
# Section 6.1: the rate of Adafactor with the inverse root of the steps.
ADAFACTOR = OptimizerConfig(name="adafactor", learning_rate=0.1, max_grad_norm=None)

# Table 6 of appendix C; the number of tokens of sources and targets depends on the data.
PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "num_train_epochs": 10.0,
        "batch_size": 256,
        "optimizer": {"name": "adafactor", "learning_rate": 5e-4, "max_grad_norm": None},
        "tasks": {"seq2seq": {"task_args": {"label_smoothing_factor": 0.1}}},
    }
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return tiny_seq2seq_recipe(
            OBJECTIVE, learning_rate=1e-3, seq_len_warmup=None, global_batch_tokens=4096
        )
    rows = 256 if size == "base" else 8192
    return Recipe(
        objective=OBJECTIVE,
        objective_args={"gap_sentences_ratio": 0.3},
        seq_len=512,
        global_batch_tokens=rows * 512,
        max_steps=500_000,
        optimizer=ADAFACTOR,
        lr_scheduler=LRSchedulerConfig(name="inverse-sqrt-constant-warmup", warmup_steps=10_000),
    )
