"""Greedy search and sampling: one sequence per prompt."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder
from zoo.inference.generation.sampling import RowId, RowSampler, probabilities
from zoo.inference.generation.scores import Scores
from zoo.nn.dtypes import at_least_float32


def greedy_or_sample(
    decoder: SessionDecoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    scores: Scores,
    eos_token_ids: Sequence[int],
    row_ids: Sequence[RowId],
) -> Iterator[list[tuple[int, int]]]:
    """Generate, and yield the tokens of each step.

    A finished row leaves the batch.
    """
    rows = list(range(len(inputs["input_ids"])))
    limits = scores.max_new_tokens
    longest = max(limits)
    sampler = RowSampler(settings.seed, row_ids, longest) if settings.samples else None
    logits, state = decoder.prefill(inputs, longest)
    new_tokens = torch.empty(len(rows), 0, dtype=torch.int64, device=logits.device)
    for step in range(longest):
        scores.check(logits)
        wide = at_least_float32(logits) if sampler is None else logits.double()
        if scores.has_rules:
            wide = scores.of(wide, rows, new_tokens)
        if sampler is None:
            tokens = wide.argmax(-1)
        else:
            tokens = sampler.draw(probabilities(wide), rows, step)
        next_tokens = tokens.tolist()
        yield list(zip(rows, next_tokens, strict=True))
        unfinished = [
            k
            for k, (row, token) in enumerate(zip(rows, next_tokens, strict=True))
            if token not in eos_token_ids and step + 1 < limits[row]
        ]
        if not unfinished:
            return
        if scores.has_rules:
            new_tokens = torch.cat([new_tokens, tokens[:, None]], 1)[unfinished]
        if len(unfinished) < len(rows):
            indices = torch.tensor(unfinished, device=tokens.device)
            state.select(indices)
            rows = [rows[k] for k in unfinished]
            tokens = tokens[indices]
        logits = decoder.step(tokens, state)
