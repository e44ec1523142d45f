"""The vectors of all layers of a model, for texts, words or spans, by one pass over the texts."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import NonFiniteError, UsageError
from zoo.inference.processing.batching import batched, collate, plan_batches
from zoo.inference.task_checks import max_length, token_limits
from zoo.io.progress import progress
from zoo.nn.capture import hidden_state_count, layers_in_order
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.probing.settings import Pooling
from zoo.probing.tasks.base import ProbedText
from zoo.tasks.token_classification.data import word_starts, words_of_tokens

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference.torch_session import TorchSession
    from zoo.tokenizers import Encoded, TextTokenizer

Floats = NDArray[np.floating[Any]]
TEXTS_TOGETHER = 256  # Texts whose vectors are in memory at once, of all layers.


@dataclass(frozen=True)
class LayerVectors:
    """The vectors of the layers of a model.

    Attributes:
        names: name of each layer, such as ``embeddings`` or ``layer 1``.
        numbers: number of each layer; 0 for the embeddings.
        arrays: the vectors of each layer, (vectors, width), mapped from a file.
        has_tokens: whether a vector has any token, (vectors,). A word behind the cut end of its
            text has none, and its vector is zeros.
        passes: number of forward passes.
    """

    names: list[str]
    numbers: list[int]
    arrays: list[Floats]
    has_tokens: NDArray[np.bool_]
    passes: int


class LayerReader:
    """Runs a model on texts, and pools the hidden states of its layers.

    Args:
        checkpoint: the model.
        session: the model in torch.
        tokenizer: its tokenizer.
        layers: numbers of the layers, 0 for the embeddings, negative ones from the last; ``None``
            for all.
        max_tokens: length at which texts are cut; by default the model's limit.
    """

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "TorchSession",
        tokenizer: "TextTokenizer",
        *,
        layers: Sequence[int] | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.session = session
        self.tokenizer = tokenizer
        self.max_tokens = max_length(max_tokens, token_limits(checkpoint))
        self.numbers = resolve_layers(layers, session.layers, checkpoint.name)
        modules = layers_in_order(session.model)
        self.names = []
        for number in self.numbers:
            if number == 0:
                name = "embeddings"
            elif isinstance(modules[number - 1], ScalarMix):
                name = "model's mix"
            else:
                name = f"layer {number}"
            self.names.append(name)

    def read(self, texts: Sequence[ProbedText], pooling: Pooling, folder: Path) -> LayerVectors:
        """Return the vectors of texts, one text after another.

        Args:
            texts: the texts.
            pooling: how the vectors of tokens become one.
            folder: an empty folder, to which a file is written for each layer.

        Raises:
            NonFiniteError: the model returned NaN or infinity for a text.
        """
        count = sum(text.vector_count for text in texts)
        has_tokens = np.zeros(count, np.bool_)
        paths = [folder / f"layer-{number}.f32" for number in self.numbers]
        widths = [0] * len(paths)
        passes = 0
        start = 0
        with ExitStack() as stack, progress("running", len(texts), unit="texts") as advance:
            files = [stack.enter_context(path.open("wb")) for path in paths]
            for group in batched(texts, TEXTS_TOGETHER):
                layers, group_has_tokens, group_passes = self._read_group(group, pooling)
                for number, (file, vectors) in enumerate(zip(files, layers, strict=True)):
                    file.write(np.ascontiguousarray(vectors, np.float32).data)
                    widths[number] = vectors.shape[1]
                has_tokens[start : start + len(group_has_tokens)] = group_has_tokens
                start += len(group_has_tokens)
                passes += group_passes
                advance(len(group))
        arrays: list[Floats] = []
        for path, width in zip(paths, widths, strict=True):
            arrays.append(np.memmap(path, np.float32, "r", shape=(count, width)))
        return LayerVectors(self.names, self.numbers, arrays, has_tokens, passes)

    def _read_group(
        self, texts: Sequence[ProbedText], pooling: Pooling
    ) -> tuple[list[Floats], NDArray[np.bool_], int]:
        """Return the vectors of each layer, which of them have tokens, and the forward passes."""
        inputs = [text.text if text.pair is None else (text.text, text.pair) for text in texts]
        encoded_texts = self.tokenizer.encode(inputs, max_tokens=self.max_tokens)
        for text, encoded in zip(texts, encoded_texts, strict=True):
            if not encoded.ids:
                raise UsageError(f"{text.location}: the text has no tokens", "leave it out")
        starts = [0]
        for text in texts:
            starts.append(starts[-1] + text.vector_count)
        has_tokens = np.zeros(starts[-1], np.bool_)
        layers: list[Floats] = []
        batches = plan_batches([len(encoded.ids) for encoded in encoded_texts])
        for batch in batches:
            states = self._hidden_states([encoded_texts[index] for index in batch])
            if not layers:
                layers = [np.zeros((starts[-1], state.shape[-1]), np.float32) for state in states]
            for row, index in enumerate(batch):
                positions = vector_tokens(texts[index], encoded_texts[index])
                for offset, tokens in enumerate(positions):
                    if not len(tokens):
                        continue
                    place = starts[index] + offset
                    has_tokens[place] = True
                    for vectors, state in zip(layers, states, strict=True):
                        vectors[place] = pool_tokens(state[row], tokens, pooling)
        for vectors in layers:
            self._require_finite(vectors, texts, starts)
        return layers, has_tokens, len(batches)

    def _hidden_states(self, encoded: "Sequence[Encoded]") -> list[Floats]:
        """Return the states of the layers, (texts, tokens, hidden) each."""
        session = self.session
        inputs = dict(collate(encoded, session.inputs, self.tokenizer.pad_id).inputs)
        for name, array in inputs.items():
            if "choices" in self.checkpoint.onnx_spec.inputs[name]:
                inputs[name] = array[:, None]  # A text is the only choice.
        if "decoder_input_ids" in session.inputs:
            # The encoder is probed, and its decoder reads as little as possible.
            begin = getattr(self.checkpoint.config, "decoder_start_token_id", self.tokenizer.pad_id)
            inputs["decoder_input_ids"] = np.full((len(encoded), 1), begin, np.int64)
        if session.layers == 1:  # A table of vectors, without layers that could be captured.
            return [session.run(inputs, ["last_hidden_state"])["last_hidden_state"]]
        return session.hidden_states(inputs, self.numbers)

    def _require_finite(
        self, vectors: Floats, texts: Sequence[ProbedText], starts: Sequence[int]
    ) -> None:
        is_finite = np.isfinite(vectors).all(axis=1)
        if is_finite.all():
            return
        index = int(np.searchsorted(starts, int(np.argmin(is_finite)), side="right")) - 1
        raise NonFiniteError(f"{texts[index].location}: the model returned NaN or infinity")


def check_model(
    checkpoint: "Checkpoint", layers: Sequence[int] | None, max_tokens: int | None
) -> None:
    """Check that a model has some layers and takes some tokens, without reading its weights."""
    max_length(max_tokens, token_limits(checkpoint))
    if layers is None:
        return
    with init_empty_weights():
        model = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    resolve_layers(layers, hidden_state_count(model), checkpoint.name)


def resolve_layers(layers: Sequence[int] | None, count: int, name: str) -> list[int]:
    """Return the numbers of layers from 0 in ascending order; raises ``UsageError``.

    Args:
        layers: numbers, negative ones from the last; ``None`` for all.
        count: number of hidden states, with the embeddings.
        name: name of the model, for messages.
    """
    if layers is None:
        return list(range(count))
    numbers = set()
    for layer in layers:
        if not -count <= layer < count:
            raise UsageError(
                f"{name} has no layer {layer}",
                f"its layers are 0 (the embeddings) to {count - 1}, or -1 (the last) to {-count}",
            )
        numbers.add(layer % count)
    if not numbers:
        raise UsageError("no layers were asked for", "leave --layers out for all")
    return sorted(numbers)


def vector_tokens(text: ProbedText, encoded: "Encoded") -> list[Sequence[int]]:
    """Return the positions of the tokens of each vector of a text.

    A whole text has all tokens, with the special ones. A span has the tokens that begin in one of
    its words.
    """
    if text.tokens:
        return [[position] for position in text.tokens]
    if not text.words:
        return [range(len(encoded.ids))]
    word_tokens: list[list[int]] = [[] for _ in text.words]
    starts = word_starts(text.words)
    for token, word in words_of_tokens(text.text, starts, encoded.offsets, encoded.special):
        word_tokens[word].append(token)
    positions: list[Sequence[int]] = []
    for begin, end in text.spans:
        positions.append([token for tokens in word_tokens[begin:end] for token in tokens])
    return positions


def pool_tokens(states: Floats, tokens: Sequence[int], pooling: Pooling) -> Floats:
    """Return one vector, (hidden,), for some tokens of a text with states (tokens, hidden)."""
    if pooling == "first":
        vector: Floats = states[tokens[0]]
        return vector
    if pooling == "last":
        last: Floats = states[tokens[-1]]
        return last
    selected = states[list(tokens)]
    if pooling == "max":
        largest: Floats = selected.max(axis=0)
        return largest
    mean: Floats = selected.mean(axis=0)
    return mean


def example_rows(
    texts: Iterable[ProbedText], has_tokens: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return which vectors each example reads, and its text.

    Returns:
        the vectors of the examples that have all of theirs, (examples, vectors of one); the index
        of the text of each; and which of all examples these are.
    """
    rows = []
    text_numbers = []
    is_complete = []
    start = 0
    for number, text in enumerate(texts):
        for example in text.examples:
            places = [start + span for span in example.spans]
            has_all = bool(has_tokens[places].all())
            is_complete.append(has_all)
            if has_all:
                rows.append(places)
                text_numbers.append(number)
        start += text.vector_count
    return np.array(rows), np.array(text_numbers), np.array(is_complete)
