"""Quality, speed and memory of adapters: ``zoo finetune --adapter`` next to peft.

    python -m benchmarks.adapters MODEL DATA [--tasks sst2 cola wnut17] [--steps N] [--seeds 3]

MODEL is a directory in the Hub's layout. DATA has ``sst2`` and ``cola`` (``train.tsv`` and
``dev.tsv`` without a header; text and label are columns 1 and 2, or 4 and 2), and ``wnut17``
(``train.conll`` and ``dev.conll``, word and tag). Each method is trained with several seeds:

* *full*: all weights; *head*: a frozen model with a head;
* *lora-4*, *lora-8*, *lora-16*, *dora-8*, *ia3*, *prompt*, *prefix*, *houlsby*, *pfeiffer*;
* *peft lora-R*, *peft ia3*, *peft prefix*: the same in peft, by the Trainer of transformers with
  batches of rows of similar length.

All read the same rows, with the same number of steps, batch size, learning rate and schedule, on
one thread. A row of a table has the metric (accuracy, Matthews correlation, or entity F1; mean,
range over the seeds, and the 95 % interval of Student's t), the number of trained parameters, the
bytes of the result, tokens per second of CPU time in training, which other programs on the machine
disturb less than the clock, and the peak memory of the process. Each side of a task is a process of
its own, which trains all seeds. ``--results FILE`` keeps the result of each run in a file, and does
not repeat the runs in it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._common import RunResults, machine, student, table, versions

LENGTH = 64  # tokens
# above those of long runs, since a run has few steps
RATES = {"full": 1e-4, "head": 3e-3, "ia3": 1e-2, "prompt": 3e-2, "prefix": 2e-2}
BOTTLENECK_RATE = 2e-3
LORA_RATE = 4e-3
PREFIX = 20  # virtual tokens
SIDES = (
    "full",
    "head",
    "lora-4",
    "lora-8",
    "lora-16",
    "dora-8",
    "ia3",
    "prompt",
    "prefix",
    "houlsby",
    "pfeiffer",
    "peft lora-4",
    "peft lora-8",
    "peft lora-16",
    "peft ia3",
    "peft prefix",
)
SHARED = ("rows", "eval_rows", "steps", "batch_size", "rate_factor")  # options of a side's process
RESULT = "result: "  # before the results in its output
Result = dict[str, float]


class Task(NamedTuple):
    """A data set: its task, files, columns, and the metric by its names here and in zoo."""

    task: str
    suffix: str
    text: str | None
    label: str | None
    metric: str


TASKS = {
    "sst2": Task("text-classification", "tsv", "1", "2", "accuracy"),
    "cola": Task("text-classification", "tsv", "4", "2", "matthews_correlation"),
    "wnut17": Task("token-classification", "conll", None, None, "f1"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rows", type=int, help="rows to train on; by default all")
    parser.add_argument("--eval-rows", type=int, help="rows to evaluate on; by default all")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rate-factor", type=float, default=1.0, help="of all learning rates")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--smoke", action="store_true", help="two steps of one seed")
    parser.add_argument("--results", type=Path, help="file of the results of single runs")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--missing", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        options.steps = 2
        options.seeds = 1
    if options.side:
        task, side = options.side
        run_side(task, side, options)
        return
    print(f"{machine(1)}; {versions('torch', 'transformers', 'peft')}; {options.seeds} seeds")
    shared = {name: getattr(options, name) for name in ("model", "data", *SHARED)}
    results = RunResults(options.results, shared)
    for name in options.tasks:
        rows = [cells(side, measure(name, side, options, results)) for side in options.sides]
        header = [name, TASKS[name].metric, "range", "95 % interval", "trained", "bytes"]
        print(f"\n{table([*header, 'tokens / CPU s', 'peak MB'], rows)}", flush=True)


def measure(task: str, side: str, options: argparse.Namespace, results: RunResults) -> list[Result]:
    """Train one side of a task with all seeds, in a process of its own."""
    names = {seed: f"{task}, {side}, seed {seed}" for seed in range(options.seeds)}
    missing = [seed for seed, name in names.items() if name not in results.known]
    command = [sys.executable, "-m", "benchmarks.adapters", str(options.model), str(options.data)]
    for name in SHARED:
        value = getattr(options, name)
        command += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    command += ["--side", task, side, "--missing", *map(str, missing)]
    for seed, result in zip(missing, output(command) if missing else (), strict=True):
        results.add(names[seed], result)
        print(f"{names[seed]}: {result['score']:.4f}", file=sys.stderr, flush=True)
    return [results.known[name] for name in names.values()]


def output(command: Sequence[str]) -> Iterator[Result]:
    """Yield the results that a process prints, as they come."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        for line in process.stdout or ():
            if line.startswith(RESULT):
                yield json.loads(line.removeprefix(RESULT))
        if process.wait():
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{errors.read()[-2000:]}")


