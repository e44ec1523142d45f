"""Fine-tuning, distillation and evaluations of two commits, for ``tools.same_results``."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Run = Callable[..., str]  # the command line: arguments -> standard output
WORDS = ("good", "fine", "great", "bad", "poor", "weak")  # the first three are of one label
# task of fine-tuning -> family, options of the columns, further settings
TASKS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "text-classification": ("bert", (), ("class_weights=balanced",)),
    "regression": ("bert", ("--label", "score"), ()),
    "multi-label": ("bert", ("--label", "kinds"), ()),
    "token-classification": ("bert", (), ("task_args.crf=true",)),
    "question-answering": ("bert", (), ()),
    "multiple-choice": ("bert", (), ()),
    "sentence-embedding": ("bert", ("--pair", "other", "--label", "score"), ()),
    "seq2seq": ("t5", ("--label", "target"), ()),
    "causal-lm": ("gpt", ("--label", "target"), ()),
}
# loss of distillation -> its settings
LOSSES = {
    "kl": "{kind: kl, temperature: 2.0}",
    "logits-mse": "{kind: logits-mse}",
    "hidden-mse": "{kind: hidden-mse, layers: uniform}",
    "hidden-cosine": "{kind: hidden-cosine}",
    "attention-mse": "{kind: attention-mse, layers: uniform}",
    "attention-kl": "{kind: attention-kl, layers: last}",
    "relations": "{kind: relations, relations: [queries, values], layers: last}",
}
TABLE_LOSSES = {"first-token-mse": "{kind: first-token-mse, layers: uniform}"}
FINETUNE = ("--set", "logging_steps=1", "--set", "eval_steps=4", "--set", "save_steps=4")
SMALL = ("--max-steps", "8", "--offline", "--device", "cpu")


def sample(number: int) -> dict[str, Any]:
    """Return a row with the columns of all tasks."""
    word = WORDS[number % 6]
    good = word in WORDS[:3]
    text = " ".join([*["the"] * (number % 5), word, "day", str(number)])
    return {
        "text": text,
        "other": f"it was {word} on day {number}",
        "label": "yes" if good else "no",
        "score": float(number % 7),
        "kinds": "warm,long" if good else "cold",
        "target": f"{word} {word}",
    }


def question(number: int) -> dict[str, Any]:
    """Return a row of a table of questions."""
    text, word = str(sample(number)["text"]), WORDS[number % 6]
    answers = {"text": [word], "answer_start": [text.index(word)]}
    return {"id": str(number), "question": "which?", "context": text, "answers": answers}


def choice(number: int) -> dict[str, Any]:
    """Return a row of a table of choices."""
    first, second = WORDS[number % 6], WORDS[(number + 3) % 6]
    return {"context": f"day {number}", "choices": [first, second], "label": number % 2}


def write_tables(folder: Path) -> dict[str, Path]:
    """Write a table for each task; return task -> file."""
    folder.mkdir()
    rows = {"question-answering": question, "multiple-choice": choice}
    files = {}
    for task in TASKS:
        if task == "token-classification":
            files[task] = folder / "words.conll"
            lines = (_sentence(number) for number in range(48))
            files[task].write_text("\n".join(lines))
            continue
        files[task] = folder / f"{task}.jsonl"
        make = rows.get(task, sample)
        files[task].write_text("".join(json.dumps(make(n)) + "\n" for n in range(48)))
    return files


def _sentence(number: int) -> str:
    words = str(sample(number)["text"]).split()
    return "".join(f"{word} {'B-MOOD' if word in WORDS else 'O'}\n" for word in words)


def record_of(run: Path, digest: Callable[[Path], str]) -> dict[str, Any]:
    """Return the losses and metrics of a run, and a digest of its weights."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    keep = ("step", "split", "loss", "losses", "metrics")
    records = [{key: line.get(key) for key in keep} for line in map(json.loads, lines)]
    return {"records": records, "weights": digest(run / "model")}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def finetuned(
    zoo: Run, models: dict[str, Path], files: dict[str, Path], work: Path, digest: Any
) -> Iterator[tuple[str, Any]]:
    """Yield name and results: a run of every task, its evaluation, its export with ``--eval``."""
    for task, (family, columns, more) in TASKS.items():
        run, settings = work / task, [part for value in more for part in ("--set", value)]
        zoo(
            *("finetune", models[family], "--task", task, "--train", files[task], *columns),
            *(*settings, *FINETUNE, *SMALL, "-o", run),
        )
        yield f"finetune {task}", record_of(run, digest)
        evaluate = ("eval", run / "model", "--task", task, "--data", files[task], *columns)
        result = json.loads(zoo(*evaluate, "--no-record", "--json"))
        yield f"eval {task}", result["metrics"]
        if task in ("text-classification", "token-classification", "regression"):
            out = work / f"{task}-onnx"
            zoo(
                "export",
                run / "model",
                "--onnx",
                "--int8",
                "--eval",
                files[task],
                *columns,
                "-o",
                out,
            )
            report = json.loads((out / "zoo.json").read_text())["export"]["quantized"]["int8"]
            yield f"export --eval {task}", report["agreement"]
    seeds = work / "seeds"
    zoo(
        *("finetune", models["bert"], "--task", "regression", "--train", files["regression"]),
        *("--label", "score", "--seeds", "2", *FINETUNE, *SMALL, "-o", seeds),
    )
    yield "finetune --seeds", json.loads((seeds / "summary.json").read_text())["metrics"]


