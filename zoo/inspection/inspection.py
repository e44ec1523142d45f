"""What the layers of a model compute for a text: hidden states, attention and predictions."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.adapters.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import load_vocabulary
from zoo.errors import UsageError
from zoo.inference.processing.batching import collate
from zoo.inference.processing.numbers import short_floats
from zoo.inference.task_checks import max_length, token_limits
from zoo.inference.torch_session import TorchSession, to_numpy
from zoo.nn.capture import Captured, capture, layers_in_order
from zoo.nn.layers.scalar_mix import ScalarMix

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers import Encoded, TextTokenizer

Floats = NDArray[np.floating[Any]]
MAX_TOKENS = 64
MAX_NEW_TOKENS = 32  # of a target that the model generates itself
TOP_K = 5
# of byte-level tokenizers and SentencePiece
WORD = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*|[^\w\s]")
SPACE = "␣"
SIGNS = str.maketrans("ĠĊčĉ▁", f"{SPACE}↵↵⇥{SPACE}")


@dataclass(frozen=True)
class Predictions:
    """What each layer predicts at each position, by the head of the model (the logit lens)."""

    # The last layer's are the outputs of the model.

    name: str  # such as ``next token``
    layers: list[int]  # the hidden states that the predictions are of
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
    predictions: list[Predictions] = field(default_factory=list)


@dataclass(frozen=True)
class Word:
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
    words: list[Word]  # of the tokens that the first stack reads

    def word_vectors(self) -> list[Floats]:
        """Return the mean of the vectors of each word's tokens by layer, (words, hidden) each."""
        return [
            np.stack([state[word.tokens].mean(axis=0) for word in self.words])
            for state in self.stacks[0].hidden
        ]


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

    def similarities(self) -> list[Floats]:
        """Return the cosine of all tokens' vectors of both texts by layer, (tokens, tokens)."""
        states = zip(*(view.stacks[0].hidden for view in self.texts), strict=True)
        return [cosines(np.concatenate(layer)) for layer in states]

    def word_similarities(self) -> list[Floats]:
        """Return the cosine of all words' vectors of both texts by layer, (words, words)."""
        states = zip(*(view.word_vectors() for view in self.texts), strict=True)
        return [cosines(np.concatenate(layer)) for layer in states]

    def to_json(self) -> dict[str, Any]:
        """Return all numbers exactly."""
        return {
            "model": self.model,
            "family": self.family,
            "head": self.head,
            "texts": [_text_to_json(view) for view in self.texts],
            "similarity": [short_floats(layer) for layer in self.similarities()],
            "word_similarity": [short_floats(layer) for layer in self.word_similarities()],
            "mixes": [{"weights": mix.weights, "gamma": mix.gamma} for mix in self.mixes],
        }


