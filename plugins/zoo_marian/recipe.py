"""Settings for pretraining and fine-tuning Marian's models."""

from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig, Recipe, tiny_seq2seq_recipe

# Published models are trained on translations only, which is `zoo finetune --task seq2seq`. A new
# model first learns to restore texts of either language, as BART does (arXiv:1910.13461); it reads
# the words that it has not learned to translate.
OBJECTIVE = "text-infilling"
OPTIONS = {"noise_density": 0.3, "poisson_lambda": 3.0}
# arXiv:1706.03762, section 5.3, and the settings `transformer` of the released code, marian
ADAM = OptimizerConfig(learning_rate=3e-4, betas=(0.9, 0.98), eps=1e-9, max_grad_norm=5.0)

PRESETS = {
    "paper": {
        "max_seq_len": 512,
        "num_train_epochs": 10.0,
        "batch_size": 256,
        "warmup_ratio": 0.1,
        "optimizer": {"learning_rate": 3e-4, "betas": [0.9, 0.98], "eps": 1e-9},
        "tasks": {"seq2seq": {"task_args": {"label_smoothing_factor": 0.1}}},
    }
}


def recipe(size: str) -> Recipe:
    """Return the settings of a size; ``tiny`` takes a few minutes on two cores."""
    if size == "tiny":
        return tiny_seq2seq_recipe(OBJECTIVE, objective_args=OPTIONS, learning_rate=2e-3)
    return Recipe(
        objective=OBJECTIVE,
        objective_args=OPTIONS,
        seq_len=512,
        global_batch_tokens=512 * 512,
        max_steps=100_000,
        optimizer=ADAM,
        lr_scheduler=LRSchedulerConfig(name="inverse-sqrt", warmup_steps=16_000),
    )
