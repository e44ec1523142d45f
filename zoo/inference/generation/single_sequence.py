"""Greedy search and sampling: one sequence per prompt."""

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
    """Generate, and yield the tokens of each step.

    A finished row leaves the batch.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: settings of generation, with ``num_beams=1``.
        eos_token_ids: end-of-sequence tokens.
        row_ids: index of each row among all inputs, which seeds its sampling.

    Yields:
        for each step, pairs of row and token of the unfinished rows.
    """
    rows = list(range(len(inputs["input_ids"])))
    sampler = (
        RowSampler(settings.seed, row_ids, settings.max_new_tokens) if settings.samples else None
    )
    logits, state = decoder.prefill(inputs, settings.max_new_tokens)
    for step in range(settings.max_new_tokens):
        require_finite(logits)
        if step < settings.min_new_tokens and eos_token_ids:
            logits = logits.index_fill(
                -1, torch.tensor(eos_token_ids, device=logits.device), float("-inf")
            )
        if sampler is None:
            tokens = logits.argmax(-1)
        else:
            tokens = sampler.draw(probabilities(logits, settings), rows, step)
        chosen = tokens.tolist()
        yield list(zip(rows, chosen, strict=True))
        unfinished = [k for k, token in enumerate(chosen) if token not in eos_token_ids]
        if not unfinished or step + 1 == settings.max_new_tokens:
            return
        if len(unfinished) < len(rows):
            indices = torch.tensor(unfinished, device=tokens.device)
            state.select(indices)
            rows, tokens = [rows[k] for k in unfinished], tokens[indices]
        logits = decoder.step(tokens, state)