def _text_to_json(view: TextView) -> dict[str, Any]:
    return {
        "text": view.text,
        "truncated": view.truncated,
        "words": [{"word": word.text, "tokens": word.tokens} for word in view.words],
        "stacks": [
            {
                "name": stack.name,
                "tokens": stack.tokens,
                "layers": stack.layers,
                "hidden_states": [short_floats(state) for state in stack.hidden],
                "attention": {
                    maps.name: {"layers": maps.layers, "values": short_floats(maps.values)}
                    for maps in stack.attention
                },
                "predictions": {
                    found.name: {
                        "layers": found.layers,
                        "tokens": found.tokens,
                        "probabilities": short_floats(found.probabilities),
                    }
                    for found in stack.predictions
                },
            }
            for stack in view.stacks
        ],
    }


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
        limits = token_limits(checkpoint)
        self.checkpoint = checkpoint
        self.session = session
        self.tokenizer = tokenizer
        # of what the model predicts: words, where it reads characters
        self.vocabulary = load_vocabulary(checkpoint) or tokenizer
        self.max_tokens = max_length(max_tokens or min([MAX_TOKENS, *limits]), limits)
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
            views = [
                self._view(text, tokens, target)
                for text, tokens in zip(texts, encoded, strict=True)
            ]
        name = self.checkpoint.family.name
        head = self.checkpoint.head_name
        mixes = []
        for module in self.model.modules():
            if isinstance(module, ScalarMix) and (module.weights is None or module.gamma is None):
                mixes.append(Mix([1 / module.layers] * module.layers, 1.0))
            elif isinstance(module, ScalarMix):
                shares = module.weights.double().softmax(-1)  # type: ignore[union-attr]
                mixes.append(Mix(shares.tolist(), float(module.gamma)))  # type: ignore[arg-type]
        return Look(ref, name, head, views, mixes)

    def _view(self, text: str, encoded: "Encoded", target: str | None) -> TextView:
        inputs = self._inputs(encoded)
        tokens = list(encoded.tokens)
        shown = self._shown(encoded, text)
        decoder = None
        decoder_tokens = list[str]()
        if "decoder_input_ids" in self.session.inputs:
            decoder = self.model.get_submodule("decoder")
            ids = self._target_ids(inputs, target)
            inputs["decoder_input_ids"] = torch.tensor([ids], device=self.device)
            decoder_tokens = [self._token(number) for number in ids]

        def run() -> Any:
            return self.model(**inputs)

        modules = [self.model] if decoder is None else [self.model, decoder]
        names = ["model"] if decoder is None else ["encoder", "decoder"]
        kinds = [("self",), ("self", "cross")]
        wanted = [
            {kind: _layers_with(kind, module, run) for kind in kinds[number]}
            for number, module in enumerate(modules)
        ]
        with ExitStack() as stack:
            captured = [
                stack.enter_context(
                    capture(
                        module,
                        hidden="all",
                        attention=layers["self"],
                        cross_attention=layers.get("cross", ()),
                    )
                )
                for module, layers in zip(modules, wanted, strict=True)
            ]
            outputs = run()
        stacks = []
        for number, module in enumerate(modules):
            is_last = number == len(modules) - 1
            stacks.append(
                StackView(
                    names[number],
                    decoder_tokens if number else tokens,
                    [readable(token) for token in decoder_tokens] if number else shown,
                    [
                        "embeddings",
                        *(
                            "mix" if isinstance(layer, ScalarMix) else f"layer {place}"
                            for place, layer in enumerate(layers_in_order(module), start=1)
                        ),
                    ],
                    [
                        to_numpy(captured[number].hidden[k][0])
                        for k in sorted(captured[number].hidden)
                    ],
                    _attention(captured[number], wanted[number]),
                    self._predictions(captured[number], module, outputs) if is_last else [],
                )
            )
        mask = self.tokenizer.mask_id
        masked = [k for k, number in enumerate(encoded.ids) if mask is not None and number == mask]
        return TextView(text, encoded.truncated, masked, stacks, words_of(text, encoded, shown))

    def _inputs(self, encoded: "Encoded") -> dict[str, Tensor]:
        arrays = collate([encoded], self.session.inputs, self.tokenizer.pad_id).inputs
        spec = self.checkpoint.onnx_spec
        inputs = {}
        for name, array in arrays.items():
            tensor = torch.from_numpy(array).to(self.device)
            # of multiple choice, a text is the only choice
            inputs[name] = tensor[:, None] if "choices" in spec.inputs[name] else tensor
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
            return [begin, *(ids[:-1] if ids[-1:] == [end] else ids)]
        ids = [begin]
        if not hasattr(self.model, "prefill"):
            return ids
        count = min(MAX_NEW_TOKENS, self.max_tokens or MAX_NEW_TOKENS) - 1
        logits, state = self.model.prefill(inputs, count + 1)
        while len(ids) <= count and (best := int(logits[0].argmax())) != end:
            ids.append(best)
            logits = self.model.step(torch.tensor([best], device=self.device), state)
        return ids

    def _predictions(
        self, captured: Captured, module: nn.Module, outputs: dict[str, Tensor]
    ) -> list[Predictions]:
        """Return what each layer predicts, if the model has a head over tokens."""
        states = [captured.hidden[k] for k in sorted(captured.hidden)]
        if "forward_logits" in outputs:  # a language model for each direction
            return [
                self._predicted(
                    name,
                    [self.model.head(state.chunk(2, dim=-1)[side]) for state in states[:-1]]
                    + [outputs[output]],
                )
                for side, (name, output) in enumerate(
                    [("next word", "forward_logits"), ("previous word", "backward_logits")]
                )
            ]
        last = outputs.get("logits")
        if (
            last is None
            or not hasattr(self.model, "scores")
            or last.shape[:2] != states[0].shape[:2]
        ):
            return []
        norm: Callable[[Tensor], Tensor] = getattr(module, "final_norm", None) or (lambda x: x)
        lens = [self.model.scores(norm(state)) for state in states[:-1]]
        if last.ndim == 2:  # one logit for each token: was it replaced?
            logits = [*lens, last]
            probabilities = np.stack([to_numpy(layer[0].double().sigmoid()) for layer in logits])
            words = [[["replaced"] for _ in row] for row in probabilities]
            return [
                Predictions("replaced", list(range(len(logits))), words, probabilities[..., None])
            ]
        is_causal = hasattr(self.model, "prefill")
        return [self._predicted("next token" if is_causal else "token", [*lens, last])]

    def _predicted(self, name: str, logits: list[Tensor]) -> Predictions:
        """Return the best predictions of each layer for logits, (1, tokens, vocabulary) each."""
        tokens = []
        probabilities = []
        for layer in logits:
            best = layer[0].double().softmax(-1).topk(min(self.top_k, layer.shape[-1]))
            probabilities.append(best.values.cpu().numpy())
            tokens.append([[self._token(k) for k in row] for row in best.indices.tolist()])
        return Predictions(name, list(range(len(logits))), tokens, np.stack(probabilities))

    def _token(self, number: int) -> str:
        try:
            return self.vocabulary.token(number)
        except UsageError:  # embeddings may have more rows than tokens
            return f"#{number}"

    def _shown(self, encoded: "Encoded", text: str) -> list[str]:
        """Return tokens as parts of the text, where they are not written as such."""
        spans = zip(encoded.tokens, encoded.offsets, strict=True)
        return [
            readable(token)
            if token.isascii() or start == end
            else text[start:end].replace(" ", SPACE)
            for token, (start, end) in spans
        ]


