"""Layers that attend differently: to a window of tokens, or without rotated queries and keys."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.nn.attention.masks import mask_value
from zoo.nn.kernels.local_attention import (
    causal_blocks,
    local_attention,
    supports_causal_blocks,
)
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, add_bias


class AttentionPattern(nn.Module):
    """Which layers only attend to a window of tokens, and which rotate queries and keys.

    Args:
        is_local: for each layer, whether a token only attends to a window.
        window: in a causal model, the number of tokens that a token attends to, itself included;
            else the number of tokens on each side of it; or such a number for each layer. ``None``
            if no layer is local.
        causal: whether a token attends to earlier tokens only.
        rotary: rotates queries and keys of local layers; ``None`` for the rotation of the others.
        rotates: for each layer, whether it rotates queries and keys; ``None`` for all.

    Attributes:
        reads_row_length: whether attention depends on the number of tokens of a row with its
            padding, so that texts of a batch are never packed.
    """

    reads_row_length: bool = False

    def __init__(
        self,
        is_local: Sequence[bool],
        window: int | Sequence[int] | None,
        *,
        causal: bool = False,
        rotary: nn.Module | None = None,
        rotates: Sequence[bool] | None = None,
    ) -> None:
        super().__init__()
        self.is_local = tuple(is_local)
        if isinstance(window, int) or window is None:
            window = [window or 0] * len(self.is_local)
        self.windows = tuple(window)
        self.causal = causal
        self.rotary = rotary
        self.rotates = (True,) * len(self.is_local) if rotates is None else tuple(rotates)

    @property
    def adds_bias(self) -> bool:
        """Whether windows are a part of the mask; see ``Encoder.adds_bias``."""
        return self.causal and any(self.is_local)

    def needs_mask(self, x: Tensor, positions: Positions) -> bool:
        """Return whether a layer reads a mask of all pairs of tokens.

        Args:
            x: embeddings, (batch, tokens, hidden).
            positions: positions of the tokens.
        """
        if not self.causal or not all(self.is_local):
            return True
        return not all(supports_causal_blocks(x, positions, window) for window in set(self.windows))

    def forward(
        self, x: Tensor, inputs: AttentionInputs, positions: Positions
    ) -> list[AttentionInputs]:
        """Return the inputs of the attention of each layer.

        Args:
            x: embeddings, (batch, tokens, hidden).
            inputs: those of a layer that attends to all tokens and rotates queries and keys.
            positions: positions of the tokens.
        """
        local_inputs = {}
        for is_local, window in zip(self.is_local, self.windows, strict=True):
            if not is_local or window in local_inputs:
                continue
            local_inputs[window] = self._local_inputs(x, inputs, positions, window)
            mask = local_inputs[window].mask
            if isinstance(mask, DocumentOffsets):  # They also leave out padding.
                inputs = inputs._replace(mask=mask._replace(reach=None))
        inputs_by_layer = []
        for is_local, window, rotates in zip(
            self.is_local, self.windows, self.rotates, strict=True
        ):
            layer_inputs = local_inputs[window] if is_local else inputs
            if not rotates:
                layer_inputs = layer_inputs._replace(rotation=None)
            inputs_by_layer.append(layer_inputs)
        return inputs_by_layer

    def _local_inputs(
        self, x: Tensor, inputs: AttentionInputs, positions: Positions, window: int
    ) -> AttentionInputs:
        """Return the inputs of the local layers with a window."""
        rotation = inputs.rotation if self.rotary is None else self.rotary(positions.queries)
        mask = inputs.mask
        assert mask is None or isinstance(mask, Tensor | DocumentOffsets), "it has no window yet"
        if not self.causal:
            in_graphs = all(self.is_local)
            local = local_attention(x, mask, positions, window, in_graphs=in_graphs)
            return AttentionInputs(local, rotation)
        if supports_causal_blocks(x, positions, window):
            return AttentionInputs(causal_blocks(x, positions, window), rotation)
        is_far = (positions.distance <= -window)[:, None]
        return AttentionInputs(add_bias(mask, is_far.to(x.dtype) * mask_value(x.dtype)), rotation)
