"""MPNet: Masked and Permuted Pre-training for Language Understanding.

Song, Tan, Qin, Lu and Liu 2020, arXiv:2004.09297. The paper is about an objective, which is in
``zoo_mpnet.objective``; ``MPNetLM.encode_targets`` is its forward pass. The model is a Transformer
encoder that differs from the first ones in three points:

* there are no segment embeddings;
* positions count the tokens of a row that are not padding, from ``PAD + 1``;
* a learned bias for each head and bucket of distances is added to the attention scores, the same in
  all blocks (the scheme of Raffel et al. 2019, arXiv:1910.10683, section 2.1).

Heads are fairseq's: a text is classified by the hidden state of ``<s>``.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.nn.encoder import Encoder, MaskedLM, mask_value
from zoo.nn.encoder_factory import FairseqFactory, make_blocks, make_embeddings
from zoo.nn.layers.init import truncated_normal_
from zoo.nn.layers.relative import RelativePositions
from zoo.nn.positions import Positions
from zoo.nn.transformer import CountedEmbeddings
from zoo.overrides import override
from zoo_mpnet.config import BUCKETS, FARTHEST, PAD, MPNetConfig


class RelativeBias(RelativePositions):
    """The learned bias, for queries that are also the keys."""

    @override
    def forward(self, positions: Positions, dtype: torch.dtype) -> Tensor:  # type: ignore[override]
        """Return the bias of the scores, (1, heads, tokens, tokens)."""
        # Tokens of one document follow each other, so that their distance is that of their columns.
        tokens = positions.keys.shape[1]
        return super().forward(tokens, tokens)


class MPNetLM(MaskedLM):
    """Masked language modelling, and the two streams of masked and permuted prediction."""

    def encode_targets(
        self,
        input_ids: Tensor,
        order: Tensor,
        targets: Tensor,
        target_ids: Tensor,
        document_ids: Tensor,
        position_ids: Tensor,
    ) -> Tensor:
        """Return the last hidden states of the query stream.

        A row is extended by two vectors for each target, at the position of the target: one for its
        mask, and one that predicts it (the query stream). All run through the same blocks.

        * The n-th target's query attends to the tokens that are not predicted, to the targets
          before the n-th, and to the masks of the n-th and later ones. So it sees each position of
          the text once (position compensation).
        * The n-th target itself also sees itself, and the masks of the later ones only.
        * Masks and the tokens that are not predicted see these and all masks.
        * Nothing attends to a query.

        Args:
            input_ids: the tokens of the text, (batch, tokens), int64.
            order: n for the token that is predicted n-th, counted from 1; 0 for the others,
                (batch, tokens), int64.
            targets: index of the n-th target in its row, (batch, targets), int64; 0, which is
                never predicted, where a row has fewer.
            target_ids: what replaces the targets, mostly the mask token, (batch, targets), int64.
            document_ids: see ``Encoder.encode``.
            position_ids: see ``Encoder.encode``.

        Returns:
            (batch, targets, hidden).
        """
        number = order.gather(1, targets)
        documents = document_ids.gather(1, targets) * (number > 0)
        positions = position_ids.gather(1, targets)
        x: Tensor = self.embeddings(
            torch.cat((input_ids, target_ids, target_ids), dim=1),
            None,
            torch.cat((position_ids, positions, positions), dim=1),
        )
        # A query or key ``last`` sees the targets up to this one, and the masks of later ones.
        last = torch.cat((order, torch.zeros_like(number), number - 1), dim=1)
        key_number = torch.cat((order, number, number), dim=1)
        is_token = torch.zeros_like(key_number, dtype=torch.bool)
        is_token[:, : input_ids.shape[1]] = True
        sees = (key_number[:, None, :] <= last[:, :, None]) == is_token[:, None, :]
        query_documents = torch.cat((document_ids, documents, documents), dim=1)
        key_documents = torch.cat((document_ids, documents, torch.full_like(documents, -1)), dim=1)
        sees = sees & (query_documents[:, :, None] == key_documents[:, None, :])
        mask = (~sees).to(x.dtype)[:, None] * mask_value(x.dtype)
        columns = torch.arange(input_ids.shape[1], device=x.device).expand_as(input_ids)
        columns = torch.cat((columns, targets, targets), dim=1)
        distance = columns[:, None, :] - columns[:, :, None]
        mask = mask + self.relative_bias.by_distance(distance).transpose(0, 1)
        for layer in self.layers:
            x = layer(x, mask)
        return x[:, -targets.shape[1] :]


class MPNetFactory(FairseqFactory):
    """The models of fairseq, with a bias of the scores by distance."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **FairseqFactory.model_classes,
        "masked-lm": MPNetLM,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(config, CountedEmbeddings, padding=PAD),
            "layers": make_blocks(config),
            "relative_bias": RelativeBias(BUCKETS, FARTHEST, config.num_heads),
        }


def build(config: MPNetConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    model: Any = MPNetFactory(config).build(head)
    std = config.initializer_range
    truncated_normal_(model.relative_bias.weight, std, 2 * std)
    return model  # type: ignore[no-any-return]
