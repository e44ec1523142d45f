"""Encoder-decoders: pairs of source and target that share a row."""

import torch
from torch import nn

from tests.nn.making import SHAPE
from zoo.families.random_inputs import randomize_weights
from zoo.nn.encoder_decoder import (
    Decoder,
    EncoderDecoder,
    PreNormDecoderBlock,
    make_cross_attention,
)
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.transformer import PreNormBlock


def make_model() -> EncoderDecoder:
    """Return a model with absolute positions, in float64."""
    blocks = make_blocks(
        SHAPE,
        lambda attention, **args: PreNormDecoderBlock(
            attention, make_cross_attention(SHAPE), **args
        ),
        attention=lambda layer: make_self_attention(SHAPE, causal=True),
    )
    model = EncoderDecoder(
        make_embeddings(SHAPE, norm=False),
        make_blocks(SHAPE, PreNormBlock),
        decoder=Decoder(blocks, nn.LayerNorm(8)),
        decoder_start_token_id=0,
    )
    randomize_weights(model)
    return model.double().eval()


def test_pairs_of_a_packed_row_equal_rows_of_their_own() -> None:
    """Positions are those in the documents, of which the table has no more."""
    model = make_model()
    sources = [torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([[9, 10, 1, 2]])]
    targets = [torch.tensor([[0, 5, 6]]), torch.tensor([[0, 7, 8, 9, 1, 2, 3]])]
    packed = model.hidden(
        torch.cat(sources, dim=1),
        None,
        torch.cat(targets, dim=1),
        document_ids=torch.tensor([[1] * 6 + [2] * 4]),
        decoder_document_ids=torch.tensor([[1] * 3 + [2] * 7]),
    )
    alone = [model.hidden(s, None, t) for s, t in zip(sources, targets, strict=True)]
    for states, expected in zip(packed, zip(*alone, strict=True), strict=True):
        assert (states - torch.cat(expected, dim=1)).abs().max() <= 1e-12
