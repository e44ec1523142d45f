"""A language for another: what the old embeddings are worth to a new vocabulary.

    python -m benchmarks.retokenize --source ENGLISH --target GERMAN [--seeds 3] [--steps 300]

ENGLISH and GERMAN have the folders ``train`` and ``validation`` with text. A model is pretrained on
the first language for ``--base-steps``, gets a tokenizer that is trained on the second by ``zoo
retokenize``, and is trained on that for ``--steps``, with each strategy of ``STRATEGIES``. All have
the same tokenizer, rows and steps. The strategies that train embeddings first do so for half of
the steps; Yong et al. 2022 (arXiv:2204.04873, table 3) compare such with adapters, here LoRA.
Prints the mean loss on the held-out text of the second language, per token in nats, its range over
the seeds, the 95 % interval of the mean (Student's t), and the number of parameters that the last
stage trains.

``--results FILE`` keeps the result of each run in a file, and does not repeat the runs in it.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._common import RunResults, machine, student, table, versions


class Strategy(NamedTuple):
    """How rows are made, and what the stages train, each for an equal share of the steps."""

    rows: Mapping[str, Any]  # arguments of ``retokenize``
    stages: tuple[Mapping[str, Any], ...]  # settings of ``zoo pretrain``


EMBEDDINGS: Mapping[str, Any] = {"trainable": "embeddings"}
ADAPTER: Mapping[str, Any] = {"adapter": {"method": "lora"}}
STRATEGIES = {
    "carried rows, all trained": Strategy({}, ({},)),
    "kept rows, other rows random, all trained": Strategy({"method": "random"}, ({},)),
    "random rows, all trained": Strategy({"method": "random", "keep": False}, ({},)),
    "carried rows, embeddings trained": Strategy({}, (EMBEDDINGS,)),
    "random rows, embeddings trained": Strategy({"method": "random", "keep": False}, (EMBEDDINGS,)),
    "carried rows, embeddings, then all": Strategy({}, (EMBEDDINGS, {})),
    "carried rows, embeddings, then adapters": Strategy({}, (EMBEDDINGS, ADAPTER)),
    "carried rows, embeddings and adapters": Strategy({}, ({**EMBEDDINGS, **ADAPTER},)),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="text of the first language")
    parser.add_argument("--target", type=Path, required=True, help="text of the second language")
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--base-steps", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, help="file of the results of single runs")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    rows = []
    results = measure(options)
    for name in STRATEGIES:
        pairs = [results[f"seed {seed}, {name}"] for seed in range(options.seeds)]
        losses = [loss for loss, _ in pairs]
        row = [name, f"{statistics.mean(losses):.3f}", f"{min(losses):.3f} to {max(losses):.3f}"]
        rows.append([*row, student(losses), f"{pairs[0][1]:,}"])
    print(table(["strategy", "loss", "range", "95 % interval", "trained parameters"], rows))
    print(f"\n{machine(options.threads)}; {versions('torch')}; {options.seeds} seeds")


def measure(options: argparse.Namespace) -> Mapping[str, tuple[float, int]]:
    """Return the loss of each run, and how many parameters its last stage trains."""
    others = ("seeds", "threads", "results")
    shared = {name: value for name, value in vars(options).items() if name not in others}
    results = RunResults(options.results, shared)
    for seed in range(options.seeds):
        missing = {
            f"seed {seed}, {name}": strategy
            for name, strategy in STRATEGIES.items()
            if f"seed {seed}, {name}" not in results.known
        }
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            base = pretrain(
                Path(scratch, "base"),
                options.source,
                seed,
                options,
                family=options.family,
                size=options.size,
                max_steps=options.base_steps,
                vocab_size=options.vocab_size,
            )
            for number, (name, strategy) in enumerate(missing.items()):
                folder = Path(scratch, f"adapted-{number}")
                result = adapt(folder, base / "model", strategy, seed, options)
                results.add(name, result)
                print(f"{name}: {result[0]:.4f}", file=sys.stderr, flush=True)
    return results.known


def adapt(
    folder: Path, base: Path, strategy: Strategy, seed: int, options: argparse.Namespace
) -> tuple[float, int]:
    """Return the loss after all stages, and the number of parameters that the last one trains."""
    from zoo.checkpoint import load_checkpoint
    from zoo.retokenization.retokenize import retokenize
    from zoo.retokenization.tokenizer import new_tokenizer

    checkpoint = load_checkpoint(base)
    text = [str(options.target / "train")]
    made = new_tokenizer(checkpoint, "train", text, vocab_size=options.vocab_size)
    model = folder / "start"
    retokenize(checkpoint, made.tokenizer, model, seed=seed, **strategy.rows)
    run = folder
    for number, settings in enumerate(strategy.stages):
        run = pretrain(
            folder / f"stage-{number}",
            options.target,
            seed,
            options,
            family=options.family,
            init_from={"model": str(model)},
            max_steps=options.steps // len(strategy.stages),
            **settings,
        )
        model = run / "model"
    return last_loss(run)


def pretrain(
    path: Path, text: Path, seed: int, options: argparse.Namespace, **settings: Any
) -> Path:
    """Train a run, and return its directory."""
    import torch

    from zoo.training.distributed.context import DistContext
    from zoo.training.run import PretrainRun

    steps = settings["max_steps"]
    values = {
        "seed": seed,
        "seq_len": options.seq_len,
        "global_batch_tokens": options.seq_len * options.batch_size,
        "data": {"paths": [str(text / "train")], "eval_paths": [str(text / "validation")]},
        "optimizer": {"learning_rate": options.learning_rate},
        "lr_scheduler": {"warmup_steps": steps // 10},
        "seq_len_warmup": None,
        "eval_steps": steps,
        "save_steps": steps,
        "eval_sequences": 256,
        "report_to": [],
        **settings,
    }
    PretrainRun(values, DistContext(0, 1, torch.device("cpu")), path).start()
    return path


def last_loss(run: Path) -> tuple[float, int]:
    """Return the loss of the last evaluation of a run, and its number of trained parameters."""
    from zoo.training.logging.jsonl import read_jsonl
    from zoo.training.state.run_manifest import read_manifest

    records = [record for record in read_jsonl(run) if record["split"] == "validation"]
    return records[-1]["loss"], read_manifest(run).parameters


if __name__ == "__main__":
    main()