def words_of(text: str, encoded: "Encoded", shown: Sequence[str]) -> list[Word]:
    """Return the words of a text with their tokens; a special token is a word of its own."""
    # A token belongs to the word that has its first character, a space to the word that follows it.
    # ``shown`` are the tokens as people read them.
    ends = [(match.start(), match.end()) for match in WORD.finditer(text)]
    words: list[Word] = []
    last = None  # the span of the word that the token before belongs to
    for place, (start, end) in enumerate(encoded.offsets):
        begin = len(text) - len(text[start:].lstrip())
        written = start < end or shown[place] == SPACE  # and not a special token
        span = next((span for span in ends if written and span[0] <= begin < span[1]), None)
        if span is not None and span == last:
            words[-1].tokens.append(place)
        else:
            # a token such as [MASK] may be longer than the word that it begins with
            name = shown[place] if span is None else text[span[0] : max(span[1], end)]
            words.append(Word(name, [place]))
        last = span
    return words


def readable(token: str) -> str:
    """Return a token with signs in place of a tokenizer's letters for spaces and line ends."""
    return token.translate(SIGNS)


def _layers_with(kind: str, module: nn.Module, run: Callable[[], Any]) -> list[int]:
    """Return the indices of the layers that compute attention of a kind."""
    name = {"self": "attention", "cross": "cross_attention"}[kind]

    def computes(layers: Iterable[int]) -> bool:
        try:
            with capture(module, **{name: tuple(layers)}):
                run()
        except UsageError:
            return False
        return True

    every = range(len(layers_in_order(module)))
    if computes(every):
        return list(every)
    return [layer for layer in every if computes([layer])]


def _attention(captured: Captured, layers: dict[str, list[int]]) -> list[AttentionMaps]:
    tensors = {"self": captured.attention, "cross": captured.cross_attention}
    return [
        AttentionMaps(
            kind,
            [layer + 1 for layer in numbers],
            np.stack([to_numpy(tensors[kind][layer][0]) for layer in numbers]),
        )
        for kind, numbers in layers.items()
        if numbers
    ]
