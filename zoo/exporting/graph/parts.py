"""Modules to trace for graphs with a key-value cache."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from zoo.checkpoint import DECODER, ENCODER, GRAPH
from zoo.errors import UsageError
from zoo.exporting.graph.last_tokens import last_tokens
from zoo.exporting.graph.trace import Example
from zoo.families.onnx import (
    ALL_LOGITS,
    LOGITS,
    NUM_LOGITS,
    PAST,
    PAST_TOKENS,
    PRESENT,
    SCORED_TOKENS,
    SOURCE_HIDDEN,
    SOURCE_MASK,
    Axes,
    OnnxSpec,
    axis_sum,
)
from zoo.nn.adapters.prompt import prompt_of
from zoo.nn.generation import DecodeState, GenerationMixin, Seq2SeqGenerationMixin
from zoo.nn.kv_cache import KeyValueCache, LayerCache
from zoo.overrides import override

T = TypeVar("T")

OWN = ("key", "value")
TARGET = ("decoder.key", "decoder.value")
SOURCE = ("encoder.key", "encoder.value")
MASK = "attention_mask"
HIDDEN = "last_hidden_state"
NEW = 3  # number of new tokens in the traced batch, after those in the cache


class GraphToTrace(NamedTuple):
    """One graph of an export."""

    file: str
    module: nn.Module
    example: Example  # inputs of the traced batch; see ``trace``
    spec: OnnxSpec  # names and axes of inputs and outputs
    # of a decoder after an encoder, what computes the keys and values of cross-attention in its
    # first run
    first_run: "GraphToTrace | None" = None


class TracedLayerCache(LayerCache):
    """Keys and values of one layer, concatenated with new ones instead of written in place."""

    # A traced graph cannot write to a preallocated buffer that it returns with a dynamic size.

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self._hold(keys, values)

    @override
    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        self._hold(torch.cat((self.pair[0], keys), 2), torch.cat((self.pair[1], values), 2))
        return self.pair

    def _hold(self, keys: Tensor, values: Tensor) -> None:
        self.length = keys.shape[2]
        self.pair = (keys, values)
        self._keys = keys
        self._values = values


class DecoderWithPast(nn.Module):
    """A decoder with its key-value cache as inputs and outputs."""

    def __init__(self, model: GenerationMixin, kinds: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.kinds = kinds

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_key_values: list[Tensor],
        num_logits_to_keep: Tensor,
    ) -> dict[str, Tensor]:
        """Return the logits of new tokens and the extended cache."""
        # input_ids: the new tokens, (batch, tokens), int64; attention_mask: of cached and new
        # tokens, (batch, all tokens), int64; for an encoder-decoder, of the source
        size = len(self.kinds)
        layers = [past_key_values[at : at + size] for at in range(0, len(past_key_values), size)]
        caches = [TracedLayerCache(keys, values) for keys, values, *_ in layers]
        cache = KeyValueCache(0)
        cache.layers = [*caches]
        memory = [(layer[2], layer[3]) for layer in layers if size > 2]
        state = self.model.state_type(cache, attention_mask, memory)
        hidden = self.model.forward_with_cache(input_ids, state)
        scores = self.model.scores(last_tokens(hidden, num_logits_to_keep))
        return {LOGITS: scores, **_named(PRESENT, self.kinds[:2], [kv.pair for kv in caches])}


class Seq2SeqDecoderWithPast(DecoderWithPast):
    """``DecoderWithPast`` of an encoder-decoder; the mask is the source's."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        past_key_values: list[Tensor],
        num_logits_to_keep: Tensor,
    ) -> dict[str, Tensor]:
        return super().forward(
            input_ids, encoder_attention_mask, past_key_values, num_logits_to_keep
        )


class EncoderGraph(nn.Module):
    """The encoder."""

    def __init__(self, model: Seq2SeqGenerationMixin) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """Return the encoder's output; both inputs are int64, (batch, tokens)."""
        return {HIDDEN: self.model.encode_source(input_ids, attention_mask)}


class CrossAttentionCache(nn.Module):
    """The keys and values of cross-attention of each decoder block."""

    def __init__(self, model: Seq2SeqGenerationMixin) -> None:
        super().__init__()
        self.model = model

    def forward(self, encoder_hidden_states: Tensor) -> dict[str, Tensor]:
        """Return keys and values for the encoder's output, (batch, tokens, hidden)."""
        return _named(PRESENT, SOURCE, self.model.cross_attention_cache(encoder_hidden_states))