def cells(side: str, results: Sequence[Result]) -> list[str]:
    """Return the row of a side: means over the seeds, and how far the metric varies."""

    def mean(name: str) -> float:
        return statistics.mean(result[name] for result in results)

    scores = [result["score"] for result in results]
    peak = max(result["peak"] for result in results)
    return [
        side,
        f"{mean('score'):.3f}",
        f"{min(scores):.3f} to {max(scores):.3f}",
        student(scores),
        f"{mean('trained'):,.0f}",
        f"{mean('bytes'):,.0f}",
        f"{mean('rate'):,.0f}",
        f"{peak / 2**20:,.0f}",
    ]


def run_side(name: str, side: str, options: argparse.Namespace) -> None:
    """Train and evaluate one side with each missing seed, and print a line with each result."""
    import resource

    import torch

    torch.set_num_threads(1)
    train: Callable[..., Result] = with_peft if side.startswith("peft ") else with_zoo
    for seed in options.missing:
        with tempfile.TemporaryDirectory() as scratch:
            files = [
                first_rows(options.data / name / f"{split}.{TASKS[name].suffix}", rows, scratch)
                for split, rows in (("train", options.rows), ("dev", options.eval_rows))
            ]
            result = train(TASKS[name], side, files, seed, Path(scratch), options)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        print(f"{RESULT}{json.dumps({**result, 'peak': peak})}", flush=True)


def first_rows(file: Path, rows: int | None, folder: str) -> Path:
    """Return a copy of a table with its first rows, which are sentences in a CoNLL file."""
    between = "\n\n" if file.suffix == ".conll" else "\n"
    items = islice(file.read_text(encoding="utf-8").strip("\n").split(between), rows)
    copy = Path(folder) / file.name
    copy.write_text(between.join(items) + between, encoding="utf-8")
    return copy


def rate_of(side: str) -> float:
    """Return the learning rate of a method."""
    method = side.removeprefix("peft ")
    low_rank = method.startswith(("lora", "dora"))
    return RATES.get(method, LORA_RATE if low_rank else BOTTLENECK_RATE)


def adapter_of(side: str) -> Mapping[str, Any] | None:
    """Return the settings of the adapter of a side."""
    if side in ("full", "head"):
        return None
    method, _, rank = side.partition("-")
    return {"method": method, **({"rank": int(rank), "alpha": int(rank)} if rank else {})}


