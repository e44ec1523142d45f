"""Beam search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import Decoder
from zoo.inference.generation.sampling import BeamSampler, RowId
from zoo.inference.generation.scores import Scores

NONE = -1e9  # score of an empty beam, below all real scores
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
        """Choose the next beams among candidates."""
        length = len(self.running[0]) + 1
        last = length == self.max_new_tokens
        ended = [last or token in eos_token_ids for _, _, token in candidates]
        # only the first num_beams candidates may finish; the others replace finished ones
        weight = length**settings.length_penalty
        new = [
            (_float32(score / weight), [*self.running[beam], token])
            for score, beam, token in [
                c for c, end in zip(candidates[: settings.num_beams], ended, strict=False) if end
            ]
            if score > NONE  # others have an excluded token, or continue an empty beam
        ]
        merged = sorted([*self.finished, *new], key=lambda item: -item[0])  # stable
        self.finished = merged[: settings.num_beams]
        going = [c for c, end in zip(candidates, ended, strict=True) if not end]
        going = sorted(going, key=lambda item: -item[0])[: settings.num_beams]  # stable
        if going:
            self.running = [[*self.running[beam], token] for _, beam, token in going]
            self.scores = [score for score, _, _ in going]
        self.done = not going or self._settled(length, settings)
        return [beam for _, beam, _ in going]

    def _settled(self, length: int, settings: GenerationConfig) -> bool:
        if len(self.finished) < settings.num_beams:
            return False
        if settings.early_stopping is True:
            return True
        longest = settings.early_stopping == "never" and settings.length_penalty > 0
        reached = self.max_new_tokens if longest else length
        best = _float32(self.scores[0] / reached**settings.length_penalty)
        return best <= self.finished[-1][0]


def beam_search(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    scores: Scores,
    eos_token_ids: Sequence[int],
    row_ids: Sequence[RowId],
) -> list[list[int]]:
    """Return the best continuations of each prompt."""
    # Graves 2012, arXiv:1211.3711, section 4 (the search); Wu et al. 2016, arXiv:1609.08144,
    # section 7 (the length penalty). The choice of hypotheses, the stopping criterion and the final
    # scores follow transformers, so that both find the same sequences.
    beams = settings.num_beams
    limits = scores.max_new_tokens
    texts = [_BeamHypotheses([[]] * beams, [0.0] + [NONE] * (beams - 1), n) for n in limits]
    sampler = BeamSampler(settings.seed, row_ids) if settings.samples else None
    count = max(2, 1 + len(eos_token_ids)) * beams  # enough even if all end tokens are among them
    logits, state = decoder.prefill(inputs, max(limits))
    # all beams start from the same prompt; all but the first have the score NONE
    rows = torch.arange(len(texts), device=logits.device).repeat_interleave(beams)
    state.select(rows)
    logits = logits[rows]
    active = list(range(len(texts)))
    for _ in range(max(limits)):
        scores.check(logits)
        log_probs = logits.float().log_softmax(-1)
        if scores.has_rules:
            running = [beam for index in active for beam in texts[index].running]
            prompts = [index for index in active for _ in range(beams)]
            new_tokens = torch.tensor(running, dtype=torch.int64, device=logits.device)
            log_probs = scores.of(log_probs, prompts, new_tokens)
        before = [score for index in active for score in texts[index].scores]
        summed = log_probs + torch.tensor(before, device=logits.device)[:, None]
        choices = _candidates(
            summed.view(len(active), -1), logits.shape[-1], active, count, sampler
        )
        rows_kept: list[int] = []
        for place, (index, candidates) in enumerate(zip(active, choices, strict=True)):
            parents = texts[index].take(candidates, settings, eos_token_ids)
            rows_kept += [] if texts[index].done else [place * beams + beam for beam in parents]
        active = [index for index in active if not texts[index].done]
        if not active:
            break
        if rows_kept != list(range(len(logits))):
            state.select(torch.tensor(rows_kept, device=logits.device))
        tokens = [beam[-1] for index in active for beam in texts[index].running]
        logits = decoder.step(torch.tensor(tokens, device=logits.device), state)
    wanted = range(settings.num_return_sequences)
    return [t.finished[k][1] if k < len(t.finished) else [] for t in texts for k in wanted]


def _candidates(
    summed: Tensor,
    vocabulary: int,
    prompts: Sequence[int],
    count: int,
    sampler: BeamSampler | None,
) -> list[list[Candidate]]:
    """Return candidates of each prompt, the most likely first, or in the order of their draw."""
    # summed: log-probabilities of whole sequences, (prompts, beams * vocabulary)
    count = min(count, summed.shape[-1])
    indices = (
        summed.topk(count).indices if sampler is None else sampler.draw(summed, prompts, count)
    )
    pairs = zip(summed.gather(1, indices).tolist(), indices.tolist(), strict=True)
    return [
        [(s, k // vocabulary, k % vocabulary) for s, k in zip(*pair, strict=True)] for pair in pairs
    ]


def _float32(value: float) -> float:
    """Round to float32: transformers compares scores in it, so that ties are the same."""
    return float(torch.tensor(value, dtype=torch.float32))
