"""Beam search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder
from zoo.inference.generation.sampling import BeamSampler, RowId
from zoo.inference.generation.scores import Scores

EMPTY_BEAM = -1e9  # score of an empty beam, below all real scores
Candidate: TypeAlias = tuple[float, int, int]  # log-probability, index of the beam, token


@dataclass
class _BeamHypotheses:
    """Hypotheses for one prompt."""

    running: list[list[int]]  # tokens of the unfinished beams, the most likely first
    scores: list[float]  # their log-probabilities
    max_new_tokens: int  # largest number of new tokens
    # finished hypotheses with their final scores, the best first
    finished: list[tuple[float, list[int]]] = field(default_factory=list)
    done: bool = False  # whether the search has ended

    def take(
        self, candidates: list[Candidate], settings: GenerationConfig, eos_token_ids: Sequence[int]
    ) -> list[int]:
        """Choose the next beams among candidates, and return the beams that these continue."""
        length = len(self.running[0]) + 1
        is_last_step = length == self.max_new_tokens
        weight = length**settings.length_penalty
        hypotheses = list(self.finished)
        unfinished = []
        for rank, candidate in enumerate(candidates):
            score, beam, token = candidate
            if not is_last_step and token not in eos_token_ids:
                unfinished.append(candidate)
            # Only the first ``num_beams`` candidates may finish; the others replace them. A score
            # that is not above that is from an excluded token or an empty beam.
            elif rank < settings.num_beams and score > EMPTY_BEAM:
                hypotheses.append((_float32(score / weight), [*self.running[beam], token]))
        # Sorting is stable: the first of equal scores comes first.
        self.finished = sorted(hypotheses, key=lambda item: -item[0])[: settings.num_beams]
        unfinished = sorted(unfinished, key=lambda item: -item[0])[: settings.num_beams]
        if unfinished:
            self.running = [[*self.running[beam], token] for _, beam, token in unfinished]
            self.scores = [score for score, _, _ in unfinished]
        self.done = not unfinished or self._is_settled(length, settings)
        return [beam for _, beam, _ in unfinished]

    def _is_settled(self, length: int, settings: GenerationConfig) -> bool:
        """Return whether no unfinished beam can become better than the finished ones."""
        if len(self.finished) < settings.num_beams:
            return False
        if settings.early_stopping is True:
            return True
        final_length = length
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            final_length = self.max_new_tokens
        best = _float32(self.scores[0] / final_length**settings.length_penalty)
        return best <= self.finished[-1][0]


def beam_search(
    decoder: SessionDecoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    scores: Scores,
    eos_token_ids: Sequence[int],
    row_ids: Sequence[RowId],
) -> list[list[int]]:
    """Return the best continuations of each prompt.

    Graves 2012, arXiv:1211.3711, section 4 (the search); Wu et al. 2016, arXiv:1609.08144,
    section 7 (the length penalty). The choice of hypotheses, the stopping criterion and the final
    scores follow transformers, so that both find the same sequences.
    """
    beams = settings.num_beams
    limits = scores.max_new_tokens
    # All beams start from the same prompt, so that only the first one counts.
    first_scores = [0.0] + [EMPTY_BEAM] * (beams - 1)
    texts = [_BeamHypotheses([[]] * beams, first_scores, limit) for limit in limits]
    sampler = BeamSampler(settings.seed, row_ids) if settings.samples else None
    # The candidates are enough even if all end tokens are among them.
    count = max(2, 1 + len(eos_token_ids)) * beams
    logits, state = decoder.prefill(inputs, max(limits))
    rows = torch.arange(len(texts), device=logits.device).repeat_interleave(beams)
    state.select(rows)
    logits = logits[rows]
    active = list(range(len(texts)))
    for _ in range(max(limits)):
        scores.check(logits)
        log_probs = logits.float().log_softmax(-1)
        running_tokens: list[list[int]] = []
        running_scores: list[float] = []
        prompts: list[int] = []
        for index in active:
            running_tokens += texts[index].running
            running_scores += texts[index].scores
            prompts += [index] * beams
        if scores.has_rules:
            new_tokens = torch.tensor(running_tokens, dtype=torch.int64, device=logits.device)
            log_probs = scores.of(log_probs, prompts, new_tokens)
        summed = log_probs + torch.tensor(running_scores, device=logits.device)[:, None]
        choices = _candidates(
            summed.view(len(active), -1), logits.shape[-1], active, count, sampler
        )
        parent_rows: list[int] = []
        next_tokens: list[int] = []
        for place, (index, candidates) in enumerate(zip(active, choices, strict=True)):
            text = texts[index]
            parents = text.take(candidates, settings, eos_token_ids)
            if not text.done:
                parent_rows += [place * beams + beam for beam in parents]
                next_tokens += [beam[-1] for beam in text.running]
        active = [index for index in active if not texts[index].done]
        if not active:
            break
        if parent_rows != list(range(len(logits))):
            state.select(torch.tensor(parent_rows, device=logits.device))
        logits = decoder.step(torch.tensor(next_tokens, device=logits.device), state)
    sequences: list[list[int]] = []
    for text in texts:
        for number in range(settings.num_return_sequences):
            # A prompt with fewer hypotheses gets empty ones.
            tokens: list[int] = []
            if number < len(text.finished):
                _, tokens = text.finished[number]
            sequences.append(tokens)
    return sequences


def _candidates(
    summed: Tensor,
    vocabulary: int,
    prompts: Sequence[int],
    count: int,
    sampler: BeamSampler | None,
) -> list[list[Candidate]]:
    """Return candidates of each prompt, the most likely first, or in the order of their draw.

    Args:
        summed: log-probabilities of full sequences, (prompts, beams * vocabulary).
        vocabulary: number of tokens of the model.
        prompts: the numbers of the prompts.
        count: number of candidates of a prompt.
        sampler: draws the candidates; ``None`` for the most likely ones.
    """
    count = min(count, summed.shape[-1])
    if sampler is None:
        indices = summed.topk(count).indices
    else:
        indices = sampler.draw(summed, prompts, count)
    scores = summed.gather(1, indices)
    candidates = []
    for prompt_scores, prompt_indices in zip(scores.tolist(), indices.tolist(), strict=True):
        prompt_candidates = []
        for score, index in zip(prompt_scores, prompt_indices, strict=True):
            prompt_candidates.append((score, index // vocabulary, index % vocabulary))
        candidates.append(prompt_candidates)
    return candidates


def _float32(value: float) -> float:
    """Round to float32: transformers compares scores in it, so that ties are the same."""
    return float(torch.tensor(value, dtype=torch.float32))
