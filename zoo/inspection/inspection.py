"""What the layers of a model compute for a text: hidden states, attention and predictions."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import load_vocabulary
from zoo.errors import UsageError
from zoo.inference.processing.batching import collate
from zoo.inference.processing.numbers import short_floats
from zoo.inference.task_checks import max_length, token_limits
from zoo.inference.task_warnings import report_cut_texts
from zoo.inference.torch_session import TorchSession, to_numpy
from zoo.nn.capture import Captured, capture, layers_in_order
from zoo.nn.layers.scalar_mix import ScalarMix

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers import Encoded, TextTokenizer

Floats = NDArray[np.floating[Any]]
MAX_TOKENS = 64
MAX_NEW_TOKENS = 32  # tokens of a target that the model generates itself
TOP_K = 5
WORD = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*|[^\w\s]")
SPACE = "␣"
# Byte-level tokenizers and SentencePiece write spaces and line ends with letters.
SIGNS = str.maketrans("ĠĊčĉ▁", f"{SPACE}↵↵⇥{SPACE}")


@dataclass(frozen=True)
class LayerPredictions:
    """What each layer predicts at each position, by the head of the model (the logit lens).

    The predictions of the last layer are the outputs of the model.
    """

    name: str  # such as ``next token``
    layers: list[int]  # the hidden states that the head reads
    tokens: list[list[list[str]]]  # (layers, tokens, k), the most probable first
    probabilities: Floats  # (layers, tokens, k)


@dataclass(frozen=True)
class AttentionMaps:
    """Attention probabilities of the layers that compute attention."""

    name: str  # ``self`` or ``cross``
    layers: list[int]  # numbers of the layers, from 1
    values: Floats  # (layers, heads, queries, keys)


@dataclass(frozen=True)
class StackView:
    """A stack of layers, such as an encoder, and what it computed for the tokens of a text."""

    name: str  # ``encoder``, ``decoder`` or ``model``
    tokens: list[str]
    shown: list[str]  # the tokens as people read them
    layers: list[str]  # names of the hidden states: ``embeddings``, ``layer 1``, ...
    hidden: list[Floats]  # (tokens, hidden) each
    attention: list[AttentionMaps] = field(default_factory=list)
    predictions: list[LayerPredictions] = field(default_factory=list)


@dataclass(frozen=True)
class InspectedWord:
    """A word of a text, a punctuation mark, or a special token."""

    text: str
    tokens: list[int]  # positions of its tokens


@dataclass(frozen=True)
class TextView:
    """A text and the stacks that read it."""

    text: str
    truncated: int  # number of tokens that were cut
    masked: list[int]  # positions of mask tokens
    stacks: list[StackView]
    words: list[InspectedWord]  # words of the tokens that the first stack reads

    def word_vectors(self) -> list[Floats]:
        """Return the mean of the vectors of each word's tokens by layer, (words, hidden) each."""
        layers = []
        for state in self.stacks[0].hidden:
            vectors = [state[word.tokens].mean(axis=0) for word in self.words]
            layers.append(np.stack(vectors))
        return layers


@dataclass(frozen=True)
class Mix:
    """Weights with which a model mixes its layers."""

    weights: list[float]  # a share for each hidden state, the embeddings first; they sum to 1
    gamma: float


@dataclass(frozen=True)
class Look:
    """What a model computes for one or two texts."""

    model: str
    family: str
    head: str
    texts: list[TextView]
    mixes: list[Mix]
    # What other models compute for the same texts.
    compared: list["Look"] = field(default_factory=list)

    def similarities(self) -> list[Floats]:
        """Return the cosine of all tokens' vectors of both texts by layer, (tokens, tokens)."""
        return _cosines_by_layer([view.stacks[0].hidden for view in self.texts])

    def word_similarities(self) -> list[Floats]:
        """Return the cosine of all words' vectors of both texts by layer, (words, words)."""
        return _cosines_by_layer([view.word_vectors() for view in self.texts])

    def to_json(self) -> dict[str, Any]:
        """Return all numbers exactly."""
        value = {
            "model": self.model,
            "family": self.family,
            "head": self.head,
            "texts": [_text_to_json(view) for view in self.texts],
            "similarity": [short_floats(layer) for layer in self.similarities()],
            "word_similarity": [short_floats(layer) for layer in self.word_similarities()],
            "mixes": [{"weights": mix.weights, "gamma": mix.gamma} for mix in self.mixes],
        }
        if self.compared:
            value["compared"] = [look.to_json() for look in self.compared]
        return value


