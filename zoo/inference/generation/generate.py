"""Running a search over a batch."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.inference.generation.beam_search import beam_search
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import Decoder
from zoo.inference.generation.single_sequence import greedy_or_sample


def generate(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    *,
    eos_token_ids: Sequence[int] = (),
    row_ids: Sequence[int] | None = None,
) -> list[list[int]]:
    """Continue every row of a batch.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: how.
        eos_token_ids: the tokens that end a text.
        row_ids: of each row, its place among all inputs, which the draws of sampling depend on;
            by default its place in the batch.

    Returns:
        the new tokens of each row, one of ``ends`` included where it came to one.
    """
    with torch.inference_mode():
        if settings.num_beams > 1:
            return beam_search(decoder, inputs, settings, eos_token_ids)
        found: list[list[int]] = [[] for _ in inputs["input_ids"]]
        row_ids = range(len(found)) if row_ids is None else row_ids
        for step in greedy_or_sample(decoder, inputs, settings, eos_token_ids, row_ids):
            for row, token in step:
                found[row].append(token)
    return found


def stream(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    *,
    eos_token_ids: Sequence[int] = (),
    place: int = 0,
) -> Iterator[int]:
    """Continue a single row, and return each token as soon as it is chosen.

    Args:
        decoder: the model.
        inputs: a batch of one row; see ``Decoder.prefill``.
        settings: how; without beams, which choose at the end.
        eos_token_ids: the tokens that end a text.
        place: of the row among all inputs.
    """
    steps = greedy_or_sample(decoder, inputs, settings, eos_token_ids, (place,))
    while True:
        with torch.inference_mode():  # not while the caller has the token
            step = next(steps, None)
        if step is None:
            return
        yield step[0][1]
