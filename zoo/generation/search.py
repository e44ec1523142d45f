"""Running a search over a batch."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.generation.beams import beam_search
from zoo.generation.decoder import Decoder
from zoo.generation.settings import Settings
from zoo.generation.single import single_steps


def generate(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: Settings,
    *,
    ends: Sequence[int] = (),
    places: Sequence[int] | None = None,
) -> list[list[int]]:
    """Continue every row of a batch.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: how.
        ends: the tokens that end a text.
        places: of each row, its place among all inputs, which the draws of sampling depend on;
            by default its place in the batch.

    Returns:
        the new tokens of each row, one of ``ends`` included where it came to one.
    """
    with torch.inference_mode():
        if settings.beams > 1:
            return beam_search(decoder, inputs, settings, ends)
        found: list[list[int]] = [[] for _ in inputs["input_ids"]]
        places = range(len(found)) if places is None else places
        for step in single_steps(decoder, inputs, settings, ends, places):
            for row, token in step:
                found[row].append(token)
    return found


def stream(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: Settings,
    *,
    ends: Sequence[int] = (),
    place: int = 0,
) -> Iterator[int]:
    """Continue a single row, and return each token as soon as it is chosen.

    Args:
        decoder: the model.
        inputs: a batch of one row; see ``Decoder.prefill``.
        settings: how; without beams, which choose at the end.
        ends: the tokens that end a text.
        place: of the row among all inputs.
    """
    steps = single_steps(decoder, inputs, settings, ends, (place,))
    while True:
        with torch.inference_mode():  # not while the caller has the token
            step = next(steps, None)
        if step is None:
            return
        yield step[0][1]
