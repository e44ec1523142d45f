"""Every family: pretraining, conversion, each head that a task trains, outputs, and graphs."""

import json
from pathlib import Path
from typing import Any

from tools.same_results.context import Context, Names, Results
from tools.same_results.finetuning import Case, command
from tools.same_results.records import digest, require_cases, run_record, tensors_digest

# Families whose models are made of others' and not pretrained.
STATIC = ("model2vec",)
# head -> task that trains it
HEADS = {
    "sequence-classification": ("text-classification", Case()),
    "token-classification": ("token-classification", Case("words")),
    "question-answering": ("question-answering", Case("questions")),
    "multiple-choice": ("multiple-choice", Case("choices")),
    "causal-lm": ("causal-lm", Case(columns=("--label", "target"))),
    "seq2seq-lm": ("seq2seq", Case(columns=("--label", "target"))),
    "none": ("sentence-embedding", Case(columns=("--pair", "other"))),
}
# heads that no task of fine-tuning adds to a model
PRETRAINED_HEADS = (
    "masked-lm",
    "pretraining",
    "structural-pretraining",
    "replaced-token-detection",
    "bidirectional-lm",
    "beam-question-answering",
    "encoder",
)
TEXTS = ("The cat sat on the mat.", "It was a dark and stormy night, and the rain fell.", "Alice")
# command of ``zoo run`` -> whether it reads a model without a head, and its options
COMMANDS = {
    "embed": (True, ()),
    "features": (True, ("--layers", "0,-1")),
    "fill-mask": (False, ()),
    "generate": (False, ("--max-new-tokens", 5)),
    "seq2seq": (False, ("--max-new-tokens", 5)),
    "score": (False, ()),
    "next-sentence": (False, ()),
    "sentence-order": (False, ()),
    "sentence-structure": (False, ()),
}


def check(names: Names) -> None:
    """Check that every head has a task that trains it, or is pretrained."""
    for family, heads_of_family in names["families"].items():
        require_cases(f"the head of {family}", heads_of_family, (*HEADS, *PRETRAINED_HEADS))


def collect(context: Context) -> Results:
    """Yield the results of all families."""
    families = context.env.json("families")["families"]
    for family, facts in families.items():
        yield f"facts {family}", facts
        if family in STATIC:
            yield from static(context, family)
            continue
        yield f"pretrain {family}", run_record(context.pretrained(family), context.clean)
        hub = context.hub(family)
        backbone = context.backbone(family)
        yield f"hub {family}", tensors_digest(hub)
        yield f"hub files {family}", files_digest(hub)
        yield f"backbone {family}", tensors_digest(backbone)
        yield from outputs(context, family, facts["tasks"])
        yield from heads(context, family, facts["heads"])


def static(context: Context, family: str) -> Results:
    """Yield the results of static embeddings, which a backbone teaches."""
    run = context.work / "families" / family
    words: tuple[object, ...] = ("--teacher", context.backbone("bert"), "--student", "static")
    steps = ("--max-steps", 4, "--set", "logging_steps=1", "--no-score")
    key = f"distill {family}"
    data = ("--train", context.files["sentences"], "--offline", "--device", "cpu")
    yield key, context.trained(run, "distill", *words, *data, *steps)
    for backend in ("cpu", "onnx"):
        words = ("run", "embed", run / "model", "--backend", backend, *TEXTS)
        yield f"embed {family} {backend}", context.output(*words)


def files_digest(hub: Path) -> str:
    """Return a digest of the configurations of a model in the layout of the Hub."""
    files = sorted(path for path in hub.glob("*.json") if path.name != "zoo.json")
    return digest("".join(f"{path.name}\n{path.read_text()}\n" for path in files))


def outputs(context: Context, family: str, tasks: list[str]) -> Results:
    """Yield digests of the output of every task for a model, in torch and in ONNX Runtime."""
    for name, (bare, options) in COMMANDS.items():
        if name not in tasks:
            continue
        model = context.backbone(family) if bare else context.model(family)
        texts: tuple[str, ...] = TEXTS[:2]
        if name == "fill-mask":
            texts = masked_texts(model)
        for backend in ("cpu", "onnx"):
            key = f"run {name} {family} {backend}"
            words = ("run", name, model, "--backend", backend, *texts, *options)
            yield key, context.output(*words)


def masked_texts(model: Path) -> tuple[str, ...]:
    """Return texts with the mask token of a model."""
    config: dict[str, Any] = json.loads((model / "config.json").read_text())
    mask = config["tokenizer"]["special"]["mask"]
    return (f"The cat sat on {mask} mat.", f"It was a {mask} night.")


def heads(context: Context, family: str, names: list[str]) -> Results:
    """Yield a run of fine-tuning for each head of a family."""
    for head in names:
        if head not in HEADS:
            continue
        task, case = HEADS[head]
        model = Case(case.table, case.columns, case.settings, family)
        key = f"finetune {family} {head}"
        run = context.work / "families" / family / head
        yield key, context.trained(run, *command(context, task, model))
