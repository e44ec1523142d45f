"""Capture of hidden states, attention and queries, keys and values from a model's layers.

The layers of a model are its ``layers`` in the order in which they run, see ``Family.model``.
Hidden states are recorded by forward hooks. Attention is recorded at the call of
``torch.nn.functional.scaled_dot_product_attention``, or of the same function with bounded scores,
so that it works for every family; that kernel returns no probabilities, which are recomputed from
its arguments for the captured layers.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from zoo.errors import UsageError
from zoo.nn.attention.softcap import softcap, softcapped_attention

Layers: TypeAlias = Sequence[int] | Literal["all"]
QueriesKeysValues: TypeAlias = tuple[Tensor, Tensor, Tensor]
Value = TypeVar("Value")

_capturing = ContextVar("_capturing", default=False)
_capturing_attention = ContextVar("_capturing_attention", default=False)


def is_capturing() -> bool:
    """Return whether anything is being captured. Each layer computes all tokens then."""
    # Compiled code skips the hooks, and reading a context variable would split its graph.
    return not torch.compiler.is_compiling() and _capturing.get()


def is_capturing_attention() -> bool:
    """Return whether attention is being captured.

    Attention that splits its work into several kernel calls makes one call of it then.
    """
    return not torch.compiler.is_compiling() and _capturing_attention.get()


class LayerOutputs(dict[int, Value]):
    """Index of the layer, as it was passed to ``capture`` -> tensor."""

    def __missing__(self, layer: int) -> Value:
        """Raise an error that names the possible reasons."""
        raise KeyError(
            f"layer {layer} was not captured: it was not asked for, or no forward pass was run "
            "(a compiled model skips hooks; capture from the model that was compiled)"
        )


@dataclass(frozen=True)
class Captured:
    """Tensors of the latest forward pass, by the layer's index as it was passed to ``capture``."""

    # They are the tensors of the forward pass itself, so gradients flow through them.

    # Hidden states, (batch, tokens, hidden): 0 is the embeddings, ``k`` the output of layer ``k``,
    # -1 the last, after the final norm if the model has one.
    hidden: LayerOutputs[Tensor] = field(default_factory=LayerOutputs)
    # Attention probabilities before dropout, (batch, heads, queries, keys).
    attention: LayerOutputs[Tensor] = field(default_factory=LayerOutputs)
    # Attention scores before the softmax, with biases and masks, of the same shape.
    attention_scores: LayerOutputs[Tensor] = field(default_factory=LayerOutputs)
    # Probabilities of a decoder's attention to its source.
    cross_attention: LayerOutputs[Tensor] = field(default_factory=LayerOutputs)
    # Queries, keys and values, (batch, heads, tokens, head_size) each.
    queries_keys_values: LayerOutputs[QueriesKeysValues] = field(default_factory=LayerOutputs)


@contextlib.contextmanager
def capture(
    model: nn.Module,
    *,
    hidden: Layers = (),
    attention: Layers = (),
    attention_scores: Layers = (),
    cross_attention: Layers = (),
    queries_keys_values: Layers = (),
) -> Iterator[Captured]:
    """Record tensors of the layers of a model during the forward passes of the block.

    Without layers to capture, no hooks are registered. The decoder of an encoder-decoder is
    captured as a model: ``capture(model.decoder, ...)``. Leave the block before a backward pass
    with activation checkpointing, which runs layers again.

    Args:
        model: a family's model, or another module with ``layers``.
        hidden: indices from 0 (the embeddings) to the number of layers; negative ones count from
            the last; or "all".
        attention: indices of layers from 0 for the first, as in the tuple ``attentions`` of
            transformers; negative ones count from the last; or "all".
        attention_scores: as ``attention``.
        cross_attention: as ``attention``.
        queries_keys_values: as ``attention``.

    Yields:
        The tensors, filled by each forward pass.

    Raises:
        UsageError: a layer does not exist, or computes no attention.

    Example:
        >>> with capture(model, hidden=(0, -1), attention=(-1,)) as captured:  # doctest: +SKIP
        ...     model(input_ids)
        >>> captured.hidden[-1].shape, captured.attention[-1].shape  # doctest: +SKIP
        (torch.Size([1, 5, 768]), torch.Size([1, 12, 5, 5]))
    """
    count = len(layers_in_order(model))
    hooks = _Hooks(
        model,
        hidden=_resolve(hidden, count + 1),
        attention={
            "attention": _resolve(attention, count),
            "attention_scores": _resolve(attention_scores, count),
            "cross_attention": _resolve(cross_attention, count),
            "queries_keys_values": _resolve(queries_keys_values, count),
        },
    )
    token = _capturing.set(hooks.wants_anything or is_capturing())
    attention_token = _capturing_attention.set(hooks.wants_attention or is_capturing_attention())
    try:
        hooks.register()
        yield hooks.captured
    finally:
        hooks.remove()
        _capturing_attention.reset(attention_token)
        _capturing.reset(token)


def layers_in_order(model: nn.Module) -> list[nn.Module]:
    """Return the layers in the order in which they run; one that runs twice is listed twice."""
    layers = model.get_submodule("layers")
    assert isinstance(layers, nn.ModuleList), "see Family.model"
    order: Sequence[int] = getattr(model, "order", range(len(layers)))
    return [layers[number] for number in order]


