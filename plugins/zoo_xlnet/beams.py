"""Question answering by beam search (section A.3 of arXiv:1906.08237, run_squad.py of its code).

The last token of an answer is predicted from its first: of the most likely first tokens, each has
its own most likely last ones. A further logit says that there is no answer.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.decoder import last_token_index
from zoo.nn.heads import gather_rows
from zoo_xlnet.backbone import XLNetBackbone
from zoo_xlnet.config import XLNetConfig

MASKED = -1e30  # logit of a token that is not in an answer, as in released code


class BeamHead(nn.Module):
    """Logits of first and last tokens, and of no answer.

    Args:
        config: the configuration.
    """

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, width)
        self.answer_dense = nn.Linear(2 * width, width)
        self.end_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.end_out = nn.Linear(width, 1)
        self.answer_out = nn.Linear(width, 1, bias=False)

    def end_logits(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """Return the logits of last tokens, (batch, tokens, starts).

        Args:
            hidden: (batch, tokens, hidden).
            starts: hidden states of first tokens, (batch, starts, hidden).
        """
        of_token, of_start = self.end_dense.weight.chunk(2, dim=1)
        inner = F.linear(hidden, of_token)[:, :, None] + F.linear(starts, of_start)[:, None]
        inner = self.end_norm(torch.tanh(inner + self.end_dense.bias))
        return self.end_out(inner).squeeze(-1)  # type: ignore[no-any-return]

    def answer_logits(self, start: Tensor, last: Tensor) -> Tensor:
        """Return the logits of no answer, (batch,), for two hidden states, (batch, hidden)."""
        inner = torch.tanh(self.answer_dense(torch.cat((start, last), dim=-1)))
        return self.answer_out(inner).squeeze(-1)  # type: ignore[no-any-return]


class XLNetBeamQuestionAnswering(XLNetBackbone):
    """Question answering by beam search: see the module."""

    head: BeamHead

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        p_mask: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the best first and last tokens.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: see ``Encoder``; the last token that is not padding is ``<cls>``.
            token_type_ids: see ``Encoder``.
            p_mask: (batch, tokens), int64: 1 for tokens that are not in an answer.

        Returns:
            ``start_top_log_probs`` and ``start_top_index``, (batch, starts); the same of last
            tokens, (batch, ends * starts), the best end of each start first; ``cls_logits``,
            (batch,), high for no answer. As in the Hub's class, the first of these are
            probabilities. Where fewer tokens are allowed, the others have probability and index 0.
        """
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        masked = _masks(input_ids, attention_mask, p_mask)
        probs = _fill(self.head.start(hidden).squeeze(-1), *masked).softmax(-1)
        start_probs, start_index = _best(probs, self.config.start_n_top)
        rows = start_index[..., None].expand(-1, -1, hidden.shape[-1])
        ends = self.head.end_logits(hidden, hidden.gather(1, rows)).transpose(1, 2)
        end_probs = _fill(ends, *(mask[:, None] for mask in masked)).softmax(-1)
        end_probs, end_index = (
            tensor.transpose(1, 2).flatten(1) for tensor in _best(end_probs, self.config.end_n_top)
        )
        mean = (probs[:, None] @ hidden).squeeze(1)
        last = gather_rows(hidden, last_token_index(input_ids, attention_mask, None))
        return {
            "start_top_log_probs": start_probs,
            "start_top_index": start_index,
            "end_top_log_probs": end_probs,
            "end_top_index": end_index,
            "cls_logits": self.head.answer_logits(mean, last),
        }

    def loss(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        *,
        start_positions: Tensor,
        end_positions: Tensor,
        cls_index: Tensor | None = None,
        is_impossible: Tensor | None = None,
        p_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the mean of the cross-entropies of first and last token, and of no answer, ().

        Args:
            input_ids: see ``forward``.
            attention_mask: see ``forward``.
            token_type_ids: see ``forward``.
            start_positions: (batch,), int64; the last token is predicted from this one.
            end_positions: (batch,), int64.
            cls_index: position of ``<cls>``, (batch,), int64.
            is_impossible: 1 for no answer, else 0, (batch,), of the dtype of the model. With it and
                ``cls_index``, half of this binary cross-entropy is added.
            p_mask: see ``forward``.
        """
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        masked = _masks(input_ids, attention_mask, p_mask)
        start = gather_rows(hidden, start_positions)
        starts = _fill(self.head.start(hidden).squeeze(-1), *masked)
        ends = _fill(self.head.end_logits(hidden, start[:, None]).squeeze(-1), *masked)
        total = F.cross_entropy(starts, start_positions) + F.cross_entropy(ends, end_positions)
        if cls_index is None or is_impossible is None:
            return total / 2
        logits = self.head.answer_logits(start, gather_rows(hidden, cls_index))
        return (total + F.binary_cross_entropy_with_logits(logits, is_impossible)) / 2


def _masks(
    input_ids: Tensor, attention_mask: Tensor | None, p_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return which tokens are not in an answer, and which are padding, (batch, tokens), bool."""
    none = torch.zeros_like(input_ids, dtype=torch.bool)
    outside = none if p_mask is None else p_mask == 1
    return outside, none if attention_mask is None else attention_mask == 0


def _fill(logits: Tensor, outside: Tensor, padding: Tensor) -> Tensor:
    """Mask logits; padding more than other tokens, so that it never has a probability."""
    lowest = torch.finfo(logits.dtype).min
    return logits.masked_fill(outside, max(MASKED, lowest / 2)).masked_fill(padding, lowest)


def _best(probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the highest of (..., tokens), and their indices, (..., count); 0 for missing ones."""
    values, index = F.pad(probs, (0, count - 1)).topk(count, dim=-1)
    return values, torch.where(values > 0, index, 0)