def _text_to_json(view: TextView) -> dict[str, Any]:
    return {
        "text": view.text,
        "truncated": view.truncated,
        "words": [{"word": word.text, "tokens": word.tokens} for word in view.words],
        "stacks": [_stack_to_json(stack) for stack in view.stacks],
    }


def _stack_to_json(stack: StackView) -> dict[str, Any]:
    attention = {}
    for maps in stack.attention:
        attention[maps.name] = {"layers": maps.layers, "values": short_floats(maps.values)}
    predictions = {}
    for prediction in stack.predictions:
        predictions[prediction.name] = {
            "layers": prediction.layers,
            "tokens": prediction.tokens,
            "probabilities": short_floats(prediction.probabilities),
        }
    return {
        "name": stack.name,
        "tokens": stack.tokens,
        "layers": stack.layers,
        "hidden_states": [short_floats(state) for state in stack.hidden],
        "attention": attention,
        "predictions": predictions,
    }


def _cosines_by_layer(texts: list[list[Floats]]) -> list[Floats]:
    """Return the cosines of all vectors of some texts, whose states are listed by layer."""
    return [cosines(np.concatenate(states)) for states in zip(*texts, strict=True)]


def cosines(vectors: Floats) -> Floats:
    """Return the cosine of each pair of vectors, (n, n), for (n, hidden); 0 for a zero vector."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=-1, keepdims=True)
    unit = wide / np.where(lengths == 0, 1, lengths)
    return np.asarray(unit @ unit.T)


class Inspector:
    """Runs a model on texts, and keeps what its layers compute."""

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: TorchSession,
        tokenizer: "TextTokenizer",
        *,
        max_tokens: int | None = None,
        top_k: int = TOP_K,
    ) -> None:
        if isinstance(checkpoint, AdaptedCheckpoint) and checkpoint.has_virtual_tokens:
            raise UsageError(
                f"{checkpoint.name} puts virtual tokens before each text, which have no words",
                "look at its base",
            )
        self.limits = token_limits(checkpoint)
        self.checkpoint = checkpoint
        self.session = session
        self.tokenizer = tokenizer
        # A model that reads characters predicts words, which have a vocabulary of their own.
        self.vocabulary = load_vocabulary(checkpoint) or tokenizer
        requested_tokens = max_tokens or min([MAX_TOKENS, *self.limits])
        self.max_tokens = max_length(requested_tokens, self.limits)
        self.top_k = top_k
        self.model: Any = session.model
        self.device = torch.device(session.device)

    def look(self, ref: str, texts: Sequence[str], target: str | None = None) -> Look:
        """Return what the model computes for texts."""
        is_seq2seq = "decoder_input_ids" in self.session.inputs
        if target is not None and not is_seq2seq:
            raise UsageError(
                f"{ref} has no decoder that reads a target", "--text-target is for encoder-decoders"
            )
        encoded = self.tokenizer.encode(list(texts), max_tokens=self.max_tokens)
        with torch.inference_mode():
            views = []
            for text, tokens in zip(texts, encoded, strict=True):
                views.append(self._view(text, tokens, target))
        cut_texts = sum(tokens.truncated > 0 for tokens in encoded)
        remedy = ""
        if self.max_tokens is not None and self.max_tokens < min(self.limits, default=math.inf):
            remedy = "--max-seq-len N shows more"
        report_cut_texts(cut_texts, len(encoded), self.max_tokens, remedy)
        name = self.checkpoint.family.name
        head = self.checkpoint.head_name
        return Look(ref, name, head, views, self._mixes())

    def _mixes(self) -> list[Mix]:
        mixes = []
        for module in self.model.modules():
            if not isinstance(module, ScalarMix):
                continue
            if module.weights is None or module.gamma is None:
                mixes.append(Mix([1 / module.layers] * module.layers, 1.0))
            else:
                shares = module.weights.double().softmax(-1)
                mixes.append(Mix(shares.tolist(), float(module.gamma)))
        return mixes

    def _view(self, text: str, encoded: "Encoded", target: str | None) -> TextView:
        inputs = self._inputs(encoded)
        shown = self._shown(encoded, text)
        if "decoder_input_ids" in self.session.inputs:
            stacks = self._encoder_decoder_stacks(encoded, shown, inputs, target)
        else:
            (captured,), (layers,), outputs = self._capture([self.model], inputs)
            stack = _view_stack("model", list(encoded.tokens), shown, self.model, captured, layers)
            stack.predictions.extend(self._predictions(captured, self.model, outputs))
            stacks = [stack]
        mask = self.tokenizer.mask_id
        masked = []
        if mask is not None:
            masked = [place for place, number in enumerate(encoded.ids) if number == mask]
        return TextView(text, encoded.truncated, masked, stacks, words_of(text, encoded, shown))

    def _encoder_decoder_stacks(
        self, encoded: "Encoded", shown: list[str], inputs: dict[str, Tensor], target: str | None
    ) -> list[StackView]:
        ids = self._target_ids(inputs, target)
        inputs["decoder_input_ids"] = torch.tensor([ids], device=self.device)
        tokens = [self._token(number) for number in ids]
        readable_tokens = [readable(token) for token in tokens]
        decoder = getattr(self.model, "decoder", None)
        if decoder is None:  # One stack reads both.
            all_tokens = [*encoded.tokens, *tokens]
            return [self._joint_stack(all_tokens, [*shown, *readable_tokens], inputs)]
        captured, layers, outputs = self._capture([self.model, decoder], inputs)
        encoder_stack = _view_stack(
            "encoder", list(encoded.tokens), shown, self.model, captured[0], layers[0]
        )
        decoder_stack = _view_stack(
            "decoder", tokens, readable_tokens, decoder, captured[1], layers[1]
        )
        decoder_stack.predictions.extend(self._predictions(captured[1], decoder, outputs))
        return [encoder_stack, decoder_stack]

    def _joint_stack(
        self, tokens: list[str], shown: list[str], inputs: dict[str, Tensor]
    ) -> StackView:
        """Return what one stack computes for a source and its target."""
        (captured,), (layers,), outputs = self._capture([self.model], inputs)
        stack = _view_stack("model", tokens, shown, self.model, captured, layers)
        if hasattr(self.model, "scores"):  # The outputs only have the logits of the target.
            last_layer = max(captured.hidden)
            outputs = {"logits": self.model.scores(captured.hidden[last_layer])}
        stack.predictions.extend(self._predictions(captured, self.model, outputs))
        return stack

    def _capture(
        self, modules: list[Any], inputs: dict[str, Tensor]
    ) -> tuple[list[Captured], list[dict[str, list[int]]], dict[str, Tensor]]:
        """Run the model, and capture what an encoder and, if there is one, its decoder compute.

        Returns:
            What was captured of each module, the layers of each that compute self-attention and
            cross-attention, and the outputs of the model.
        """

        def run() -> Any:
            return self.model(**inputs)

        attention_layers = []
        for number, module in enumerate(modules):
            layers = {"self": _layers_with("self", module, run)}
            if number > 0:
                layers["cross"] = _layers_with("cross", module, run)
            attention_layers.append(layers)
        captured = []
        with ExitStack() as stack:
            for module, layers in zip(modules, attention_layers, strict=True):
                recording = capture(
                    module,
                    hidden="all",
                    attention=layers["self"],
                    cross_attention=layers.get("cross", ()),
                )
                captured.append(stack.enter_context(recording))
            outputs = run()
        return captured, attention_layers, outputs

    def _inputs(self, encoded: "Encoded") -> dict[str, Tensor]:
        arrays = collate([encoded], self.session.inputs, self.tokenizer.pad_id).inputs
        spec = self.checkpoint.onnx_spec
        inputs = {}
        for name, array in arrays.items():
            tensor = torch.from_numpy(array).to(self.device)
            if "choices" in spec.inputs[name]:
                # A model for multiple choice reads a text as the only choice.
                tensor = tensor[:, None]
            inputs[name] = tensor
        return inputs

    def _target_ids(self, inputs: dict[str, Tensor], target: str | None) -> list[int]:
        """Return the tokens that a decoder reads: the first one, and the target's."""
        begin = getattr(self.checkpoint.config, "decoder_start_token_id", self.tokenizer.pad_id)
        if hasattr(self.model, "decoder_input_ids"):
            begin = int(self.model.decoder_input_ids(inputs["input_ids"])[0, 0])
        end = self.tokenizer.role_id("eos")
        if target is not None:
            limit = max(self.max_tokens or MAX_TOKENS, 2)
            ids = list(self.tokenizer.encode([target], max_tokens=limit)[0].ids)
            if ids[:1] == [begin]:
                del ids[0]
            if ids[-1:] == [end]:
                del ids[-1]
            return [begin, *ids]
        if not hasattr(self.model, "prefill"):
            return [begin]
        return self._generate(inputs, begin, end)

    def _generate(self, inputs: dict[str, Tensor], begin: int, end: int | None) -> list[int]:
        """Return the tokens that a decoder generates greedily, after the first one."""
        ids = [begin]
        count = min(MAX_NEW_TOKENS, self.max_tokens or MAX_NEW_TOKENS) - 1
        logits, state = self.model.prefill(inputs, count + 1)
        while len(ids) <= count:
            best = int(logits[0].argmax())
            if best == end:
                break
            ids.append(best)
            logits = self.model.step(torch.tensor([best], device=self.device), state)
        return ids

    def _predictions(
        self, captured: Captured, module: nn.Module, outputs: dict[str, Tensor]
    ) -> list[LayerPredictions]:
        """Return what each layer predicts, if the model has a head over tokens."""
        states = [captured.hidden[k] for k in sorted(captured.hidden)]
        if "forward_logits" in outputs:
            return self._predictions_of_directions(states, outputs)
        output_logits = outputs.get("logits")
        if output_logits is None or not hasattr(self.model, "scores"):
            return []
        if output_logits.shape[:2] != states[0].shape[:2]:
            return []
        norm = getattr(module, "final_norm", None)
        logits = []
        for state in states[:-1]:
            normed = state if norm is None else norm(state)
            logits.append(self.model.scores(normed))
        logits.append(output_logits)
        if output_logits.ndim == 2:
            return [_predict_replaced(logits)]
        is_causal = hasattr(self.model, "prefill")
        name = "next token" if is_causal else "token"
        return [self._predict_tokens(name, logits)]

    def _predictions_of_directions(
        self, states: list[Tensor], outputs: dict[str, Tensor]
    ) -> list[LayerPredictions]:
        """Return what the layers of a language model for each direction predict.

        The first half of a state belongs to the forward model, the second half to the backward one.
        """
        directions = [("next word", "forward_logits"), ("previous word", "backward_logits")]
        predictions = []
        for side, (name, output) in enumerate(directions):
            logits = [self.model.head(state.chunk(2, dim=-1)[side]) for state in states[:-1]]
            logits.append(outputs[output])
            predictions.append(self._predict_tokens(name, logits))
        return predictions

    def _predict_tokens(self, name: str, logits: list[Tensor]) -> LayerPredictions:
        """Return the best predictions of each layer for logits, (1, tokens, vocabulary) each."""
        tokens = []
        probabilities = []
        for layer in logits:
            best = layer[0].double().softmax(-1).topk(min(self.top_k, layer.shape[-1]))
            probabilities.append(best.values.cpu().numpy())
            layer_tokens = []
            for numbers in best.indices.tolist():
                layer_tokens.append([self._token(number) for number in numbers])
            tokens.append(layer_tokens)
        return LayerPredictions(name, list(range(len(logits))), tokens, np.stack(probabilities))

    def _token(self, number: int) -> str:
        try:
            return self.vocabulary.token(number)
        except UsageError:  # embeddings may have more rows than tokens
            return f"#{number}"

    def _shown(self, encoded: "Encoded", text: str) -> list[str]:
        """Return tokens as parts of the text, where they are not written as such."""
        shown = []
        for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True):
            if token.isascii() or start == end:
                shown.append(readable(token))
            else:
                shown.append(text[start:end].replace(" ", SPACE))
        return shown


