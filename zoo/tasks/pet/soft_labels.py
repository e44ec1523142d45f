"""Soft labels of unlabelled texts, by the models of patterns.

Schick and Schütze 2021 (arXiv:2001.07676), section 3.4: the scores of the models are averaged, and
their softmax at a temperature is the label of a text.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.checkpoint import load_text_tokenizer
from zoo.conversion.cache import resolve_checkpoint
from zoo.data.readers.labelled import Columns, label_name, read_samples
from zoo.inference import load_session
from zoo.inference.processing.numbers import softmax
from zoo.inference.processing.records import TextExample
from zoo.io.json import JsonStruct, encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.objectives.options import parse_options
from zoo.tasks import make_task
from zoo.tasks.pet.options import PetOptions
from zoo.tasks.prompt.template import resolve_label_words
from zoo.tasks.prompt.unlabelled import read_unlabelled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")
FOLDER = "soft-labels"
TRAIN = "train.jsonl"
RECORD = "soft-labels.json"


class SoftLabelsRecord(JsonStruct):
    """``soft-labels.json``: how the labels were made."""

    weights: dict[str, float]  # Model -> weight of its scores.
    models: dict[str, dict[str, str]]  # Model -> digests of its files.
    temperature: float
    texts: int


def write_soft_labels(
    path: Path,
    models: Mapping[str, tuple[Path, str]],
    settings: Mapping[str, Any],
    device: str,
) -> None:
    """Label the unlabelled texts of a run; ``models`` has name -> directory and template."""
    import numpy as np

    options: Any = parse_options(PetOptions, settings["task_args"], "pet", "task")
    data = settings["data"]
    columns = Columns(
        data.get("text") or Columns.text, data.get("label") or Columns.label, data.get("pair")
    )
    records = read_unlabelled(data["unlabelled"], columns)
    LOG.info("labelling %s texts by %s models", f"{len(records):,}", len(models))
    checkpoints = {name: resolve_checkpoint(str(model)) for name, (model, _) in models.items()}
    words = resolve_label_words(options.label_words)
    model_scores = []
    for name, (_, template) in models.items():
        model_scores.append(label_scores(checkpoints[name], records, template, words, device))
    if options.weighting == "uniform":
        weights = dict.fromkeys(models, 1.0)
    else:
        accuracies = _accuracies(columns, settings, options.template, words, device)
        weights = {name: accuracies[template] for name, (_, template) in models.items()}
        if not any(weights.values()):
            weights = dict.fromkeys(models, 1.0)
    scores = combined_scores(model_scores, list(weights.values()))
    probabilities = softmax(scores / options.temperature)
    lines = []
    for record, text_probabilities in zip(records, probabilities.tolist(), strict=True):
        row: dict[str, Any] = {columns.text: record.text}
        if columns.pair is not None:
            row[columns.pair] = record.pair
        row[columns.label] = dict(zip(words, text_probabilities, strict=True))
        lines.append(msgspec.json.encode(row) + b"\n")
    label_counts = np.bincount(probabilities.argmax(-1), minlength=len(words)).tolist()
    summary = [f"{count:,} {label}" for label, count in zip(words, label_counts, strict=True)]
    LOG.info("soft labels: %s", ", ".join(summary))
    digests = {}
    for name, checkpoint in checkpoints.items():
        files = checkpoint.manifest.files.items()
        digests[name] = {file: digest.blake3 for file, digest in files}
    soft_labels_record = SoftLabelsRecord(
        weights=weights,
        models=digests,
        temperature=options.temperature,
        texts=len(records),
    )
    with atomic_directory(path) as staging:
        (staging / TRAIN).write_bytes(b"".join(lines))
        (staging / RECORD).write_bytes(encode_json(soft_labels_record))


def label_scores(
    checkpoint: "Checkpoint",
    records: Sequence[TextExample],
    template: str,
    words: Mapping[str, str],
    device: str,
) -> "NDArray[np.float64]":
    """Return the log-probabilities of the label words, (texts, labels).

    They are the words' logits up to a constant of each text, which the softmax over labels drops.
    """
    import numpy as np

    session = load_session(checkpoint, "cuda" if device.startswith("cuda") else "cpu")
    task = make_task(
        "prompt",
        checkpoint,
        session,
        tokenizer=load_text_tokenizer(checkpoint),
        template=template,
        label_words=dict(words),
    )
    return np.array([list(result["log_probs"].values()) for result in task.run(records)])


def combined_scores(
    scores: "Sequence[NDArray[np.float64]]", weights: Sequence[float]
) -> "NDArray[np.float64]":
    """Return the weighted mean of scores, each (texts, labels)."""
    import numpy as np

    mean: NDArray[np.float64] = np.average(np.stack(scores), axis=0, weights=weights)
    return mean


def _accuracies(
    columns: Columns,
    settings: Mapping[str, Any],
    templates: Sequence[str],
    words: Mapping[str, str],
    device: str,
) -> dict[str, float]:
    """Return template -> accuracy of the pretrained model on the training data."""
    import numpy as np

    samples = read_samples(settings["data"]["train"], columns)
    records = [TextExample(s.text, s.pair, location=s.location) for s in samples]
    labels = [label_name(sample.label, sample.location) for sample in samples]
    checkpoint = resolve_checkpoint(settings["init_from"]["model"])
    names = list(words)
    accuracies = {}
    for template in dict.fromkeys(templates):
        scores = label_scores(checkpoint, records, template, words, device)
        right = [
            names[k] == label for k, label in zip(scores.argmax(-1).tolist(), labels, strict=True)
        ]
        accuracies[template] = float(np.mean(right))
    return accuracies
