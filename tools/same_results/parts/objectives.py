"""Every pretraining objective, optimizer and learning-rate schedule, and what follows a run."""

from collections.abc import Mapping, Sequence

from tools.same_results.context import (
    EVERY_STEP,
    SHORT,
    SMALL,
    Context,
    Names,
    Results,
    settings_of,
)
from tools.same_results.records import digest_of, require_cases, sorted_keys

# objective -> family
OBJECTIVES: Mapping[str, str] = {
    "bert-style": "t5",
    "bidirectional-lm": "elmo",
    "causal-lm": "gpt",
    "deshuffling": "t5",
    "drop-tokens": "t5",
    "mask-tokens": "t5",
    "masked-lm": "bert",
    "masked-lm+next-sentence": "bert",
    "masked-lm+sentence-order": "albert",
    "masked-lm+span-boundary": "bert",
    "prefix-lm": "t5",
    "replace-spans": "t5",
    "replaced-token-detection": "electra",
    "sentence-permutation": "bart",
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
    """Yield a run of each, and the examples that objectives make."""
    names = context.names
    for objective in names["objectives"]:
        family = OBJECTIVES[objective]
        words: Sequence[object] = (
            family,
            "--objective",
            objective,
            "--train",
            context.files["texts"],
        )
        yield from pretrained(context, f"objective {objective}", *words)
        sizes = settings_of(
            *(text for text in SMALL if "eval" not in text and "global" not in text)
        )
        examples = ("examples", *words, *sizes, "--count", 2, "--offline")
        key = f"examples {objective}"
        result = context.json(key, *examples)
        yield key, result if "exit code" in result else digest_of(result)
    data = ("gpt", "--train", context.files["texts"])
    for optimizer in names["optimizers"]:
        words = settings_of(f"optimizer.name={optimizer}", *MORE.get(optimizer, ()))
        yield from pretrained(context, f"optimizer {optimizer}", *data, *words)
    start = ("lr_scheduler.min_lr_ratio=0", "lr_scheduler.warmup_steps=1")
    for schedule in names["schedules"]:
        settings = (*start, *MORE.get(schedule, ()))
        words = settings_of(f"lr_scheduler.name={schedule}", *settings)
        yield from pretrained(context, f"schedule {schedule}", *data, *words)
    words = settings_of("ema_decay=0.9", "gradient_checkpointing=true", "micro_batch_tokens=128")
    yield from pretrained(context, "settings", *data, *words)
    warmup = settings_of("seq_len_warmup.seq_len=16", "seq_len_warmup.fraction=0.5")
    yield from pretrained(context, "sequence warm-up", *data, *warmup, warmup=True)
    yield from pretrained(context, "bfloat16", *data, *settings_of("precision=bfloat16"))
    yield from pretrained(context, "seeds", *data, "--seeds", 2)
    result = context.json("compare", "compare", context.work / "objectives" / "seeds")
    yield "compare", digest_of(sorted_keys(result))
    words = ("--continue-from", context.pretrained("gpt"), "--max-steps", 6)
    run = context.work / "objectives" / "continued"
    key = "continued"
    yield key, context.trained(key, run, "pretrain", *words, "--offline", "--device", "cpu")


def pretrained(context: Context, key: str, *words: object, warmup: bool = False) -> Results:
    """Yield a run of pretraining."""
    run = context.work / "objectives" / key.replace(" ", "-")
    small = [text for text in SMALL if not (warmup and text.startswith("seq_len_warmup"))]
    options = (*settings_of(*small), *EVERY_STEP, *SHORT)
    yield key, context.trained(key, run, "pretrain", *options, *words)