def task_outputs(zoo: Run, work: Path, models: dict[str, Path]) -> Iterator[tuple[str, Any]]:
    """Yield the outputs of the tasks of ``zoo run`` for the fine-tuned models."""
    texts = ("the good day", "a weak day 3")
    commands: dict[str, Sequence[Any]] = {
        "classify text": ("classify", work / "text-classification" / "model", *texts),
        "classify number": ("classify", work / "regression" / "model", *texts),
        "classify labels": ("classify", work / "multi-label" / "model", *texts),
        "classify words": ("classify", work / "token-classification" / "model", *texts),
        "similarity": ("similarity", work / "sentence-embedding" / "model", *texts),
        "embed": ("embed", work / "sentence-embedding" / "model", *texts),
        "seq2seq": ("seq2seq", work / "seq2seq" / "model", *texts),
        "generate": ("generate", work / "causal-lm" / "model", *texts, "--max-new-tokens", 5),
        "score": ("score", models["gpt"], *texts),
        "answer": ("answer", work / "question-answering" / "model", "which?", texts[0]),
        "choose": (
            *("choose", work / "multiple-choice" / "model", "day 3"),
            *("--choice", "good", "--choice", "weak"),
        ),
    }
    for name, command in commands.items():
        yield f"run {name}", _hash(zoo("run", *command))


def evaluations(zoo: Run, models: dict[str, Path], text: Path) -> Iterator[tuple[str, Any]]:
    """Yield the results of the evaluations of language models."""
    pairs = text.with_name("pairs.tsv")
    lines = (f"mood\tthe {WORDS[n % 3]} day\tday {WORDS[n % 3]} the\n" for n in range(8))
    pairs.write_text("paradigm\tgood\tbad\n" + "".join(lines))
    for name, family, data in (
        ("perplexity", "gpt", text),
        ("pseudo-perplexity", "bert", text),
        ("replaced-tokens", "electra", text),
        ("minimal-pairs", "gpt", pairs),
    ):
        command = ("eval", models[family], "--task", name, "--data", data, "--limit", 20)
        yield f"eval {name}", json.loads(zoo(*command, "--no-record", "--json"))["metrics"]


def distilled(
    zoo: Run, models: dict[str, Path], files: dict[str, Path], work: Path, digest: Any
) -> Iterator[tuple[str, Any]]:
    """Yield the runs of every loss and of the kinds of recipes, and their scores."""
    text = files["text"]
    common = ("--no-score", "--set", "logging_steps=1", *SMALL)
    for name, settings in LOSSES.items():
        recipe, run = work / f"{name}.yaml", work / f"distill-{name}"
        recipe.write_text(f"terms:\n  {name}: {settings}\n")
        zoo(
            *("distill", "--teacher", models["bert"], "--student", "distilbert", "--data", text),
            *("--recipe", recipe, "--set", "global_batch_tokens=512"),
            *("--set", "save_steps=4", *common, "-o", run),
        )
        yield f"distill {name}", record_of(run, digest)
    teacher, table = work / "text-classification" / "model", files["text-classification"]
    on_table = ("distill", "--teacher", teacher, "--student", "distilbert", "--train", table)
    task = ("--task", "text-classification", "--set", "eval_steps=4", "--set", "save_steps=4")
    for name, settings in TABLE_LOSSES.items():
        recipe, run = work / f"{name}.yaml", work / f"distill-{name}"
        recipe.write_text(f"terms:\n  {name}: {settings}\n")
        zoo(*on_table, *task, "--recipe", recipe, *common, "-o", run)
        yield f"distill {name}", record_of(run, digest)
    run = work / "distill-scored"
    zoo(*on_table, *task, "--set", "logging_steps=1", *SMALL, "-o", run)
    scores = json.loads((run / "scores.json").read_text())
    for model in (scores["student"], *scores["teachers"]):
        del model["speed"], model["reference"]
    yield "distill scores", {k: scores[k] for k in ("student", "teachers", "metric", "retention")}


def resumed(
    zoo: Run, begun: Path, files: dict[str, Path], work: Path, digest: Any
) -> Iterator[tuple[str, Any]]:
    """Yield runs that the other commit began, resumed from their first checkpoint.

    The data of the runs lay in a temporary directory that is gone. ``files`` are equal ones.
    """
    for run in sorted(path for path in begun.iterdir() if (path / "run.json").is_file()):
        copy = work / "resumed" / run.name
        shutil.copytree(run, copy)
        for checkpoint in sorted((copy / "checkpoints").iterdir())[1:]:
            shutil.rmtree(checkpoint)
        shutil.rmtree(copy / "model")
        command = json.loads((copy / "run.json").read_text()).get("kind", "pretrain")
        data: tuple[object, ...] = ()
        if command == "distill":
            data = ("--teacher", begun / "bert" / "model", "--train", files["text"])
        elif command == "finetune":
            data = ("--train", files[run.name])
        zoo(command, "--resume", copy, *data, "--offline", "--device", "cpu")
        yield f"resume {run.name}", record_of(copy, digest)