def with_zoo(
    task: Task, side: str, files: Sequence[Path], seed: int, scratch: Path, options: Any
) -> Result:
    """Train with zoo. Only steps are timed, and trained are the parameters of the optimizer."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.finetuning.runs import FineTuneRun
    from zoo.inference.load_model import load_model
    from zoo.nn.stacks import stacks
    from zoo.training.distributed.context import DistContext
    from zoo.training.logging.jsonl import read_jsonl
    from zoo.training.trainer import Trainer

    layers = 0
    if side == "head":
        model = load_model(resolve_checkpoint(str(options.model)))
        layers = max(len(stack.order) for stack in stacks(model))
    columns = {"text": task.text, "label": task.label} if task.text else {}
    settings = {
        "task": task.task,
        "init_from": {"model": str(options.model)},
        "adapter": adapter_of(side),
        "freeze_layers": layers,
        "data": {"train": [str(files[0])], "eval": [str(files[1])], **columns},
        "preset": "default",
        "batch_size": options.batch_size,
        "max_seq_len": LENGTH,
        "max_steps": options.steps,
        "eval_steps": options.steps,
        "warmup_ratio": 0.06,
        "optimizer": {"learning_rate": options.rate_factor * rate_of(side), "weight_decay": 0.0},
        "seed": seed,
        "report_to": [],
    }
    seconds = list[float]()
    trainers = list[Trainer]()
    step = Trainer.train_step

    def timed(self: Trainer, batches: Any) -> dict[str, float]:
        began = time.process_time()
        result = step(self, batches)
        seconds.append(time.process_time() - began)
        trainers[:] = [self]
        return result

    Trainer.train_step = timed  # type: ignore[method-assign]
    try:
        paths = FineTuneRun(settings, DistContext.initialize("cpu"), scratch / "run").start()
    finally:
        Trainer.train_step = step  # type: ignore[method-assign]
    (trainer,) = trainers
    last = [record for record in read_jsonl(paths.run) if record["split"] == "validation"][-1]
    (file,) = paths.model.glob("*.safetensors")
    return {
        "score": last["metrics"][task.metric],
        "trained": float(sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)),
        "bytes": float(file.stat().st_size),
        "rate": trainer.tokens / sum(seconds),
    }


class Rows(NamedTuple):
    """Tokenized rows for the Trainer, the names of labels, and the head."""

    train: list[dict[str, Any]]
    held: list[dict[str, Any]]
    labels: list[str]
    task_type: str


def read_texts(task: Task, files: Sequence[Path], tokenizer: Any) -> Rows:
    """Read texts with a label each."""
    from zoo.data.readers.labelled import Columns, label_name, read_samples, sort_labels

    columns = Columns(text=str(task.text), label=str(task.label))
    splits = [list(read_samples([str(file)], columns)) for file in files]
    labels = sort_labels([label_name(row.label, row.location) for row in splits[0]])

    def rows(samples: Sequence[Any]) -> list[dict[str, Any]]:
        encoded = (tokenizer(s.text, truncation=True, max_length=LENGTH) for s in samples)
        ids = (labels.index(label_name(s.label, s.location)) for s in samples)
        return [{**row, "labels": label} for row, label in zip(encoded, ids, strict=True)]

    return Rows(rows(splits[0]), rows(splits[1]), list(labels), "SEQ_CLS")


def read_words(files: Sequence[Path], tokenizer: Any) -> Rows:
    """Read words with a tag each, which is the label of a word's first token."""
    splits = []
    for file in files:
        blocks = file.read_text(encoding="utf-8").strip().split("\n\n")
        # WNUT-17 has a tab before the empty line
        words = (
            [line.split("\t") for line in block.split("\n") if line.strip()] for block in blocks
        )
        splits.append(list(words))
    labels = sorted({tag for sentence in splits[0] for _, tag in sentence})

    def row(sentence: Sequence[Sequence[str]]) -> dict[str, Any]:
        words = [word for word, _ in sentence]
        encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=LENGTH)
        ids = []
        before = None
        for word in encoded.word_ids():
            first = word is not None and word != before
            ids.append(labels.index(sentence[word][1]) if first else -100)
            before = word
        return {**encoded, "labels": ids}

    train, held = ([row(sentence) for sentence in split] for split in splits)
    return Rows(train, held, labels, "TOKEN_CLS")


