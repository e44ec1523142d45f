"""The examples that a pretraining objective makes of a corpus, as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from zoo.data.corpus import TRAIN
from zoo.data.rng import generator
from zoo.objectives.base import Example
from zoo.training.setup import PretrainSetup, build_dataset

MOST_LABELLED = 0.5  # of the tokens of a document; above it, labels are a line of their own


@dataclass(frozen=True)
class ShownDocument:
    """A document of a packed row, as one of the model's inputs has it."""

    input: str  # such as ``input_ids`` or ``decoder_input_ids``
    document: int  # from 1
    tokens: list[str]
    # place of a token -> the tokens that are predicted there
    labels: dict[int, list[str]] = field(default_factory=dict)
    # place of a token -> the token that a generator put there
    replaced: dict[int, str] = field(default_factory=dict)
    pair_label: int | None = None  # of a pair of segments

    def text(self, *, labels: bool) -> str:
        """Return the tokens, with labels, and what they were replaced by, in braces."""
        words = []
        for place, token in enumerate(self.tokens):
            notes = ["/".join(self.labels[place])] if labels and place in self.labels else []
            notes += (
                [f"\N{RIGHTWARDS ARROW} {self.replaced[place]}"] if place in self.replaced else []
            )
            words.append(f"{token}{{{' '.join(notes)}}}" if notes else token)
        return " ".join(words)


@dataclass(frozen=True)
class ShownExample:
    """An example of an objective."""

    row: int
    documents: list[ShownDocument]
    padding: int  # number of padding tokens
    other: dict[str, list[Any]]  # other arrays: words if they are ids of the vocabulary

    def lines(self) -> Iterator[str]:
        """Yield the example as lines of text."""
        yield f"row {self.row}" + (f", {self.padding} tokens of padding" if self.padding else "")
        for shown in self.documents:
            name = shown.input.removesuffix("input_ids").rstrip("_") or "input"
            pair = "" if shown.pair_label is None else f", pair label {shown.pair_label}"
            dense = len(shown.labels) > MOST_LABELLED * len(shown.tokens)
            yield f"  {name}, document {shown.document}{pair}: {shown.text(labels=not dense)}"
            if dense:
                labels = " ".join("/".join(shown.labels[place]) for place in sorted(shown.labels))
                yield f"    predicts: {labels}"
        for name, values in self.other.items():
            yield f"  {name}: {' '.join(map(str, values))}"

    def to_json(self) -> dict[str, Any]:
        """Return the example as JSON-serializable values."""
        return {
            "row": self.row,
            "padding": self.padding,
            "documents": [
                {
                    "input": shown.input,
                    "document": shown.document,
                    "tokens": shown.tokens,
                    "labels": {str(place): words for place, words in shown.labels.items()},
                    "replaced": {str(place): word for place, word in shown.replaced.items()},
                    "pair_label": shown.pair_label,
                }
                for shown in self.documents
            ],
            "other": self.other,
        }


def show_examples(setup: PretrainSetup, count: int) -> Iterator[ShownExample]:
    """Yield examples of the training split, the first ones of the run's order of rows."""
    objective = setup.objective
    seed = setup.config.seed
    rows = build_dataset(setup, TRAIN, 1)
    torch.manual_seed(seed)
    model: Any = objective.model(setup.family, setup.model_config).eval()
    for index in range(min(count, len(rows))):
        example = rows.example(index, generator(seed, "examples", index))
        batch = objective.collate([example])
        with torch.no_grad():
            read = objective.forward(model, batch.tensors).inputs
        inputs = {k: v[0].numpy() for k, v in read.items()}
        documents = []
        padding = 0
        names = [name for name in example.arrays if name.endswith("input_ids")]
        for name in names:
            numbers = example.arrays[f"{name.removesuffix('input_ids')}document_ids"]
            padding += int(np.count_nonzero(numbers == 0))
            for document in range(1, int(numbers.max(initial=0)) + 1):
                places = np.flatnonzero(numbers == document)
                documents.append(_document(name, document, places, example, inputs, setup))
        known = {"document_ids", "position_ids", "token_type_ids", "input_ids"}
        other = {
            name: _words(values.tolist(), setup) if values.ndim == 1 else values.tolist()
            for name, values in example.arrays.items()
            if not any(name.endswith(ending) for ending in known)
        }
        yield ShownExample(index, documents, padding, other)


def _document(
    name: str,
    document: int,
    places: "np.ndarray[Any, Any]",
    example: Example,
    read: dict[str, Any],
    setup: PretrainSetup,
) -> ShownDocument:
    ids = example.arrays[name]
    start = int(places[0])
    labels: dict[int, list[str]] = {}
    plane, at = example.positions.get("label_positions", ("", np.zeros(0, np.int64)))
    if plane == name:
        for place, word in zip(
            at.tolist(), _words(example.values["labels"].tolist(), setup), strict=True
        ):
            if place in places:
                labels.setdefault(place - start, []).append(word)
    replaced: dict[int, str] = {}
    if name in read:
        for place in places.tolist():
            if place - start in labels and read[name][place] != ids[place]:
                (replaced[place - start],) = _words([int(read[name][place])], setup)
    pair = None
    if "pair_labels" in example.values:
        starts = example.positions["start_positions"][1].tolist()
        pair = int(example.values["pair_labels"][starts.index(start)])
    return ShownDocument(
        name, document, _words(ids[places].tolist(), setup), labels, replaced, pair
    )


def _words(ids: Sequence[int], setup: PretrainSetup) -> list[str]:
    tokenizer = setup.objective.vocabulary.tokenizer
    return [tokenizer.id_to_token(number) or f"#{number}" for number in ids]
