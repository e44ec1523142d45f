"""The choice of the tokens that have global attention; see ``zoo.nn.global_attention``."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention.masks import mask_value
from zoo.nn.local_blocks import GlobalTokens
from zoo.nn.positions import Positions

NONE = "none"
FIRST = "first"
QUESTION = "question"
CHOICE = "choice"
SEPARATORS = "separators"
GLOBAL_TOKEN_RULES = (NONE, FIRST, QUESTION, CHOICE, SEPARATORS)


class GlobalTokenRule(nn.Module):
    """Which tokens have global attention.

    Args:
        rule: ``first`` for the first token of a text; ``question`` for the tokens before the first
            separator; ``choice`` for the tokens after the separators that follow the first text;
            ``separators`` for the first token and all separators; ``none``; or positions, which
            count from 0.
        separator: the token that ends a text.

    Attributes:
        rule, separator: the arguments.
    """

    def __init__(self, rule: str | tuple[int, ...], separator: int) -> None:
        super().__init__()
        self.rule = rule
        self.separator = separator

    def mark(self, input_ids: Tensor, positions: Positions) -> Positions:
        """Return the positions of tokens, (batch, tokens), int64, with those that are global."""
        if self.rule == NONE:
            return positions
        is_global = self(input_ids, positions)
        return replace(positions, is_global=is_global, most_global=self.limit)

    def mask(self, input_ids: Tensor) -> Tensor:
        """Return 1 for global tokens and 0 for others, int64, as ``global_attention_mask``.

        Args:
            input_ids: (..., tokens), int64: rows of one text each.
        """
        rows = input_ids.reshape(-1, input_ids.shape[-1])
        places = torch.arange(rows.shape[1], device=rows.device)[None]
        is_global: Tensor = self(rows, Positions(places, places))
        return is_global.view_as(input_ids).long()

    def forward(self, input_ids: Tensor, positions: Positions) -> Tensor:
        """Return whether each token has global attention, (batch, tokens), bool.

        Args:
            input_ids: (batch, tokens), int64.
            positions: positions of the tokens.
        """
        places = positions.queries.expand(input_ids.shape)
        match self.rule:
            case "first":
                is_global = places == 0
            case "question":
                is_global = self._separators_before(input_ids, places) == 0
            case "choice":
                # As in transformers: the text begins after the separator and one more token,
                # which is the second of two separators.
                count = self._separators_before(input_ids, places)
                count_before = F.pad(count, (2, 0))[:, : input_ids.shape[1]]
                is_global = (count_before >= 1) & (places >= 2)
            case "separators":
                is_global = (places == 0) | (input_ids == self.separator)
            case tuple():
                global_places = torch.tensor(self.rule, device=input_ids.device)
                is_global = (places[..., None] == global_places).any(-1)
            case _:
                raise ValueError(f"there is no rule {self.rule!r}")
        if positions.segments is not None:  # Padding is not global.
            is_global = is_global & (positions.segments != 0)
        return is_global

    def _separators_before(self, input_ids: Tensor, places: Tensor) -> Tensor:
        """Return the number of separators in a token's text up to it, (batch, tokens)."""
        is_separator = (input_ids == self.separator).long()
        count = is_separator.cumsum(1)
        columns = torch.arange(input_ids.shape[1], device=input_ids.device)
        starts = (columns - places).clamp(min=0)  # The first token of the text.
        count_before_text = (count - is_separator).gather(1, starts)
        return count - count_before_text

    @property
    def limit(self) -> int | None:
        """Largest number of global tokens of a text; ``None`` if it depends on the text."""
        if self.rule == FIRST:
            return 1
        return len(self.rule) if isinstance(self.rule, tuple) else None


def find_global_tokens(
    is_global: Tensor, segments: Tensor | None, dtype: torch.dtype, limit: int | None
) -> GlobalTokens | None:
    """Return the global tokens of a batch; ``None`` if no row has any.

    Args:
        is_global: (batch, tokens), bool.
        segments: see ``Positions``.
        dtype: dtype of the attention scores.
        limit: their largest number in a row, which exported graphs use; ``None`` to count them.
    """
    length = is_global.shape[1]
    if torch.compiler.is_exporting():
        count: Any = _exported_count(is_global, limit)
    else:
        count = int(is_global.sum(1).max())
        if count == 0:
            return None
    places = torch.arange(length, device=is_global.device)
    ranks = torch.where(is_global, places, places + length)  # Global tokens come first, in order.
    indices = ranks.topk(count, dim=1, largest=False).indices
    mask = None
    if segments is not None:
        masked = segments.gather(1, indices)[:, :, None] != segments[:, None, :]
        mask = masked[:, None].to(dtype) * mask_value(dtype)
    return GlobalTokens(indices, is_global.gather(1, indices), mask)


def _exported_count(is_global: Tensor, limit: int | None) -> Any:
    length = is_global.shape[1]
    if limit is not None:
        return torch.sym_min(limit, length)  # type: ignore[no-untyped-call]
    count = is_global.sum(1).max().clamp(min=1).item()  # A graph has no branch without them.
    torch._check(count >= 1)  # type: ignore[no-untyped-call]
    torch._check(count <= length)  # type: ignore[no-untyped-call]
    return count