def peft_config(side: str, task_type: str) -> Any:
    """Return the configuration of a method in peft."""
    import peft

    kind, _, rank = side.removeprefix("peft ").partition("-")
    if kind == "ia3":
        return peft.IA3Config(task_type=task_type)
    if kind == "prefix":
        return peft.PrefixTuningConfig(task_type=task_type, num_virtual_tokens=PREFIX)
    return peft.LoraConfig(task_type=task_type, r=int(rank), lora_alpha=int(rank))


def score(task: Task, output: Any, rows: Rows) -> float:
    """Return the metric, by scikit-learn or seqeval.

    The Trainer also groups the rows that it evaluates by length: the labels are read in its order.
    """
    import numpy as np
    import seqeval.metrics
    import sklearn.metrics

    predicted = np.argmax(output.predictions, -1)
    labels = output.label_ids
    if rows.task_type == "TOKEN_CLS":
        expected = []
        found = []
        for row, ids in zip(labels, predicted, strict=True):
            pairs = [(a, b) for a, b in zip(row, ids, strict=True) if a != -100]
            expected.append([rows.labels[a] for a, _ in pairs])
            found.append([rows.labels[b] for _, b in pairs])
        return float(seqeval.metrics.f1_score(expected, found))
    if task.metric == "accuracy":
        return float(sklearn.metrics.accuracy_score(labels, predicted))
    return float(sklearn.metrics.matthews_corrcoef(labels, predicted))


def with_peft(
    task: Task, side: str, files: Sequence[Path], seed: int, scratch: Path, options: Any
) -> Result:
    """Train with peft, by the Trainer of transformers. Only steps are timed."""
    import peft
    import transformers

    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    is_words = task.task == "token-classification"
    rows = read_words(files, tokenizer) if is_words else read_texts(task, files, tokenizer)
    kind: Any = (
        transformers.AutoModelForTokenClassification
        if is_words
        else transformers.AutoModelForSequenceClassification
    )
    model = kind.from_pretrained(options.model, num_labels=len(rows.labels))
    adapted: Any = peft.get_peft_model(model, peft_config(side, rows.task_type))
    arguments = transformers.TrainingArguments(
        str(scratch / "trainer"),
        learning_rate=options.rate_factor * rate_of(side),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.batch_size,
        warmup_steps=round(0.06 * options.steps),
        train_sampling_strategy="group_by_length",
        optim="adamw_torch_fused",
        use_cpu=True,
        seed=seed,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    collator: Any = (
        transformers.DataCollatorForTokenClassification(tokenizer)
        if is_words
        else transformers.DataCollatorWithPadding(tokenizer)
    )
    clock = step_clock()
    trainer = transformers.Trainer(
        model=adapted,
        args=arguments,
        train_dataset=rows.train,
        data_collator=collator,
        callbacks=[clock],
    )
    tokens = 0
    compute_loss: Any = trainer.compute_loss

    def counted(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal tokens
        tokens += int(inputs["attention_mask"].sum()) if model.training else 0
        return compute_loss(model, inputs, *args, **kwargs)

    trainer.compute_loss = counted
    trainer.train()
    output: Any = trainer.predict(rows.held)
    adapted.save_pretrained(str(scratch / "adapter"))
    size = (scratch / "adapter" / "adapter_model.safetensors").stat().st_size
    return {
        "score": score(task, output, rows),
        "trained": float(sum(p.numel() for p in adapted.parameters() if p.requires_grad)),
        "bytes": float(size),
        "rate": tokens / clock.seconds,
    }


def step_clock() -> Any:
    """Return a callback that adds the CPU time of steps."""
    import transformers

    class StepClock(transformers.TrainerCallback):  # type: ignore[misc]
        """The CPU time of training steps."""

        seconds = began = 0.0

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = time.process_time()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.seconds += time.process_time() - self.began

    return StepClock()


if __name__ == "__main__":
    main()
