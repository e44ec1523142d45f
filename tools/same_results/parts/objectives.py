"""Every pretraining objective, optimizer and learning-rate schedule, and what follows a run."""

from collections.abc import Mapping

from tools.same_results.context import (
    CPU,
    EVERY_STEP,
    SHORT,
    Context,
    Names,
    Results,
    settings_of,
    small_settings,
)
from tools.same_results.records import digest_of, require_cases, sorted_keys

# objective -> family
OBJECTIVES: Mapping[str, str] = {
    "bert-style": "t5",
    "bidirectional-lm": "elmo",
    "causal-lm": "gpt",
    "deshuffling": "t5",
    "drop-tokens": "t5",
    "gap-sentences": "pegasus",
    "mask-tokens": "t5",
    "masked-and-permuted-lm": "mpnet",
    "masked-lm": "bert",
    "masked-lm+next-sentence": "bert",
    "masked-lm+sentence-order": "albert",
    "masked-lm+span-boundary": "bert",
    "masked-lm+word-structure": "bert",
    "masked-lm+word-structure+sentence-structure": "bert",
    "permutation-lm": "xlnet",
    "prefix-lm": "t5",
    "replace-spans": "t5",
    "replaced-token-detection": "electra",
    "sentence-permutation": "bart",
    "sequence-autoencoder": "gpt",
    "span-corruption": "t5",
    "text-infilling": "bart",
    "text-infilling+sentence-permutation": "bart",
}
# optimizer or schedule -> settings that it needs, or has to itself
MORE: Mapping[str, tuple[str, ...]] = {
    "adagrad": ("optimizer.weight_decay=0", "optimizer.initial_accumulator_value=0.2"),
    "adafactor": ("optimizer.min_dim_size_to_factor=16",),
    "warmup-stable-decay": ("lr_scheduler.decay_fraction=0.5", "lr_scheduler.decay_type=cosine"),
}


def check(names: Names) -> None:
    """Check that every objective has a family."""
    require_cases("the objective", names["objectives"], OBJECTIVES)


def collect(context: Context) -> Results:
    """Yield the results of each name, then of other settings of runs."""
    for objective in context.names["objectives"]:
        yield from objective_results(context, objective)
    for optimizer in context.names["optimizers"]:
        settings = settings_of(f"optimizer.name={optimizer}", *MORE.get(optimizer, ()))
        yield from pretrained(context, f"optimizer {optimizer}", "gpt", *settings)
    start = ("lr_scheduler.min_lr_ratio=0", "lr_scheduler.warmup_steps=1")
    for schedule in context.names["schedules"]:
        name = f"lr_scheduler.name={schedule}"
        settings = settings_of(name, *start, *MORE.get(schedule, ()))
        yield from pretrained(context, f"schedule {schedule}", "gpt", *settings)
    yield from other_runs(context)


def objective_results(context: Context, objective: str) -> Results:
    """Yield a run with an objective, and the examples that it makes."""
    family = OBJECTIVES[objective]
    yield from pretrained(context, f"objective {objective}", family, "--objective", objective)
    key = f"examples {objective}"
    words = (family, "--objective", objective, "--train", context.files["texts"])
    sizes = settings_of("vocab_size=400", "seq_len=20")
    result = context.json("examples", *words, *sizes, "--count", 2, "--offline")
    yield key, result if "exit code" in result else digest_of(result)


def other_runs(context: Context) -> Results:
    """Yield runs with other settings, several seeds, and the last checkpoint of another run."""
    settings = settings_of("ema_decay=0.9", "gradient_checkpointing=true", "micro_batch_tokens=128")
    yield from pretrained(context, "settings", "gpt", *settings)
    warmup = settings_of("seq_len_warmup.seq_len=16", "seq_len_warmup.fraction=0.5")
    yield from pretrained(context, "sequence warm-up", "gpt", *warmup, warmup=True)
    yield from pretrained(context, "bfloat16", "gpt", *settings_of("precision=bfloat16"))
    yield from pretrained(context, "seeds", "gpt", "--seeds", 2)
    result = context.json("compare", context.work / "objectives" / "seeds")
    yield "compare", digest_of(sorted_keys(result))
    key = "continued"
    run = context.work / "objectives" / key
    words = ("pretrain", "--continue-from", context.pretrained("gpt"), "--max-steps", 6, *CPU)
    yield key, context.trained(run, *words)
    first = ("--train", f"first={context.files['texts']}", "--weight", "first=0.75")
    second = ("--train", f"second={context.files['sentences']}", "--weight", "second=0.25")
    run = context.work / "objectives" / "mixture"
    options = (*small_settings("gpt", without="seq_len_warmup"), *EVERY_STEP, *SHORT)
    yield "mixture", context.trained(run, "pretrain", "gpt", *options, *first, *second)


def pretrained(
    context: Context, key: str, family: str, *words: object, warmup: bool = False
) -> Results:
    """Yield a run of pretraining."""
    run = context.work / "objectives" / key.replace(" ", "-")
    small = small_settings(family, without="seq_len_warmup" if warmup else "")
    options = (*small, *EVERY_STEP, *SHORT, "--train", context.files["texts"])
    yield key, context.trained(run, "pretrain", family, *words, *options)
