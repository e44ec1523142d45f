"""Every task: fine-tuning with each of its settings, evaluation, and ``zoo run``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.same_results.context import Context, Names, Results
from tools.same_results.finetuning import Case, command, evaluated, settings_set, with_settings
from tools.same_results.records import digest, digest_of, require_cases, sorted_keys

LABELS = "data.labels=[1,2,3,4]"
WORDS = ("--label-words", "yes=a,no=i")
PATTERNS = ("--template", "{text} is {label}.", "--template", "{label} : {text}")
INPUT_TOKENS = "task_args.input_tokens=[START,DELIMITER,EXTRACT]"


def text_cases(*columns: str, settings: tuple[str, ...] = ()) -> dict[str, Case]:
    """Return the cases of a task that labels texts or pairs of texts."""
    variants = {
        "": ("bert", ()),
        "layers": ("bert", ("task_args.layers=mix",)),
        "windows": ("bert", ("task_args.doc_stride=2", "max_seq_len=8", "task_args.pooling=mean")),
        "input tokens": ("gpt", (INPUT_TOKENS, "task_args.lm_coef=0.5")),
    }
    cases = {
        name: Case(columns=columns, settings=(*settings, *more), model=model)
        for name, (model, more) in variants.items()
    }
    both = ("task_args.both_orders=true",)
    cases["pair"] = Case(columns=(*columns, "--pair", "other"), settings=(*settings, *both))
    return cases


# task -> variant -> case; the first variant is evaluated
TRAINED: Mapping[str, Mapping[str, Case]] = {
    "text-classification": {
        **text_cases(settings=("class_weights=balanced",)),
        "relation": Case(columns=("--pair", "other", "--label", "relation")),
        "settings": Case(
            settings=("ema_decay=0.9", "freeze_layers=1", "reinit_layers=1"),
            options=("--preset", "stable"),
        ),
        "seeds": Case(options=("--seeds", "2")),
        "random-weights": Case(settings=("random_weights=true",)),
    },
    "regression": text_cases("--label", "score"),
    "multi-label": text_cases("--label", "kinds"),
    "ordinal-regression": text_cases("--label", "stars", settings=(LABELS,)),
    "token-classification": {
        "": Case("words"),
        "crf": Case("words", settings=("task_args.crf=true",)),
        "layers": Case("words", settings=("task_args.layers=mix",)),
        "windows": Case("words", settings=("task_args.doc_stride=2", "max_seq_len=8")),
    },
    "question-answering": {
        "": Case("questions"),
        "windows": Case(
            "questions",
            settings=(
                "task_args.doc_stride=2",
                "max_seq_len=16",
                "task_args.max_answer_len=3",
                "task_args.null_threshold=0.5",
            ),
        ),
    },
    "multiple-choice": {
        "": Case("choices"),
        "columns": Case(
            "samples",
            ("--text", "text", "--choices", "other", "--choices", "negative", "--label", "in_pair"),
        ),
        "input tokens": Case(
            "choices", settings=(INPUT_TOKENS, "task_args.lm_coef=0.5"), model="gpt"
        ),
    },
    "seq2seq": {
        "": Case(columns=("--label", "target"), model="t5"),
        "prefix": Case(
            columns=(
                "--label",
                "target",
                "--pair",
                "other",
                "--prefix",
                "a ",
                "--pair-prefix",
                "b",
            ),
            settings=("task_args.label_smoothing_factor=0.1", "task_args.max_target_len=8"),
            model="t5",
        ),
        "choices": Case(
            columns=("--label", "label"),
            settings=("task_args.mc_loss=0.5", "task_args.unlikely_loss=0.5"),
            model="t5",
        ),
        "beams": Case(
            columns=("--label", "target"),
            settings=("task_args.num_beams=2", "task_args.max_new_tokens=4"),
            model="bart",
        ),
        "without generation": Case(
            columns=("--label", "target"), settings=("task_args.generate=false",), model="t5"
        ),
    },
    "causal-lm": {
        "": Case(columns=("--label", "target"), model="gpt"),
        "texts": Case(columns=("--label", "label"), model="gpt", options=("--freeze", "1")),
    },
    "prompt": {
        "": Case(options=(*PATTERNS[:2], *WORDS)),
        "unlabelled": Case(
            options=(*PATTERNS[:2], *WORDS, "--unlabelled", "samples"),
            settings=("task_args.lm_coef=0.5",),
        ),
    },
    "pet": {
        "": Case(
            options=(*PATTERNS, *WORDS, "--unlabelled", "samples"),
            settings=(
                "task_args.repetitions=1",
                "task_args.patterns={max_steps: 2, save_steps: 1, eval_steps: 2}",
                "task_args.temperature=3",
            ),
        ),
        "uniform": Case(
            options=(*PATTERNS[:2], *WORDS, "--unlabelled", "samples"),
            settings=(
                "task_args.repetitions=2",
                "task_args.weighting=uniform",
                "task_args.patterns={max_steps: 2}",
                "task_args.pooling=mean",
                "task_args.layers=mix",
            ),
        ),
    },
    "setfit": {
        "": Case(settings=("task_args.num_iterations=2",)),
        "settings": Case(
            settings=(
                "task_args.num_iterations=2",
                "task_args.c=0.5",
                "task_args.pooling=max",
                "task_args.normalize=true",
            )
        ),
    },
}
RANKED = ("--text", "query", "--pair", "documents")
GRADED = (*RANKED, "--label", "grades")
TAUGHT = (
    "--pair",
    "other",
    "--negative",
    "negative",
    "--negative",
    "second_negative",
    "--label",
    "margins",
)
# loss -> case
RERANKERS: Mapping[str, Case] = {
    "binary-cross-entropy": Case("rankings", (*RANKED, "--label", "relevant")),
    "cross-entropy": Case("rankings", GRADED),
    "list-net": Case("rankings", GRADED, ("task_args.score_range=[0,2]",)),
    "lambda": Case("rankings", GRADED, ("task_args.sigma=2",)),
    "margin-mse": Case("samples", TAUGHT),
}
# Settings that no case can set: of one stage, of languages that a tokenizer has, and of a
# classifier that learns from several patterns.
UNSET = {
    "pet": {"stage", "input_tokens", "lm_coef", "both_orders", "doc_stride"},
    "seq2seq": {"src_lang", "tgt_lang"},
}
# What other parts train: ``embeddings`` and ``distillation``.
ELSEWHERE = ("sentence-embedding", "sparse-embedding", "late-interaction", "sentences")


TEXTS = ("the good day", "a weak day 3")
PROMPT = ("--template", "{text} is {label}.", *WORDS)
PAIRED = ("--pair", "other", "--label", "in_pair")
# name -> evaluation, model, table and options; other tasks are evaluated on their own models
EVALUATED: Mapping[str, tuple[str, str, str, Sequence[Any]]] = {
    "reranker": ("reranker", "reranker-list-net", "rankings", GRADED),
    "prompt": ("prompt", "model/bert", "samples", PROMPT),
    "pair-classification": ("pair-classification", "backbone/bert", "samples", PAIRED),
    "zero-shot": ("zero-shot", "text-classification-relation", "samples", ("--label", "relation")),
    "retrieval": ("retrieval", "backbone/bert", "beir", ()),
    "perplexity": ("perplexity", "model/gpt", "text", ("--limit", 20)),
    "pseudo-perplexity": ("pseudo-perplexity", "model/bert", "text", ("--limit", 4)),
    "minimal-pairs": ("minimal-pairs", "model/gpt", "pairs", ()),
    "replaced-tokens": ("replaced-tokens", "model/electra", "text", ()),
    "a model of pet": ("text-classification", "pet", "samples", ()),
    "a model of setfit": ("text-classification", "setfit", "samples", ()),
}
STRUCTURE = "objective/bert/masked-lm+word-structure+sentence-structure"
# name -> command of ``zoo run``, model and options; there is one of the name of each task
RUN: Mapping[str, tuple[str, str, Sequence[Any]]] = {
    "sentence-embedding": ("embed", "backbone/bert", TEXTS),
    "windows of embeddings": (
        "embed",
        "backbone/bert",
        (*TEXTS, "--max-seq-len", 4, "--doc-stride", 1),
    ),
    "passages": (
        "embed",
        "backbone/bert",
        (*TEXTS, "--chunks", "tokens", "--chunk-size", 2, "--late-chunking"),
    ),
    "similarity": ("similarity", "backbone/bert", TEXTS),
    "retrieval": ("search", "backbone/bert", (*TEXTS, "--corpus", "sentences")),
    "fill-mask": ("fill-mask", "model/bert", ("the [MASK] day",)),
    "features": ("features", "backbone/bert", (*TEXTS, "--layers", "0,-1")),
    "causal-lm": ("generate", "model/gpt", (*TEXTS, "--max-new-tokens", 5)),
    "sampling": (
        "generate",
        "model/gpt",
        (*TEXTS, "--max-new-tokens", 5, "--do-sample", "--seed", 3),
    ),
    "seq2seq": ("seq2seq", "seq2seq", TEXTS),
    "text-classification": ("classify", "text-classification", TEXTS),
    "windows": ("classify", "text-classification", (*TEXTS, "--doc-stride", 1)),
    "regression": ("classify", "regression", TEXTS),
    "multi-label": ("classify", "multi-label", TEXTS),
    "token-classification": (
        "classify",
        "token-classification",
        (*TEXTS, "--aggregate", "first"),
    ),
    "crf": ("classify", "token-classification-crf", TEXTS),
    "setfit": ("classify", "setfit", TEXTS),
    "pet": ("classify", "pet", TEXTS),
    "ordinal-regression": ("ordinal-regression", "ordinal-regression", TEXTS),
    "reranker": ("rerank", "reranker-list-net", (*TEXTS, "--query", "a good day")),
    "zero-shot": (
        "zero-shot",
        "text-classification-relation",
        (*TEXTS, "--label", "good", "--label", "bad"),
    ),
    "zero-shot in windows": (
        "zero-shot",
        "text-classification-relation",
        (
            *TEXTS,
            *("--label", "good", "--label", "bad", "--template", "{}"),
            *("--max-seq-len", 8, "--doc-stride", 0),
        ),
    ),
    "prompt": ("prompt", "model/bert", (*TEXTS, *PROMPT)),
    "question-answering": ("answer", "question-answering", ("which?", "the good day")),
    "multiple-choice": (
        "choose",
        "multiple-choice",
        ("day 3", "--choice", "good", "--choice", "weak"),
    ),
    "score": ("score", "model/gpt", TEXTS),
    "score with a context": ("score", "model/gpt", (*TEXTS, "--context", "it was")),
    "next-sentence": ("next-sentence", "model/bert", TEXTS),
    "sentence-order": ("sentence-order", "model/albert", TEXTS),
    "sentence-structure": ("sentence-structure", STRUCTURE, TEXTS),
}


def all_cases(names: Names) -> dict[str, dict[str, Case]]:
    """Return task -> variant -> case; a task, loss or setting without a case ends the program."""
    trained = names["task_parts"]["train"]
    losses = names["reranker_losses"]
    require_cases("the reranker loss", losses["losses"], RERANKERS)
    rerankers = {}
    for loss, case in RERANKERS.items():
        rerankers[loss] = with_settings(case, f"task_args.loss={loss}")
    for weighting in losses["weightings"]:
        loss_settings = ("task_args.loss=lambda", f"task_args.weighting={weighting}")
        rerankers[weighting] = with_settings(RERANKERS["lambda"], *loss_settings)
    rerankers["windows"] = with_settings(
        RERANKERS["list-net"],
        "task_args.loss=list-net",
        "max_seq_len=8",
        "task_args.doc_stride=1",
        "task_args.window_pooling=mean",
    )
    cases = {**{task: dict(variants) for task, variants in TRAINED.items()}, "reranker": rerankers}
    require_cases("the task", trained, {*cases, *ELSEWHERE})
    for task, variants in cases.items():
        if task in trained:
            settings = {name for case in variants.values() for name in settings_set(case)}
            settings |= UNSET.get(task, set())
            require_cases(f"the settings of {task}", trained[task], settings)
    return {task: variants for task, variants in cases.items() if task in trained}


def check(names: Names) -> None:
    """Check that every task, loss and setting has a case."""
    all_cases(names)
    parts = names["task_parts"]
    require_cases("the evaluation", parts["evaluate"], {*EVALUATED, *parts["train"]})
    require_cases("the task of zoo run", parts["predict"], RUN)


def collect(context: Context) -> Results:
    """Yield the results of all runs, then of evaluations and outputs."""
    for task, variants in all_cases(context.names).items():
        for variant, case in variants.items():
            key = f"finetune {task} {variant}".strip()
            name = f"{task}-{variant}".strip("-").replace(" ", "-")
            run = context.work / "finetuned" / name
            yield key, context.trained(run, *command(context, task, case))
    yield from evaluations(context)
    yield from selected_metrics(context)
    yield from outputs(context)


def evaluations(context: Context) -> Results:
    """Yield the metrics and predictions of every evaluation."""
    evaluate = context.names["task_parts"]["evaluate"]
    for task, variants in all_cases(context.names).items():
        if task in evaluate and task not in EVALUATED:
            case = variants[""]
            model = context.work / "finetuned" / task / "model"
            data = context.files[case.table]
            yield f"eval {task}", evaluated(context, task, model, data, *case.columns)
    for name, (task, model_name, table, options) in EVALUATED.items():
        if task in evaluate:
            data = context.files[table]
            model = resolved(context, model_name)
            yield f"eval {name}", evaluated(context, task, model, data, *options)


def selected_metrics(context: Context) -> Results:
    """Yield the values of all metrics of generated texts."""
    case = TRAINED["seq2seq"][""]
    model = context.work / "finetuned" / "seq2seq" / "model"
    options = []
    for name in context.names["metrics"]:
        options += ["--metric", name]
    if options:
        data = context.files[case.table]
        words = (*case.columns, *options)
        yield "eval seq2seq metrics", evaluated(context, "seq2seq", model, data, *words)


def outputs(context: Context) -> Results:
    """Yield digests of what every task of ``zoo run`` prints and writes, and of its keys."""
    for name, (command_name, model, options) in RUN.items():
        key = f"run {name}"
        words = [context.files.get(str(option), option) for option in options]
        arguments = ("run", command_name, resolved(context, model), *words)
        yield key, context.output(*arguments)
        result = context.json(*arguments)
        yield f"keys of {key}", digest_of(sorted_keys(result))
        table = context.work / "outputs" / f"run-{name}.jsonl"
        context.env.run(*arguments, "-o", table)
        yield f"file of {key}", digest(table.read_text()) if table.exists() else None


def resolved(context: Context, name: str) -> Path:
    """Return the model of a family, ``model/bert``, without its head, or of a run of this part.

    ``objective/bert/NAME`` is a model of a family that learned another objective.
    """
    folder, _, rest = name.partition("/")
    match folder:
        case "model":
            return context.model(rest)
        case "objective":
            family, _, objective = rest.partition("/")
            return context.pretrained(family, objective) / "model"
        case "backbone":
            return context.backbone(rest)
        case _:
            return context.work / "finetuned" / name / "model"
