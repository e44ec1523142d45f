"""The examples that a pretraining objective makes of a corpus, as text."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from zoo.data.cache import SAMPLE_FILES, is_built_corpus
from zoo.data.corpus import TRAIN, Corpus
from zoo.data.readers.documents import TEXT_FIELD, encode_documents
from zoo.data.rng import generator
from zoo.data.streams.source import find_shards, read_first_documents
from zoo.io.remote.cache import fetch
from zoo.objectives.base import Example
from zoo.training.config.schema import StreamConfig, TrainConfig
from zoo.training.config.sources import SourceConfig
from zoo.training.mixed_dataset import MixedDataset
from zoo.training.mixture import source_shares
from zoo.training.setup import PretrainSetup, build_dataset

# Above this share of labelled tokens, the labels of a document are a line of their own.
MAX_INLINE_LABELS = 0.5
# Characters of each text that are read: of so many tokens as the examples have, several times.
MIN_CHARACTERS = 1 << 18
CHARACTERS_PER_TOKEN = 16
BYTES_PER_TOKEN = 4  # To compare the size of a built corpus with those of texts.
# Arrays that an example is made of; the others are shown as they are.
PACKED_ARRAYS = ("document_ids", "position_ids", "token_type_ids", "input_ids")


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
    pair_label: int | None = None  # the label of a pair of segments

    def text(self, *, labels: bool) -> str:
        """Return the tokens, with labels, and what they were replaced by, in braces."""
        words = []
        for place, token in enumerate(self.tokens):
            notes = []
            if labels and place in self.labels:
                notes.append("/".join(self.labels[place]))
            if place in self.replaced:
                notes.append(f"\N{RIGHTWARDS ARROW} {self.replaced[place]}")
            word = token
            if notes:
                word += f"{{{' '.join(notes)}}}"
            words.append(word)
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON-serializable values."""
        return {
            "input": self.input,
            "document": self.document,
            "tokens": self.tokens,
            "labels": {str(place): words for place, words in self.labels.items()},
            "replaced": {str(place): word for place, word in self.replaced.items()},
            "pair_label": self.pair_label,
        }


@dataclass(frozen=True)
class ShownExample:
    """An example of an objective."""

    row: int
    documents: list[ShownDocument]
    padding: int  # number of padding tokens
    other: dict[str, list[Any]]  # the remaining arrays; ids of the vocabulary are shown as words
    source: str = ""  # the row's source, in a run with several

    def lines(self) -> Iterator[str]:
        """Yield the example as lines of text."""
        heading = f"row {self.row}"
        if self.source:
            heading += f" of {self.source}"
        if self.padding:
            heading += f", {self.padding} tokens of padding"
        yield heading
        for shown in self.documents:
            name = shown.input.removesuffix("input_ids").rstrip("_") or "input"
            pair = "" if shown.pair_label is None else f", pair label {shown.pair_label}"
            is_dense = len(shown.labels) > MAX_INLINE_LABELS * len(shown.tokens)
            yield f"  {name}, document {shown.document}{pair}: {shown.text(labels=not is_dense)}"
            if is_dense:
                labels = " ".join("/".join(shown.labels[place]) for place in sorted(shown.labels))
                yield f"    predicts: {labels}"
        for name, values in self.other.items():
            yield f"  {name}: {' '.join(map(str, values))}"

    def to_json(self) -> dict[str, Any]:
        """Return the example as JSON-serializable values."""
        value: dict[str, Any] = {
            "row": self.row,
            "padding": self.padding,
            "documents": [shown.to_json() for shown in self.documents],
            "other": self.other,
        }
        if self.source:
            value["source"] = self.source
        return value


