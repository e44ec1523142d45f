"""One continuation of each text, the likeliest token at each step or a drawn one."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.generation.decoder import Decoder, checked
from zoo.generation.sampling import Dice, probabilities
from zoo.generation.settings import Settings


def single_steps(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: Settings,
    ends: Sequence[int],
    places: Sequence[int],
) -> Iterator[list[tuple[int, int]]]:
    """Generate, and return the tokens of each step as it is made.

    A row that is done leaves the batch, and costs nothing from there on.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: without beams.
        ends: the tokens that end a text.
        places: of each row, its place among all inputs, for the draws.

    Returns:
        of each step the pairs of row and token, for the rows that are not done.
    """
    rows = list(range(len(inputs["input_ids"])))
    dice = Dice(settings.seed, places, settings.max_new_tokens) if settings.samples else None
    logits, state = decoder.prefill(inputs, settings.max_new_tokens)
    for step in range(settings.max_new_tokens):
        checked(logits)
        if step < settings.min_new_tokens and ends:
            logits = logits.index_fill(-1, torch.tensor(ends, device=logits.device), float("-inf"))
        if dice is None:
            tokens = logits.argmax(-1)
        else:
            tokens = dice.draw(probabilities(logits, settings), rows, step)
        chosen = tokens.tolist()
        yield list(zip(rows, chosen, strict=True))
        going = [k for k, token in enumerate(chosen) if token not in ends]
        if not going or step + 1 == settings.max_new_tokens:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=tokens.device)
            state.select(kept)
            rows, tokens = [rows[k] for k in going], tokens[kept]
        logits = decoder.step(tokens, state)
