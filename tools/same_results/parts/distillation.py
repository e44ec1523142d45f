"""Every distillation loss with each of its settings, every recipe, and scores of students."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.same_results.context import (
    CPU,
    Context,
    Names,
    Results,
    settings_of,
    small_settings,
)
from tools.same_results.finetuning import Case, command
from tools.same_results.records import (
    digest,
    digest_of,
    require_cases,
    rounded,
    run_record,
    sorted_keys,
)

TEXT = "text"
TABLE = "table"
SENTENCES = "sentences"
ALIGNED = "aligned"
# loss -> data and settings of each term
LOSSES: Mapping[str, Sequence[tuple[str, str]]] = {
    "kl": (
        (TEXT, "temperature: 2.0, positions: all, scale_by_temperature: false"),
        (TABLE, "temperature: 3.0, reduction: elements"),
        ("generator", "logits_of: masked-lm"),
    ),
    "logits-mse": (
        (TEXT, "positions: all, reduction: rows"),
        (TABLE, "reduction: elements"),
        ("generator", "logits_of: masked-lm"),
    ),
    "hidden-mse": (
        (TEXT, "layers: uniform, embeddings: true, reduction: elements, projection: always"),
        (TABLE, "layers: [[0, 1]]"),
    ),
    "hidden-cosine": ((TEXT, "layers: last, embeddings: true, projection: always"),),
    "attention-mse": ((TEXT, "layers: uniform"), (TABLE, "layers: last")),
    "attention-kl": ((TEXT, "layers: last"),),
    "relations": (
        (TEXT, "relations: [queries, values], layers: last, relation_heads: 4"),
        (TABLE, "layers: uniform"),
    ),
    "first-token-mse": (
        (TABLE, "layers: uniform, reduction: elements, projection: always, embeddings: true"),
    ),
    "embeddings": ((SENTENCES, "reduction: elements, projection: always"),),
    "sentence-mse": ((ALIGNED, "reduction: elements, projection: always"),),
}
# recipe -> data
RECIPES: Mapping[str, str] = {
    "distilbert": TEXT,
    "distilroberta": TEXT,
    "distilgpt2": "causal",
    "electra": "electra",
    "xlnet": "xlnet",
    "lstm": "lstm",
    "logits": TEXT,
    "minilm": TEXT,
    "minilm-assistant": TEXT,
    "minilmv2": TEXT,
    "tinybert": TEXT,
    "tinybert-task": TABLE,
    "theseus": "layers",
    "patient": "layers",
    "embeddings": SENTENCES,
    "static": "static",
    "text": ALIGNED,
    "seq2seq": "sources",
    "sequence": "sources",
}
# data -> recipe whose outputs of the teacher are cached
CACHED: Mapping[str, str] = {TEXT: "logits", TABLE: "logits", SENTENCES: "embeddings"}
STEPS = ("--max-steps", 4, "--keep-optimizer", *CPU, *settings_of("logging_steps=1"))
ON_TEXT = [*small_settings(without="vocab_size"), "--set", "save_steps=2"]
ON_TABLE = settings_of("batch_size=8", "eval_steps=2", "save_steps=2")


def teacher(context: Context, name: str) -> Path:
    """Return a teacher: a fine-tuned model."""
    cases = {
        TABLE: ("text-classification", Case()),
        "sources": ("seq2seq", Case(columns=("--label", "target"), model="t5")),
    }
    task, case = cases[name]
    run = context.once(
        f"teachers/{name}",
        lambda path: context.env.zoo(*command(context, task, case), "-o", path),
    )
    return run / "model"


def deep_teacher(context: Context) -> Path:
    """Return a fine-tuned model of four layers, of which a student of two skips some."""
    words: tuple[object, ...] = ("--train", context.files["samples"], "--size", "tiny")
    tokenizer = ("--tokenizer", context.model("bert"), "--max-steps", 4, *CPU)
    settings = settings_of("config.num_layers=4", "batch_size=8")

    def finetune(path: Path) -> None:
        task = ("finetune", "bert", "--task", "text-classification")
        context.env.zoo(*task, *words, *tokenizer, *settings, "-o", path)

    return context.once("teachers/deep", finetune) / "model"


def data_options(context: Context, data: str) -> list[Any]:
    """Return teacher, student, data and settings of a run."""
    texts = context.files["texts"]
    samples = context.files["samples"]
    match data:
        case "table":
            words = ["--teacher", teacher(context, TABLE), "--student", "distilbert"]
            return [*words, "--task", "text-classification", "--train", samples, *ON_TABLE]
        case "layers":
            words = ["--teacher", deep_teacher(context), "--student", "bert"]
            return [*words, "--task", "text-classification", "--train", samples, *ON_TABLE]
        case "sources":
            words = ["--teacher", teacher(context, data), "--student", "t5", "--task", "seq2seq"]
            return [*words, "--train", samples, "--label", "target", *ON_TABLE]
        case "sentences":
            words = ["--teacher", context.backbone("bert"), "--student", "distilbert"]
            return [*words, "--train", context.files["sentences"], *ON_TABLE]
        case "static":
            words = ["--teacher", context.backbone("bert"), "--student", "static"]
            return [*words, "--train", context.files["sentences"], *ON_TABLE]
        case "aligned":
            words = ["--teacher", context.model("roberta"), "--student", "bert"]
            return [
                *words,
                "--align",
                "text",
                "--train",
                texts,
                *ON_TEXT,
                "--set",
                "vocab_size=400",
            ]
        case "xlnet" | "lstm":
            words = ["--teacher", context.model(data), "--student", data]
            return [*words, "--train", texts, *ON_TEXT]
        case "generator" | "electra":
            words = ["--teacher", context.model("electra"), "--student", "electra"]
            return [*words, "--train", texts, *ON_TEXT]
        case "causal":
            words = ["--teacher", context.model("gpt"), "--student", "gpt"]
            return [*words, "--train", texts, *ON_TEXT]
        case _:
            words = ["--teacher", context.model("bert"), "--student", "distilbert"]
            return [*words, "--train", texts, *ON_TEXT]


def check(names: Names) -> None:
    """Check that every loss, setting and recipe has a case."""
    require_cases("the recipe", names["recipes"], RECIPES)
    losses = names["distillation_losses"]
    require_cases("the distillation loss", losses, LOSSES)
    for loss, setting_names in losses.items():
        parts = [part for _, term in LOSSES[loss] for part in term.split(", ")]
        settings = {part.partition(":")[0].strip() for part in parts}
        require_cases(f"the settings of {loss}", setting_names, settings)


def collect(context: Context) -> Results:
    """Yield the results of losses, recipes and scores."""
    yield from losses(context)
    yield from recipes(context)
    yield from others(context)


def losses(context: Context) -> Results:
    """Yield a run of each term."""
    for loss in context.names["distillation_losses"]:
        for number, (data, term) in enumerate(LOSSES[loss]):
            name = f"{loss} {data}"
            recipe = context.work / "distilled" / f"{loss}-{number}.yaml"
            recipe.parent.mkdir(exist_ok=True)
            values = ", ".join(filter(None, [f"kind: {loss}", term]))
            head = "objective_weight: 0.5\n"
            if data == SENTENCES:  # They have no other loss.
                head = "objective_weight: 0.0\ninit_layers: embeddings\ndata: sentences\n"
            if data == ALIGNED:  # The student has other tokens, and begins with new weights.
                head += "init_layers: null\n"
            recipe.write_text(f"{head}terms:\n  term: {{{values}}}\n")
            run = recipe.with_suffix("")
            words = ("distill", *data_options(context, data), "--recipe", recipe, "--no-score")
            yield name, context.trained(run, *words, *STEPS)


def recipes(context: Context) -> Results:
    """Yield a run of each recipe, and its text."""
    for name in context.names["recipes"]:
        text = context.env.zoo("distill", "--recipe", name, "--print-recipe")
        yield f"text of {name}", digest(text)
        run = context.work / "distilled" / f"recipe-{name}"
        options = data_options(context, RECIPES[name])
        words = ("distill", *options, "--recipe", name, "--no-score", *STEPS)
        yield f"recipe {name}", context.trained(run, *words)


def others(context: Context) -> Results:
    """Yield runs with a cache of the teacher, with two teachers, and with scores."""
    folder = context.work / "distilled"
    table = data_options(context, TABLE)
    for data, recipe in CACHED.items():
        cache = folder / f"cache-{data}"
        words = ("distill", *data_options(context, data), "--no-score", *STEPS)
        words += ("--recipe", recipe)
        if data == TEXT:  # Other masks in each epoch would need other outputs of the teacher.
            words += ("--set", "objective_args.mask_schedule=static")
        key = f"cache of {data}"
        run = folder / f"cached-{data}"
        yield key, context.trained(run, *words, "--cache-teacher", cache)
    key = "two teachers"
    words = ("distill", "--teacher", teacher(context, TABLE), *table, "--no-score", *STEPS)
    yield key, context.trained(folder / "two", *words)
    key = "seeds"
    words = ("distill", *table, "--seeds", 2, "--no-score", *STEPS)
    yield key, context.trained(folder / "seeds", *words)
    run = folder / "scored"
    result = context.json("distill", *table, *STEPS, "-o", run)
    yield "keys of scores", digest_of(sorted_keys(result))
    yield "scores", scores_of(run)
    yield "scored run", run_record(run, context.clean)


def scores_of(run: Path) -> Any:
    """Return the scores of a student and its teachers, without their speed."""
    scores = json.loads((run / "scores.json").read_text())
    for model in (scores["student"], *scores["teachers"]):
        model.pop("speed", None)
        model.pop("reference", None)
    names = ("student", "teachers", "metric", "retention")
    return rounded({name: scores.get(name) for name in names})
