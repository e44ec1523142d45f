"""Modules to trace for graphs with a key-value cache."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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

# Names of a layer's keys and values: of self-attention without and with an encoder, and of
# cross-attention.
SELF_ATTENTION = ("key", "value")
DECODER_SELF_ATTENTION = ("decoder.key", "decoder.value")
CROSS_ATTENTION = ("encoder.key", "encoder.value")
MASK = "attention_mask"
HIDDEN = "last_hidden_state"
# Tokens of the traced batch after those in the cache.
NUM_NEW_TOKENS = 3


class GraphToTrace(NamedTuple):
    """One graph of an export."""

    file: str
    module: nn.Module
    example: Example  # inputs of the traced batch; see ``trace``
    spec: OnnxSpec  # names and axes of inputs and outputs
    # What computes the keys and values of cross-attention in the first run of a decoder that
    # follows an encoder.
    first_run: "GraphToTrace | None" = None


class TracedLayerCache(LayerCache):
    """Keys and values of one layer, concatenated with new ones instead of written in place.

    A traced graph cannot write to a preallocated buffer that it returns with a dynamic size.
    """

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

    def __init__(self, model: GenerationMixin, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names  # Names of the keys and values of a layer.

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_key_values: list[Tensor],
        num_logits_to_keep: Tensor,
    ) -> dict[str, Tensor]:
        """Return the logits of new tokens and the extended cache.

        Args:
            input_ids: the new tokens, (batch, tokens), int64.
            attention_mask: mask of cached and new tokens, (batch, all tokens), int64; for an
                encoder-decoder, of the source.
            past_key_values: keys and values of all layers, (batch, heads, tokens, size).
            num_logits_to_keep: number of last tokens to score.
        """
        size = len(self.names)
        layers = [past_key_values[at : at + size] for at in range(0, len(past_key_values), size)]
        caches = [TracedLayerCache(keys, values) for keys, values, *_ in layers]
        cache = KeyValueCache(0)
        cache.layers = [*caches]
        memory = [(layer[2], layer[3]) for layer in layers if size > 2]
        state = self.model.state_type(cache, attention_mask, memory)
        hidden = self.model.forward_with_cache(input_ids, state)
        scores = self.model.scores(last_tokens(hidden, num_logits_to_keep))
        present = [layer_cache.pair for layer_cache in caches]
        return {LOGITS: scores, **_by_name(PRESENT, self.names[:2], present)}


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
        return _by_name(
            PRESENT, CROSS_ATTENTION, self.model.cross_attention_cache(encoder_hidden_states)
        )


def with_cache(
    model: GenerationMixin, spec: OnnxSpec, example: Mapping[str, Tensor]
) -> list[GraphToTrace]:
    """Return the modules to trace for generation with a key-value cache.

    A decoder-only model is one graph, whose inputs are new tokens and the keys and values of the
    earlier tokens, and whose outputs are logits and the keys and values of all tokens. The numbers
    of new and of earlier tokens are dynamic; there may be no earlier ones. An encoder-decoder is
    two graphs: the encoder returns its last hidden state, from which the decoder computes keys and
    values of cross-attention in its first run; see ``zoo.exporting.graph.cache_branch``.

    Args:
        model: the model.
        spec: inputs and outputs of its graph without a cache.
        example: inputs of the traced batch.

    Raises:
        UsageError: the model has a prompt, which a graph that generates cannot read.
    """
    if prompt_of(model) is not None:
        raise UsageError(
            "a graph that generates has no place for the prompt of an adapter, which is read once",
            "run it in torch, export without a cache, or train --adapter prefix",
        )
    ids = example["input_ids"]
    mask = example["attention_mask"]
    target = example.get("decoder_input_ids")
    if target is None:
        past = ids.shape[1] - NUM_NEW_TOKENS
        state = _fill_cache(
            model, {"input_ids": ids, "attention_mask": mask[:, :past]}, ids[:, :past]
        )
        axes: dict[str, Axes] = {"input_ids": ("batch", "tokens"), MASK: ("batch", "all_tokens")}
        new_tokens = {"input_ids": ids[:, past:], MASK: mask}
        module = DecoderWithPast(model, SELF_ATTENTION)
        return [_decoder_graph(GRAPH, module, state, spec, axes, new_tokens)]
    assert isinstance(model, Seq2SeqGenerationMixin), "a model with a target has an encoder"
    past = target.shape[1] - NUM_NEW_TOKENS
    state = _fill_cache(model, example, target[:, :past])
    axes = {"input_ids": ("batch", spec.outputs[LOGITS][1]), SOURCE_MASK: ("batch", "tokens")}
    new_tokens = {"input_ids": target[:, past:], SOURCE_MASK: mask}
    encoder, first_run = _encoder(model, state, spec, {"input_ids": ids, MASK: mask})
    module = Seq2SeqDecoderWithPast(model, DECODER_SELF_ATTENTION + CROSS_ATTENTION)
    decoder = _decoder_graph(DECODER, module, state, spec, axes, new_tokens)
    return [encoder, decoder._replace(first_run=first_run)]


def _fill_cache(
    model: GenerationMixin, inputs: Mapping[str, Tensor], tokens: Tensor
) -> DecodeState:
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
        spec,
        inputs={SOURCE_HIDDEN: axes},
        outputs=_by_name(PRESENT, CROSS_ATTENTION, keys_and_values),
    )
    return (
        GraphToTrace(ENCODER, EncoderGraph(model), example, encoder),
        GraphToTrace(DECODER, CrossAttentionCache(model), {SOURCE_HIDDEN: hidden}, cross),
    )


def _decoder_graph(
    file: str,
    module: DecoderWithPast,
    state: DecodeState,
    spec: OnnxSpec,
    axes: Mapping[str, Axes],
    new_tokens: Mapping[str, Tensor],
) -> GraphToTrace:
    """Return the graph of a decoder, whose cache holds the tokens of a state.

    Args:
        file: name of the graph.
        module: the decoder.
        state: state with the earlier tokens of the traced batch.
        spec: inputs and outputs without a cache.
        axes: axes of the inputs that are not of the cache.
        new_tokens: new tokens of the traced batch, and the mask.
    """
    tokens = str(spec.outputs[LOGITS][1])
    all_tokens = axis_sum(PAST_TOKENS, tokens)
    past: list[Tensor] = []
    past_axes: list[list[Axes]] = []
    present_axes: list[list[Axes]] = []
    for number, layer in enumerate(state.cache.layers):
        cross_attention: Sequence[Tensor] = ()
        if state.cross_attention_cache:
            cross_attention = state.cross_attention_cache[number]
        own = [layer.keys.clone(), layer.values.clone()]
        past += [*own, *cross_attention]
        layer_axes = [_axes(tensor, PAST_TOKENS) for tensor in own]
        layer_axes += [_axes(tensor, "tokens") for tensor in cross_attention]
        past_axes.append(layer_axes)
        present_axes.append([_axes(tensor, all_tokens) for tensor in own])
    limits = dict(spec.limits)
    if tokens in spec.limits:
        limits[PAST_TOKENS] = spec.limits[tokens]
        limits["all_tokens"] = spec.limits[tokens]
    logits_axes = ("batch", SCORED_TOKENS, *spec.outputs[LOGITS][2:])
    return GraphToTrace(
        file,
        module,
        {**new_tokens, PAST: past, NUM_LOGITS: torch.tensor(ALL_LOGITS)},
        replace(
            spec,
            inputs={**axes, **_by_name(PAST, module.names, past_axes), NUM_LOGITS: ()},
            outputs={LOGITS: logits_axes, **_by_name(PRESENT, module.names[:2], present_axes)},
            limits=limits,
        ),
    )


def _axes(tensor: Tensor, tokens: str) -> Axes:
    """Return the axes of keys or values; numbers and sizes of heads are static."""
    return ("batch", tensor.shape[1], tokens, tensor.shape[3])


def _by_name(prefix: str, names: Sequence[str], layers: Iterable[Iterable[T]]) -> dict[str, T]:
    """Return name -> value for the values of all layers; names are ``present.0.key`` and so on."""
    values: dict[str, T] = {}
    for number, layer in enumerate(layers):
        for name, value in zip(names, layer, strict=True):
            values[f"{prefix}.{number}.{name}"] = value
    return values
