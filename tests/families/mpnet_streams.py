"""The two streams of the released code of MPNet, on the modules of transformers' model.

They are ``encode_two_stream_attn`` and ``make_query_and_content_mask`` of microsoft/MPNet
(masked_permutation_net.py), for one row.
"""

from typing import Any

import torch
from torch import Tensor


def block(layer: Any, x: Tensor, source: Tensor, sees: Tensor, bias: Tensor) -> Tensor:
    """Run a block of transformers' model with queries of one stream and keys of the content."""
    attention = layer.attention.attn
    heads = (-1, attention.num_attention_heads, attention.attention_head_size)
    queries, keys, values = (
        project(states).view(heads).transpose(0, 1)
        for project, states in ((attention.q, x), (attention.k, source), (attention.v, source))
    )
    scores = queries @ keys.transpose(1, 2) / attention.attention_head_size**0.5 + bias
    scores = scores.masked_fill(sees == 0, float("-inf"))
    context = (scores.softmax(-1) @ values).transpose(0, 1).flatten(1)
    x = layer.attention.LayerNorm(attention.o(context) + x)
    result: Tensor = layer.output(layer.intermediate(x), x)
    return result


def two_streams(reference: Any, ids: Tensor, order: Tensor, masked_ids: Tensor) -> Tensor:
    """Return the query stream of one row, (predicted, hidden).

    Args:
        reference: transformers' model.
        ids: the tokens of the text, (tokens,).
        order: indices of the predicted tokens in the order of their prediction, (predicted,).
        masked_ids: what replaces them, (predicted,).
    """
    backbone = reference.mpnet
    encoder = backbone.encoder
    given = torch.tensor([i for i in range(len(ids)) if i not in order.tolist()])
    permuted = torch.cat((given, order))
    positions = torch.cat((permuted, order))  # of the content stream
    tokens = torch.cat((ids[permuted], masked_ids))

    def embed(token_ids: Tensor, places: Tensor) -> Tensor:
        # The first position of a text has row 2, behind the padding's.
        result: Tensor = backbone.embeddings(token_ids[None], position_ids=places[None] + 2)
        return result[0]

    content, query = embed(tokens, positions), embed(masked_ids, order)
    count, first = len(order), len(given)
    upper = torch.ones(count, count).triu()
    lower = torch.ones(count, count).tril()
    # The matrices of ``make_query_and_content_mask``: 1 where a key is seen.
    query_sees = torch.cat((torch.ones(count, first), 1 - upper, upper), dim=1)
    predicted = torch.cat((torch.zeros(first, count), lower, torch.zeros(count, count)))
    content_sees = torch.cat((torch.ones(len(tokens), first), predicted, 1 - predicted), dim=1)
    distance = positions[None, :] - positions[:, None]
    buckets = encoder.relative_position_bucket(distance)
    bias = encoder.relative_attention_bias(buckets).permute(2, 0, 1)
    for layer in encoder.layer:
        source = content
        query = block(layer, query, source, query_sees, bias[:, -count:])
        content = block(layer, content, source, content_sees, bias)
    return query
