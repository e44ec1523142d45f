"""What papers report: suites of tasks, probes of layers, and conditions of prompts."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.suites.frozen_folders import (
    make_beir,
    make_cola,
    make_probing,
    make_senteval,
    make_sts,
)
from tests.suites.glue_folder import make_glue
from tests.suites.superglue_folder import make_superglue
from tools.same_results.context import CPU, Context, Names, Results, settings_of
from tools.same_results.records import digest, digest_of, require_cases, rounded, sorted_keys

COLLECTIONS = "scifact,arguana"
ROWS = 12  # Of each file of a suite; classifiers of SentEval have ten folds.


def make_collections(folder: Path, count: int) -> object:
    """Write the folder of BEIR."""
    return make_beir(folder, COLLECTIONS.split(","), texts=2 * count)


# suite -> what writes its folder; its tasks, all of them where there are none; REF
SUITES: Mapping[str, tuple[Callable[[Path, int], object], str, str]] = {
    "glue": (make_glue, "cola,stsb,mnli,qqp", "bert"),
    "superglue": (make_superglue, "cb,copa,multirc,record,wic,wsc", "bert"),
    "sts": (make_sts, "", "bert"),
    "beir-small": (make_collections, COLLECTIONS, "bert"),
    "senteval": (make_senteval, "sst2,trec,mrpc", "bert"),
    "senteval-probing": (make_probing, "past-present,word-content", "bert"),
    "cola-probing": (make_cola, "", "bert"),
}
DOWNLOADED = ("mteb",)  # Suites whose data no script writes.
TRAINED = ("glue", "superglue")
MIXTURE = "mixture of superglue"
FEW_STEPS = ("--max-steps", 2, "--preset", "default", *settings_of("batch_size=8"), *CPU)
# probing task -> data, and options of its cases
PROBES: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "text-classification": (
        "samples",
        {
            "": (),
            "mlp": ("--probe", "mlp", "--hidden-size", "8", "--l2", "0.1"),
            "mdl": ("--mdl", "--control", "--pooling", "first"),
            "pair": ("--pair", "other", "--layers", "0,-1", "--seeds", "2"),
        },
    ),
    "token-classification": ("words", {"": (), "control": ("--control", "--pooling", "last")}),
    "edge": ("edges", {"": (), "mlp": ("--probe", "mlp", "--control")}),
}
TEMPLATE = ("--template", "{text} is {label}.", "--label-words", "yes=a,no=i")
SHOTS = (*TEMPLATE, "--shots", "2", "--shots-from", "samples", "--limit", "6")
CONDITIONS = []
for labels in ("gold", "random", "permuted", "none"):
    CONDITIONS += ["--shot-labels", labels]
STEPS = "{text} so {rationale} The answer is {label}."
CHAIN = ("--scoring", "generate", "--template", STEPS, "--max-new-tokens", "4", "--limit", "4")
# name -> model and options of ``zoo eval --task prompt``
PROMPTS: Mapping[str, tuple[str, Sequence[str]]] = {
    "seeds and orders": ("gpt", (*SHOTS, "--seeds", "2", "--orders", "all")),
    "labels": ("gpt", (*SHOTS, "--seeds", "2", *CONDITIONS)),
    "wrong labels": ("gpt", (*SHOTS, "--wrong-labels", "0.5")),
    "calibrated": ("gpt", (*SHOTS, "--calibrate", "--scoring", "normalized")),
    "templates": ("bert", (*TEMPLATE, "--template", "{text} : {label}", "--limit", "6")),
    "chain of thought": ("gpt", CHAIN),
    "second prompt": ("gpt", (*CHAIN, "--answer-prompt", "So it is")),
    "answers": ("gpt", (*CHAIN, "--samples", "2", "--answer", "is ([a-z]+)")),
}


def check(names: Names) -> None:
    """Check that every suite and probing task has a case."""
    require_cases("the suite", names["suites"], {*SUITES, *DOWNLOADED})
    require_cases("the probing task", names["probes"], PROBES)


def collect(context: Context) -> Results:
    """Yield the results of suites, probes and prompts."""
    check(context.names)
    folder = context.work / "measurements"
    folder.mkdir()
    yield from suites(context, folder)
    yield from probes(context, folder)
    for name, (model, options) in PROMPTS.items():
        data = context.files["samples"]
        words = [context.files.get(option, option) for option in options]
        arguments = ("eval", context.model(model), "--task", "prompt", "--eval", data, *words)
        yield f"prompt {name}", measured(context, *arguments, "--no-record")


def suites(context: Context, folder: Path) -> Results:
    """Yield the scores and answers of suites."""
    for name in context.names["suites"]:
        if name in DOWNLOADED:
            continue
        make, tasks, family = SUITES[name]
        data = folder / name
        make(data, ROWS)
        selection = ("--tasks", tasks) if tasks else ()
        words: tuple[Any, ...] = ("--suite", name, data, *selection)
        model = context.backbone(family)
        if name in TRAINED:
            runs = folder / f"runs-{name}"
            trained = measured(context, "finetune", model, *words, *FEW_STEPS, "-o", runs)
            yield f"finetune suite {name}", trained
            model = runs
            words = (*words, "--predictions", folder / f"answers-{name}")
        yield f"suite {name}", measured(context, "eval", model, *words, "--no-record")
        if name in TRAINED:
            yield f"answers of {name}", answers(folder / f"answers-{name}")
    words = ("--suite", "superglue", folder / "superglue", "--tasks", "cb,wsc,record", "--mixture")
    runs = folder / "runs-mixture"
    arguments = ("finetune", context.model("t5"), *words, *FEW_STEPS, "-o", runs)
    yield MIXTURE, measured(context, *arguments)


def probes(context: Context, folder: Path) -> Results:
    """Yield the values of all layers."""
    edges = folder / "edges.jsonl"
    edges.write_text("".join(map(edge_line, range(ROWS))))
    files = {**context.files, "edges": edges}
    for task in context.names["probes"]:
        table, cases = PROBES[task]
        for name, options in cases.items():
            data = ("--train", files[table], "--eval", files[table])
            words = ("--task", task, *data, *options, "--device", "cpu")
            model = context.model("bert")
            yield f"probe {task} {name}".strip(), measured(context, "probe", model, *words)


def edge_line(number: int) -> str:
    """Return a text of four words with an edge, whose label depends on its words."""
    text = f"the {'good' if number % 2 else 'bad'} day {number}"
    target = {"span1": [1, 2], "span2": [2, 4], "label": "yes" if number % 2 else "no"}
    return json.dumps({"text": text, "targets": [target]}) + "\n"


def measured(context: Context, *arguments: object) -> Any:
    """Return the values and a digest of an object that a command prints, or why it was refused."""
    result = context.json(*arguments)
    if "exit code" in result:
        return result
    values = {
        name: rounded(result[name])
        for name in ("average", "tasks", "metrics", "models")
        if name in result
    }
    return {**values, "all": digest_of(result), "keys": digest_of(sorted_keys(result))}


def answers(folder: Path) -> dict[str, str]:
    """Return digests of the files for a leaderboard."""
    return {path.name: digest(path.read_bytes()) for path in sorted(folder.glob("*"))}