def words_of(text: str, encoded: "Encoded", shown: Sequence[str]) -> list[InspectedWord]:
    """Return the words of a text with their tokens; a special token is a word of its own.

    A token belongs to the word that has its first character, a space to the word that follows it.

    Args:
        text: the text.
        encoded: its tokens.
        shown: the tokens as people read them.
    """
    word_spans = [match.span() for match in WORD.finditer(text)]
    words: list[InspectedWord] = []
    previous_span = None  # The span of the word that the previous token belongs to.
    for place, (start, end) in enumerate(encoded.offsets):
        begin = len(text) - len(text[start:].lstrip())
        is_special = start >= end and shown[place] != SPACE
        span = None if is_special else _span_at(begin, word_spans)
        if span is None:
            words.append(InspectedWord(shown[place], [place]))
        elif span == previous_span:
            words[-1].tokens.append(place)
        else:
            # A token such as [MASK] may be longer than the word that it begins with.
            word_end = max(span[1], end)
            words.append(InspectedWord(text[span[0] : word_end], [place]))
        previous_span = span
    return words


def _span_at(position: int, spans: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the span that a position is in."""
    for start, end in spans:
        if start <= position < end:
            return start, end
    return None


def readable(token: str) -> str:
    """Return a token with signs in place of a tokenizer's letters for spaces and line ends."""
    return token.translate(SIGNS)


def _layers_with(attention: str, module: nn.Module, run: Callable[[], Any]) -> list[int]:
    """Return the indices of the layers that compute attention, ``self`` or ``cross``."""
    name = {"self": "attention", "cross": "cross_attention"}[attention]

    def computes(layers: Iterable[int]) -> bool:
        try:
            with capture(module, **{name: tuple(layers)}):
                run()
        except UsageError:
            return False
        return True

    all_layers = range(len(layers_in_order(module)))
    if computes(all_layers):
        return list(all_layers)
    return [layer for layer in all_layers if computes([layer])]


def _view_stack(
    name: str,
    tokens: list[str],
    shown: list[str],
    module: nn.Module,
    captured: Captured,
    attention_layers: dict[str, list[int]],
) -> StackView:
    """Return what was captured of a stack, without predictions."""
    layer_names = ["embeddings"]
    for number, layer in enumerate(layers_in_order(module), start=1):
        layer_names.append("mix" if isinstance(layer, ScalarMix) else f"layer {number}")
    hidden = [to_numpy(captured.hidden[k][0]) for k in sorted(captured.hidden)]
    attention = _attention(captured, attention_layers)
    return StackView(name, tokens, shown, layer_names, hidden, attention)


def _attention(captured: Captured, layers: dict[str, list[int]]) -> list[AttentionMaps]:
    tensors = {"self": captured.attention, "cross": captured.cross_attention}
    maps = []
    for name, indices in layers.items():
        if not indices:
            continue
        numbers = [index + 1 for index in indices]
        values = [to_numpy(tensors[name][index][0]) for index in indices]
        maps.append(AttentionMaps(name, numbers, np.stack(values)))
    return maps


def _predict_replaced(logits: list[Tensor]) -> LayerPredictions:
    """Return the probability that a token was replaced, for logits of each layer, (1, tokens)."""
    layers = [to_numpy(layer[0].double().sigmoid()) for layer in logits]
    probabilities = np.stack(layers)
    words = []
    for row in probabilities:
        words.append([["replaced"]] * len(row))
    return LayerPredictions("replaced", list(range(len(logits))), words, probabilities[..., None])