def with_cache(
    model: GenerationMixin, spec: OnnxSpec, example: Mapping[str, Tensor]
) -> list[GraphToTrace]:
    """Return the modules to trace for generation with a key-value cache; ``spec`` has none."""
    # A decoder-only model is one graph, whose inputs are new tokens and the keys and values of the
    # earlier tokens, and whose outputs are logits and the keys and values of all tokens. The
    # numbers of new and of earlier tokens are dynamic; there may be no earlier ones. An
    # encoder-decoder is two graphs: the encoder returns its last hidden state, from which the
    # decoder computes keys and values of cross-attention in its first run; see
    # ``zoo.exporting.graph.cache_branch``.
    if prompt_of(model) is not None:
        raise UsageError(
            "a graph that generates has no place for the prompt of an adapter, which is read once",
            "run it in torch, export without a cache, or train --adapter prefix",
        )
    ids = example["input_ids"]
    mask = example["attention_mask"]
    target = example.get("decoder_input_ids")
    if target is None:
        past = ids.shape[1] - NEW
        state = _read(model, {"input_ids": ids, "attention_mask": mask[:, :past]}, ids[:, :past])
        axes: dict[str, Axes] = {"input_ids": ("batch", "tokens"), MASK: ("batch", "all_tokens")}
        known = {"input_ids": ids[:, past:], MASK: mask}
        return [_part(GRAPH, DecoderWithPast(model, OWN), state, spec, axes, known)]
    assert isinstance(model, Seq2SeqGenerationMixin), "a model with a target has an encoder"
    past = target.shape[1] - NEW
    state = _read(model, example, target[:, :past])
    axes = {"input_ids": ("batch", spec.outputs[LOGITS][1]), SOURCE_MASK: ("batch", "tokens")}
    known = {"input_ids": target[:, past:], SOURCE_MASK: mask}
    encoder, first_run = _encoder(model, state, spec, {"input_ids": ids, MASK: mask})
    decoder = _part(
        DECODER, Seq2SeqDecoderWithPast(model, TARGET + SOURCE), state, spec, axes, known
    )
    return [encoder, decoder._replace(first_run=first_run)]


def _read(model: GenerationMixin, inputs: Mapping[str, Tensor], tokens: Tensor) -> DecodeState:
    with torch.no_grad():
        state = model.init_state(inputs, 0)
        model.forward_with_cache(tokens, state)
    return state


def _encoder(
    model: Seq2SeqGenerationMixin, state: DecodeState, spec: OnnxSpec, example: Mapping[str, Tensor]
) -> tuple[GraphToTrace, GraphToTrace]:
    """Return the encoder, and what computes keys and values of its output."""
    with torch.no_grad():
        hidden = model.encode_source(example["input_ids"], example[MASK])
    axes: Axes = ("batch", "tokens", hidden.shape[-1])
    encoder = replace(
        spec, inputs={name: spec.inputs[name] for name in example}, outputs={HIDDEN: axes}
    )
    keys_and_values = [[_axes(t, "tokens") for t in pair] for pair in state.cross_attention_cache]
    cross = replace(
        spec, inputs={SOURCE_HIDDEN: axes}, outputs=_named(PRESENT, SOURCE, keys_and_values)
    )
    return (
        GraphToTrace(ENCODER, EncoderGraph(model), example, encoder),
        GraphToTrace(DECODER, CrossAttentionCache(model), {SOURCE_HIDDEN: hidden}, cross),
    )


def _part(
    file: str,
    module: DecoderWithPast,
    state: DecodeState,
    spec: OnnxSpec,
    axes: Mapping[str, Axes],
    known: Mapping[str, Tensor],
) -> GraphToTrace:
    updated = [[layer.keys.clone(), layer.values.clone()] for layer in state.cache.layers]
    held = [
        [*pair, *more]
        for pair, more in zip_longest(updated, state.cross_attention_cache, fillvalue=())
    ]
    tokens = str(spec.outputs[LOGITS][1])
    axis_names = [PAST_TOKENS, PAST_TOKENS, "tokens", "tokens"]
    past = [[_axes(*pair) for pair in zip(layer, axis_names, strict=False)] for layer in held]
    returned = [
        [_axes(tensor, axis_sum(PAST_TOKENS, tokens)) for tensor in pair] for pair in updated
    ]
    longest = spec.limits.get(tokens)
    limits = {} if longest is None else {PAST_TOKENS: longest, "all_tokens": longest}
    return GraphToTrace(
        file,
        module,
        {
            **known,
            PAST: [tensor for layer in held for tensor in layer],
            NUM_LOGITS: torch.tensor(ALL_LOGITS),
        },
        replace(
            spec,
            inputs={**axes, **_named(PAST, module.kinds, past), NUM_LOGITS: ()},
            outputs={
                LOGITS: ("batch", SCORED_TOKENS, *spec.outputs[LOGITS][2:]),
                **_named(PRESENT, module.kinds[:2], returned),
            },
            limits={**spec.limits, **limits},
        ),
    )


def _axes(tensor: Tensor, tokens: str) -> Axes:
    """Return the axes of keys or values; numbers and sizes of heads are static."""
    return ("batch", tensor.shape[1], tokens, tensor.shape[3])


def _named(word: str, kinds: Sequence[str], layers: Iterable[Iterable[T]]) -> dict[str, T]:
    """Return name -> value for the values of all layers; names are ``present.0.key`` and so on."""
    return {
        f"{word}.{number}.{kind}": value
        for number, layer in enumerate(layers)
        for kind, value in zip(kinds, layer, strict=True)
    }