def example_config(config: TrainConfig, count: int, folder: Path) -> TrainConfig:
    """Return the configuration of a run on the first documents of its texts.

    Sources of text keep their shares. A built corpus stays as it is.

    Args:
        config: configuration of a run.
        count: number of examples to show.
        folder: folder to which the documents are written.
    """
    characters = max(MIN_CHARACTERS, CHARACTERS_PER_TOKEN * count * config.seq_len)
    data = config.data
    reader = msgspec.structs.replace(data.reader, text_field=TEXT_FIELD)

    def first_documents(name: str, paths: Sequence[str]) -> tuple[str, ...]:
        documents = read_first_documents(paths or SAMPLE_FILES, data.reader, characters)
        file = folder / f"{name or 'first-documents'}.jsonl"
        file.write_bytes(encode_documents(documents))
        return (str(file),)

    if not data.sources:
        if is_built_corpus(data.paths):
            return config
        paths = first_documents("", data.paths)
        # Without files to evaluate on, a part of the documents would be held out.
        changes: dict[str, Any] = {"paths": paths, "eval_paths": paths}
    else:
        sources = {}
        sizes = {}
        for name, source in data.sources.items():
            if is_built_corpus(source.paths):
                tokens = Corpus(Path(fetch(source.paths[0]))).record.splits[TRAIN].tokens
                sizes[name] = tokens * BYTES_PER_TOKEN
                sources[name] = source
                continue
            sizes[name] = sum(shard.size for shard in find_shards(source.paths))
            paths = first_documents(name, source.paths)
            sources[name] = SourceConfig(paths=paths, eval_paths=paths)
        for name, share in source_shares(data, sizes).items():
            sources[name] = msgspec.structs.replace(
                sources[name], weight=share, epochs=msgspec.UNSET
            )
        changes = {
            "sources": sources,
            "mixing": msgspec.UNSET,
            "temperature": msgspec.UNSET,
            "mixing_limit": msgspec.UNSET,
        }
    data = msgspec.structs.replace(
        data, reader=reader, streaming=False, stream=StreamConfig(), **changes
    )
    return msgspec.structs.replace(config, data=data)


def show_examples(setup: PretrainSetup, count: int) -> Iterator[ShownExample]:
    """Yield examples of the training split, the first ones of the run's order of rows."""
    objective = setup.objective
    seed = setup.config.seed
    rows = build_dataset(setup, TRAIN, 1)
    indices: Iterable[int] = range(min(count, len(rows)))
    if isinstance(rows, MixedDataset):  # The first rows of the run, which are of several sources.
        order = setup.row_order(rows, objective)
        indices = [order[number] for number in range(count)]
    torch.manual_seed(seed)
    model: Any = objective.model(setup.family, setup.model_config).eval()
    for index in indices:
        example = rows.example(index, generator(seed, "examples", index))
        batch = objective.collate([example])
        with torch.no_grad():
            forward_inputs = objective.forward(model, batch.tensors).inputs
        inputs = {name: tensor[0].numpy() for name, tensor in forward_inputs.items()}
        documents = []
        padding = 0
        names = [name for name in example.arrays if name.endswith("input_ids")]
        for name in names:
            numbers = example.arrays[f"{name.removesuffix('input_ids')}document_ids"]
            padding += int(np.count_nonzero(numbers == 0))
            for document in range(1, int(numbers.max(initial=0)) + 1):
                places = np.flatnonzero(numbers == document)
                documents.append(_document(name, document, places, example, inputs, setup))
        other_arrays = {}
        for name, values in example.arrays.items():
            if name.endswith(PACKED_ARRAYS):
                continue
            other_arrays[name] = values.tolist()
            if values.ndim == 1:
                other_arrays[name] = _words(values.tolist(), setup)
        source = ""
        if isinstance(rows, MixedDataset):
            source = list(rows.datasets)[rows.source_number(index)]
        yield ShownExample(index, documents, padding, other_arrays, source)


def _document(
    name: str,
    document: int,
    places: "np.ndarray[Any, Any]",
    example: Example,
    inputs: dict[str, Any],
    setup: PretrainSetup,
) -> ShownDocument:
    ids = example.arrays[name]
    tokens = _words(ids[places].tolist(), setup)
    start = int(places[0])
    labels: dict[int, list[str]] = {}
    no_labels = ("", np.zeros(0, np.int64))
    for position_name, label_name in setup.objective.token_terms.values():
        labelled_input, positions = example.positions.get(position_name, no_labels)
        if labelled_input != name:
            continue
        label_words = _words(example.values[label_name].tolist(), setup)
        for place, word in zip(positions.tolist(), label_words, strict=True):
            if place in places:
                labels.setdefault(place - start, []).append(word)
    replaced: dict[int, str] = {}
    if name in inputs:
        for place in places.tolist():
            number = int(inputs[name][place])
            if place - start in labels and number != ids[place]:
                (replaced[place - start],) = _words([number], setup)
    pair_label = None
    if "pair_labels" in example.values:
        starts = example.positions["start_positions"][1].tolist()
        pair_label = int(example.values["pair_labels"][starts.index(start)])
    return ShownDocument(name, document, tokens, labels, replaced, pair_label)


def _words(ids: Sequence[int], setup: PretrainSetup) -> list[str]:
    tokenizer = setup.objective.vocabulary.tokenizer
    return [tokenizer.id_to_token(number) or f"#{number}" for number in ids]
