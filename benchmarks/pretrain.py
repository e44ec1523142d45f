"""Masked language modelling on a CPU, compared with the ``Trainer`` of transformers.

    pip install accelerate        # required by the Trainer
    python -m benchmarks.pretrain FOLDER [--threads 2] [--steps 60] [--rounds 3]

Targets: at least twice the tokens per second, and at most 0.7 times the memory.

FOLDER holds text files in which blank lines end documents. Both train the same model, 4 layers with
hidden size 256, with one tokenizer, on the documents of those files; documents of more than 128
tokens are truncated. The Trainer has 32 documents per step, as in its own example for texts of
different lengths, padded to the longest; the zoo packs 2,048 tokens per step. Padding does not
count as tokens. Loading, evaluation and saving are not measured. First, the losses of one batch
with the same weights are compared.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._common import machine, run_process, table, versions

LENGTH, DOCUMENTS, BATCH, WINDOW = 128, 32, 2048, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps <= WINDOW:
        parser.error(f"--steps has to be more than {WINDOW}, which are timed")
    if options.side:
        side, corpus, output = options.side
        measured = {"ours": ours, "theirs": theirs}[side](Path(corpus), options.steps)
        Path(output).write_text(json.dumps(measured), encoding="utf-8")
        return
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = build(options.folder, Path(scratch))
        print(f"one batch, the same weights: losses differ by {difference(corpus):.1e}")
        report(corpus, Path(scratch, "result.json"), options)


def build(folder: Path, scratch: Path) -> Path:
    """Tokenize the folder's files for both."""
    corpus = scratch / "corpus"
    options = ["--tokenizer", "train", "--family", "bert", "--vocab-size", "30522"]
    run_process(
        [sys.executable, "-m", "zoo", "corpus", "build", str(folder), "-o", str(corpus), *options]
    )
    return corpus


def report(corpus: Path, output: Path, options: argparse.Namespace) -> None:
    speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
    memory: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(options.rounds):
        for side in speeds if turn % 2 else reversed(speeds):
            argv = [sys.executable, "-m", "benchmarks.pretrain", str(options.folder)]
            argv += ["--steps", str(options.steps), "--side", side, str(corpus), str(output)]
            memory[side].append(run_process(argv).peak_mb)
            speeds[side].append(json.loads(output.read_text())["tokens_per_second"])
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    rate, peak = (
        {side: statistics.median(values) for side, values in series.items()}
        for series in (speeds, memory)
    )
    rows = [
        ["transformers Trainer", f"{rate['theirs']:,.0f}", "", f"{peak['theirs']:,.0f}", ""],
        [
            "zoo pretrain",
            f"{rate['ours']:,.0f}",
            f"{rate['ours'] / rate['theirs']:.2f}x",
            f"{peak['ours']:,.0f}",
            f"{peak['ours'] / peak['theirs']:.2f}x",
        ],
    ]
    print(machine(options.threads))
    print(versions("torch", "transformers", "accelerate"))
    print(table(["", "tokens/s", "ratio", "peak RSS MB", "ratio"], rows))


def run_config(corpus: Path, steps: int) -> dict[str, Any]:
    return {
        "family": "bert",
        "size": "mini",
        "objective": "masked-lm",
        "objective_args": {},
        "data": {"paths": [str(corpus)]},
        "seq_len": LENGTH,
        "global_batch_tokens": BATCH,
        "max_steps": steps,
        "logging_steps": 1,
        "eval_steps": steps,
        "eval_sequences": 1,
        "save_steps": steps,
    }


def ours(corpus: Path, steps: int) -> dict[str, float]:
    from zoo.training.distributed.context import DistContext
    from zoo.training.entrypoints import train
    from zoo.training.logging.jsonl import PERFORMANCE_FILE, read_jsonl

    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch, "run")
        train(run_config(corpus, steps), {}, run, DistContext.initialize("cpu"))
        # over the last steps, without logging, evaluation and saving
        return {"tokens_per_second": read_jsonl(run, PERFORMANCE_FILE)[-1]["tokens_per_second"]}


def theirs(corpus: Path, steps: int) -> dict[str, float]:
    import time

    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(corpus / "tokenizer.json"),
        pad_token="[PAD]",
        mask_token="[MASK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
    )
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    clock: dict[str, float] = {"tokens": 0.0, "seconds": 0.0, "began": 0.0}
    pending: list[int] = []

    def counting(examples: list[dict[str, Any]]) -> Any:
        pending.append(sum(len(example["input_ids"]) for example in examples))
        return collate(examples)

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            now = time.perf_counter()
            if state.global_step > steps - WINDOW:
                clock["tokens"] += pending[state.global_step - 1]
                clock["seconds"] += now - clock["began"]
            clock["began"] = now

    with tempfile.TemporaryDirectory() as scratch:
        arguments = transformers.TrainingArguments(
            scratch,
            per_device_train_batch_size=DOCUMENTS,
            max_steps=steps,
            learning_rate=1e-4,
            weight_decay=0.01,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            logging_steps=10,
            disable_tqdm=True,
            dataloader_num_workers=0,
        )
        model = transformers.BertForMaskedLM(_hub_config())
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=_documents(corpus),
            data_collator=counting,
            callbacks=[Clock()],
        )
        trainer.train()
    return {"tokens_per_second": clock["tokens"] / clock["seconds"]}


def _hub_config() -> Any:
    import transformers

    return transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )


def _documents(corpus: Path) -> list[dict[str, list[int]]]:
    """Return the documents with special tokens, truncated to the length of a row."""
    from zoo.data.corpus import Corpus

    split, opened = Corpus(corpus).split("train"), []
    first, last = 2, 3  # ids of [CLS] and [SEP] in a newly trained tokenizer
    bounds = split.document_starts().tolist()
    for start, end in itertools.pairwise(bounds):
        for at in range(start, end, LENGTH - 2):
            ids = split.read(at, min(end, at + LENGTH - 2)).tolist()
            opened.append(
                {"input_ids": [first, *ids, last], "attention_mask": [1] * (len(ids) + 2)}
            )
    return opened


def difference(corpus: Path) -> float:
    """Return the difference between both losses of one batch, with the same weights."""
    import numpy as np
    import torch

    from zoo.conformance.hf_reference import reference_model
    from zoo.objectives.examples.packing import pack
    from zoo.training.config.schema import build_config
    from zoo.training.setup import build_setup

    setup = build_setup(build_config(run_config(corpus, 1), {}))
    objective: Any = setup.objective
    rows = objective.dataset(setup.corpus.split("train"), 0).packed_rows
    torch.manual_seed(0)
    model = objective.model(setup.family, setup.model_config).eval()
    template = objective.vocabulary.single_template
    text = rows.split.read(*rows.plan.row(0)[0])[: LENGTH - 2]
    row = objective.mask_row(
        pack([template.wrap(text)], length=len(text) + 2, pad=0), np.random.default_rng(0)
    )
    batch = objective.collate([row])
    with torch.no_grad():
        output = objective.compute_loss(model, batch.tensors)
        loss = output.sums["masked-lm"] / batch.counts["masked-lm"]
        peer = reference_model(setup.family, setup.model_config, "masked-lm", model.state_dict())
        labels = torch.full_like(batch.tensors["input_ids"], -100)
        labels.view(-1)[batch.tensors["label_positions"]] = batch.tensors["labels"]
        peer_loss = peer(input_ids=batch.tensors["input_ids"], labels=labels).loss
    assert abs(loss - peer_loss) < 1e-4, "the losses differ"
    return float(abs(loss - peer_loss))


if __name__ == "__main__":
    main()
