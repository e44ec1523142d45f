"""One continuation of each text, the likeliest token at each step or a drawn one."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import Decoder, require_finite
from zoo.inference.generation.sampling import RowSampler, probabilities


def greedy_or_sample(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    eos_token_ids: Sequence[int],
    row_ids: Sequence[int],
) -> Iterator[list[tuple[int, int]]]:
    """Generate, and return the tokens of each step as it is made.

    A row that is done leaves the batch, and costs nothing from there on.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: without beams.
        eos_token_ids: the tokens that end a text.
        row_ids: of each row, its place among all inputs, for the draws.

    Returns:
        of each step the pairs of row and token, for the rows that are not done.
    """
    rows = list(range(len(inputs["input_ids"])))
    dice = RowSampler(settings.seed, row_ids, settings.max_new_tokens) if settings.samples else None
    logits, state = decoder.prefill(inputs, settings.max_new_tokens)
    for step in range(settings.max_new_tokens):
        require_finite(logits)
        if step < settings.min_new_tokens and eos_token_ids:
            logits = logits.index_fill(
                -1, torch.tensor(eos_token_ids, device=logits.device), float("-inf")
            )
        if dice is None:
            tokens = logits.argmax(-1)
        else:
            tokens = dice.draw(probabilities(logits, settings), rows, step)
        chosen = tokens.tolist()
        yield list(zip(rows, chosen, strict=True))
        going = [k for k, token in enumerate(chosen) if token not in eos_token_ids]
        if not going or step + 1 == settings.max_new_tokens:
            return
        if len(going) < len(rows):
            kept = torch.tensor(going, device=tokens.device)
            state.select(kept)
            rows, tokens = [rows[k] for k in going], tokens[kept]
        logits = decoder.step(tokens, state)