def hidden_state_count(model: nn.Module) -> int:
    """Return the number of hidden states: the embeddings, and the output of each layer."""
    return 1 + len(layers_in_order(model))


@dataclass
class _AttentionCall:
    """The arguments of one call of the attention kernel."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    scale: float
    cap: float | None

    @classmethod
    def from_arguments(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        cap: float | None = None,
    ) -> "_AttentionCall":
        factor = scale or 1 / math.sqrt(query.shape[-1])
        return cls(query, key, value, attn_mask, is_causal, factor, cap)

    def scores(self) -> Tensor:
        scores = self.q @ self.k.transpose(-1, -2) * self.scale
        if self.cap is not None:
            scores = softcap(scores, self.cap)
        if self.causal:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -torch.inf)
        if self.mask is None:
            return scores
        if self.mask.dtype is torch.bool:
            return scores.masked_fill(~self.mask, -torch.inf)
        return scores + self.mask

    def probabilities(self) -> Tensor:
        return self.scores().softmax(-1)


_READERS: Mapping[str, Callable[[list[_AttentionCall]], Any]] = {
    "attention": lambda calls: calls[0].probabilities(),
    "attention_scores": lambda calls: calls[0].scores(),
    "cross_attention": lambda calls: calls[1].probabilities(),
    "queries_keys_values": lambda calls: (calls[0].q, calls[0].k, calls[0].v),
}


class _RecordAttention(TorchFunctionMode):
    """Keeps the arguments of the calls of the attention kernel, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_AttentionCall] = []

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in (F.scaled_dot_product_attention, softcapped_attention):
            self.calls.append(_AttentionCall.from_arguments(*args, **kwargs))
        return func(*args, **kwargs)


class _Hooks:
    """The forward hooks of one ``capture``."""

    def __init__(
        self,
        model: nn.Module,
        *,
        hidden: dict[int, list[int]],
        attention: dict[str, dict[int, list[int]]],
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.attention = attention
        self.captured = Captured()
        self.layers = layers_in_order(model)
        self.wants_attention = any(attention.values())
        self.wants_anything = bool(hidden) or self.wants_attention
        self._handles: list[Any] = []
        self._modes: list[_RecordAttention] = []
        self._calls: dict[nn.Module, int] = {}  # Calls of each layer in this forward pass.
        self._in_forward = False

    def register(self) -> None:
        if not self.wants_anything:
            return
        add = self._handles.append
        add(self.model.register_forward_pre_hook(self._begin))
        add(self.model.register_forward_hook(self._end, always_call=True))
        for layer in dict.fromkeys(self.layers):
            add(layer.register_forward_pre_hook(self._before_layer))
            add(layer.register_forward_hook(self._after_layer, always_call=True))
        norm = getattr(self.model, "final_norm", None)
        if norm is not None:
            add(norm.register_forward_hook(self._after_final_norm))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _begin(self, module: nn.Module, args: object) -> None:
        self._in_forward = True
        self._calls.clear()

    def _end(self, module: nn.Module, args: object, output: object) -> None:
        self._in_forward = False

    def _number(self, layer: nn.Module) -> int | None:
        """Return the index of the layer that runs, or ``None`` if a head runs a layer again."""
        numbers = [number for number, module in enumerate(self.layers) if module is layer]
        call = self._calls.get(layer, 0)
        return numbers[call] if call < len(numbers) else None

    def _before_layer(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        is_first = layer is self.layers[0]
        if is_first and not self._in_forward and self._number(layer) is None:
            self._calls.clear()  # The model's forward is not called: another pass begins here.
        number = self._number(layer)
        if number == 0:
            self._keep_hidden(0, args[0])
        if any(number in layers for layers in self.attention.values()):
            self._modes.append(_RecordAttention())
            self._modes[-1].__enter__()  # type: ignore[no-untyped-call]

    def _after_layer(self, layer: nn.Module, args: object, output: Tensor | None) -> None:
        number = self._number(layer)
        self._calls[layer] = self._calls.get(layer, 0) + 1
        if number is None:
            return
        calls = None
        if any(number in layers for layers in self.attention.values()):
            mode = self._modes.pop()
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            calls = mode.calls
        if output is None:  # The layer raised an error.
            return
        self._keep_hidden(number + 1, output)
        for name, layers in self.attention.items():
            for request in layers.get(number, ()):
                getattr(self.captured, name)[request] = _read(name, calls or [], number)

    def _after_final_norm(self, module: nn.Module, args: object, output: Tensor) -> None:
        self._keep_hidden(len(self.layers), output)

    def _keep_hidden(self, number: int, state: Tensor) -> None:
        for request in self.hidden.get(number, ()):
            self.captured.hidden[request] = state


def _read(name: str, calls: list[_AttentionCall], number: int) -> Any:
    try:
        return _READERS[name](calls)
    except IndexError:
        words = name.replace("_", " ")
        raise UsageError(f"layer {number} of the model computes no {words}") from None


def _resolve(layers: Layers, count: int) -> dict[int, list[int]]:
    """Return the non-negative index of each captured layer -> its indices as passed."""
    numbers: dict[int, list[int]] = {}
    if layers == "all":
        layers = range(count)
    for layer in layers:
        assert isinstance(layer, int)
        if not -count <= layer < count:
            raise UsageError(f"the model has no layer {layer}", f"give {-count} to {count - 1}")
        numbers.setdefault(layer % count, []).append(layer)
    return numbers
