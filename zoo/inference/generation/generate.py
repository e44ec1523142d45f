"""Generation for a batch of prompts, or as a stream for one."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from zoo.inference.generation.beam_search import beam_search
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SequenceGenerator, SessionDecoder
from zoo.inference.generation.processors import Processor
from zoo.inference.generation.sampling import RowId, RowSampler, probabilities
from zoo.inference.generation.scores import Scores
from zoo.nn.dtypes import at_least_float32


def generate(
    decoder: SessionDecoder | SequenceGenerator,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    *,
    eos_token_ids: Sequence[int] = (),
    row_ids: Sequence[int] | None = None,
    logits_processor: Sequence[Processor] = (),
) -> list[list[int]]:
    """Generate a continuation of each row of a batch.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: settings of generation.
        eos_token_ids: end-of-sequence tokens.
        row_ids: index of each row among all inputs, which seeds its sampling; by default its
            index in the batch.
        logits_processor: further rules; see ``zoo.nn.logits_processor.LogitsProcessor``.

    Returns:
        new tokens of each row, with the end-of-sequence token if it was generated;
        ``num_return_sequences`` in succession for each row.

    Raises:
        UsageError: a prompt leaves no room for a new token.
    """
    if isinstance(decoder, SequenceGenerator):
        limits = Scores(inputs, settings, eos_token_ids).max_new_tokens
        return decoder.generate_sequences(inputs, settings, limits, eos_token_ids, logits_processor)
    ids: Sequence[RowId] = range(len(inputs["input_ids"])) if row_ids is None else row_ids
    copies = settings.num_return_sequences if settings.num_beams == 1 else 1
    if copies > 1:
        # the first sequence is the one without others
        ids = [f"{row}\0{k}" if k else row for row in ids for k in range(copies)]
        inputs = {name: value.repeat_interleave(copies, 0) for name, value in inputs.items()}
    with torch.inference_mode():
        scores = Scores(inputs, settings, eos_token_ids, logits_processor)
        if settings.num_beams > 1:
            return beam_search(decoder, inputs, settings, scores, eos_token_ids, ids)
        sequences: list[list[int]] = [[] for _ in inputs["input_ids"]]
        for step in greedy_or_sample(decoder, inputs, settings, scores, eos_token_ids, ids):
            for row, token in step:
                sequences[row].append(token)
    return sequences


def stream(
    decoder: SessionDecoder | SequenceGenerator,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    *,
    eos_token_ids: Sequence[int] = (),
    row_id: int = 0,
    logits_processor: Sequence[Processor] = (),
) -> Iterator[int]:
    """Generate from a single row and yield each token as soon as it is chosen."""
    scores = Scores(inputs, settings, eos_token_ids, logits_processor)
    if isinstance(decoder, SequenceGenerator):
        limits = scores.max_new_tokens
        yield from decoder.stream_tokens(inputs, settings, limits, eos_token_ids, logits_processor)
        return
    steps = greedy_or_sample(decoder, inputs, settings, scores, eos_token_ids, (row_id,))
    while True:
        with (
            torch.inference_mode()
        ):  # the mode must not reach the caller, who runs between two steps
            step = next(steps, None)
        if step is None:
            return
        yield step[0][1]


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
