"""Every loss of embeddings, with each of its settings, and what the trained models compute."""

from collections.abc import Mapping

from tools.same_results.context import Context, Names, Results
from tools.same_results.finetuning import Case, command, evaluated, settings_set, with_settings
from tools.same_results.records import layout, require_cases, tensors_digest

PAIRS = ("--pair", "other")
TRIPLETS = (*PAIRS, "--negative", "negative")
TAUGHT = (*TRIPLETS, "--negative", "second_negative", "--label", "margins")
# loss -> case
LOSSES: Mapping[str, Case] = {
    "multiple-negatives": Case(columns=TRIPLETS),
    "cosent": Case(columns=(*PAIRS, "--label", "score")),
    "cosine": Case(columns=(*PAIRS, "--label", "score"), settings=("task_args.score_range=[0,6]",)),
    "triplet": Case(columns=TRIPLETS, settings=("task_args.margin=2",)),
    "softmax": Case(columns=(*PAIRS, "--label", "relation")),
    "margin-mse": Case(columns=TAUGHT),
    "kl-div": Case(columns=TAUGHT, settings=("task_args.temperature=2",)),
}
MODULES = (
    "task_args.modules=[{type: Pooling, modes: [mean, max]}, "
    "{type: Dense, in_features: 128, out_features: 8, activation_function: gelu}, "
    "{type: Normalize}]",
    "task_args.pooling=null",
    "task_args.normalize=null",
    "task_args.include_prompt=null",
)
PROMPTS = (
    "task_args.prompts={query: 'ask: ', document: 'text: '}",
    "task_args.default_prompt_name=query",
)
# variant -> loss and settings
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "scale": ("multiple-negatives", ("task_args.scale=5",)),
    "matryoshka": ("multiple-negatives", ("task_args.matryoshka=[8,16]",)),
    "weights": (
        "cosent",
        ("task_args.matryoshka=[8,16]", "task_args.matryoshka_weights=[1,2]"),
    ),
    "mini batches": ("multiple-negatives", ("task_args.mini_batch_size=4",)),
    "mini batches of scores": ("cosent", ("task_args.mini_batch_size=4",)),
    "mini batches of margins": ("margin-mse", ("task_args.mini_batch_size=4",)),
    "modules": ("multiple-negatives", MODULES),
    "prompts": ("multiple-negatives", (*PROMPTS, "task_args.include_prompt=false")),
    "prompts of pairs": ("cosent", PROMPTS),
    "vectors": (
        "triplet",
        (
            "task_args.pooling=cls",
            "task_args.normalize=true",
            "task_args.lowercase=true",
            "task_args.similarity_fn_name=dot",
            "task_args.truncate_dim=8",
        ),
    ),
}
SPARSE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "regularizers": (
        "multiple-negatives",
        (
            "task_args.document_regularizer_weight=0.1",
            "task_args.query_regularizer_weight=0.2",
            "task_args.regularizer_warmup_ratio=0.5",
            "task_args.max_active_dims=5",
        ),
    ),
    "mini batches": ("margin-mse", ("task_args.mini_batch_size=4",)),
    "scale": ("multiple-negatives", ("task_args.scale=5",)),
}
EXPANSION = "task_args.query_expansion={strategy: fixed, length: 12, attend: true}"
LATE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "lengths": (
        "multiple-negatives",
        (
            "task_args.dimension=16",
            "task_args.query_length=8",
            "task_args.document_length=10",
            "task_args.skiplist_words=[day]",
        ),
    ),
    "expansion": ("kl-div", (EXPANSION,)),
    "mini batches": ("margin-mse", ("task_args.mini_batch_size=4",)),
    "scale": ("multiple-negatives", ("task_args.scale=5",)),
}
TASKS = {"sentence-embedding": VARIANTS, "sparse-embedding": SPARSE, "late-interaction": LATE}
# Settings that dense embeddings cover, or that only files of another library have.
SHARED = {
    "include_prompt",
    "prompts",
    "default_prompt_name",
    "lowercase",
    "matryoshka",
    "matryoshka_weights",
    "modules",
    "normalize",
    "pooling",
    "similarity_fn_name",
    "truncate_dim",
    "score_range",
    "margin",
    "temperature",
}
UNSET = {"sparse-embedding": SHARED, "late-interaction": {*SHARED, "extra"}}


def all_cases(names: Names) -> dict[str, dict[str, Case]]:
    """Return task -> variant -> case; a loss or setting without a case ends the program."""
    losses = names["embedding_losses"]
    require_cases("the embedding loss", losses, LOSSES)
    cases: dict[str, dict[str, Case]] = {}
    for task, variants in TASKS.items():
        cases[task] = {}
        for loss in losses:
            cases[task][loss] = with_settings(LOSSES[loss], f"task_args.loss={loss}")
        for name, (loss, more) in variants.items():
            cases[task][name] = with_settings(LOSSES[loss], f"task_args.loss={loss}", *more)
        settings = {name for case in cases[task].values() for name in settings_set(case)}
        trained = names["task_parts"]["train"][task]
        require_cases(f"the settings of {task}", trained, settings | UNSET.get(task, set()))
    return cases


def check(names: Names) -> None:
    """Check that every loss and setting has a case."""
    all_cases(names)


def collect(context: Context) -> Results:
    """Yield runs, evaluations and vectors."""
    cases = all_cases(context.names)
    for task, variants in cases.items():
        for variant, case in variants.items():
            key = f"{task} {variant}"
            run = context.work / "embeddings" / task / variant.replace(" ", "-")
            record = context.trained(run, *command(context, task, case))
            yield key, record
            if "exit code" in record:
                continue
            model = run / "model"
            texts = ("the good day", "a weak day 3")
            if variant in ("multiple-negatives", "cosent", "modules", "prompts", "expansion"):
                data = context.files[case.table]
                yield f"eval {key}", evaluated(context, task, model, data, *case.columns)
                query = ("rerank", model, "--query", "a good day", *texts)
                yield f"rerank {key}", context.output("run", *query)
            if task != "late-interaction":
                yield f"embed {key}", context.output("run", "embed", model, *texts)
    yield from converted(context)


def converted(context: Context) -> Results:
    """Yield what conversions of trained models to the Hub's layout hold."""
    for task, variant in (
        ("sentence-embedding", "modules"),
        ("sparse-embedding", "multiple-negatives"),
        ("late-interaction", "multiple-negatives"),
    ):
        key = f"hub {task}"
        hub = context.work / "embeddings" / f"{task}-hub"
        again = context.work / "embeddings" / f"{task}-again"
        model = context.work / "embeddings" / task / variant / "model"
        refusal = context.attempt("convert", model, "--to", "hub", "-o", hub)
        yield key, refusal or layout(hub, context.clean)
        if refusal is None:
            refusal = context.attempt("convert", hub, "-o", again)
            yield f"{key} and back", refusal or tensors_digest(again)
