"""Beam search.

Graves 2012, arXiv:1211.3711, section 4 (the search); Wu et al. 2016, arXiv:1609.08144, section 7
(the length penalty). The choice of hypotheses, the stopping criterion and the final scores are
those of transformers, so that both find the same sequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import Decoder, require_finite

NONE = -1e9  # score of an empty beam, below all real scores
Candidate: TypeAlias = tuple[float, int, int]  # log-probability, index of the beam, token


@dataclass
class _BeamHypotheses:
    """Hypotheses for one prompt.

    Attributes:
        running: tokens of the unfinished beams, the most likely first.
        scores: their log-probabilities.
        finished: finished hypotheses with their final scores, the best first.
        done: whether the search has ended.
    """

    running: list[list[int]]
    scores: list[float]
    finished: list[tuple[float, list[int]]] = field(default_factory=list)
    done: bool = False

    def take(
        self, candidates: list[Candidate], settings: GenerationConfig, eos_token_ids: Sequence[int]
    ) -> list[int]:
        """Choose the next beams among candidates.

        Args:
            candidates: at least twice as many as there are beams, the most likely first.
            settings: settings of the search.
            eos_token_ids: end-of-sequence tokens.

        Returns:
            for each new beam, the index of the beam it continues.
        """
        length = len(self.running[0]) + 1
        last = length == settings.max_new_tokens
        ended = [last or token in eos_token_ids for _, _, token in candidates]
        # only the first num_beams candidates may finish; the others replace finished ones
        self._finish(
            [c for c, end in zip(candidates[: settings.num_beams], ended, strict=False) if end],
            length**settings.length_penalty,
            settings,
        )
        going = [c for c, end in zip(candidates, ended, strict=True) if not end]
        going = going[: settings.num_beams]
        if going:
            self.running = [[*self.running[beam], token] for _, beam, token in going]
            self.scores = [score for score, _, _ in going]
        self.done = not going or self._settled(length, settings)
        return [beam for _, beam, _ in going]

    def _finish(self, ended: list[Candidate], weight: float, settings: GenerationConfig) -> None:
        new = [(_float32(s / weight), [*self.running[beam], token]) for s, beam, token in ended]
        merged = sorted([*self.finished, *new], key=lambda item: -item[0])  # stable
        self.finished = merged[: settings.num_beams]

    def _settled(self, length: int, settings: GenerationConfig) -> bool:
        if len(self.finished) < settings.num_beams:
            return False
        if settings.early_stopping is True:
            return True
        longest = settings.early_stopping == "never" and settings.length_penalty > 0
        reached = settings.max_new_tokens if longest else length
        best = _float32(self.scores[0] / reached**settings.length_penalty)
        return best <= self.finished[-1][0]


def beam_search(
    decoder: Decoder,
    inputs: Mapping[str, Tensor],
    settings: GenerationConfig,
    eos_token_ids: Sequence[int],
) -> list[list[int]]:
    """Return the best continuation of each prompt.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: settings of the search.
        eos_token_ids: end-of-sequence tokens.

    Returns:
        new tokens of each prompt, with the end-of-sequence token if it was generated.
    """
    beams, count = settings.num_beams, len(inputs["input_ids"])
    texts = [_BeamHypotheses([[]] * beams, [0.0] + [NONE] * (beams - 1)) for _ in range(count)]
    logits, state = decoder.prefill(inputs, settings.max_new_tokens)
    # all beams start from the same prompt; all but the first have the score NONE
    rows = torch.arange(count, device=logits.device).repeat_interleave(beams)
    state.select(rows)
    logits, active = logits[rows], list(texts)
    for step in range(settings.max_new_tokens):
        barred = eos_token_ids if step < settings.min_new_tokens else ()
        rows_kept: list[int] = []
        for index, candidates in enumerate(
            _candidates(logits, active, beams, len(eos_token_ids), barred)
        ):
            parents = active[index].take(candidates, settings, eos_token_ids)
            rows_kept += [] if active[index].done else [index * beams + beam for beam in parents]
        active = [text for text in active if not text.done]
        if not active:
            break
        if rows_kept != list(range(len(logits))):
            state.select(torch.tensor(rows_kept, device=logits.device))
        tokens = [beam[-1] for text in active for beam in text.running]
        logits = decoder.step(torch.tensor(tokens, device=logits.device), state)
    return [text.finished[0][1] for text in texts]


def _candidates(
    logits: Tensor,
    texts: Sequence[_BeamHypotheses],
    num_beams: int,
    num_eos_tokens: int,
    barred: Sequence[int],
) -> list[list[Candidate]]:
    """Return the most likely candidates of each prompt, the most likely first.

    There are enough for ``num_beams`` unfinished beams even if all end-of-sequence tokens are among
    them.
    """
    log_probs = require_finite(logits).float().log_softmax(-1)
    if barred:
        log_probs = log_probs.index_fill(
            -1, torch.tensor(barred, device=logits.device), float("-inf")
        )
    scores = torch.tensor([score for text in texts for score in text.scores], device=logits.device)
    vocabulary = log_probs.shape[-1]
    summed = (log_probs + scores[:, None]).view(len(texts), num_beams * vocabulary)
    best, indices = summed.topk(min(max(2, 1 + num_eos_tokens) * num_beams, summed.shape[-1]))
    pairs = zip(best.tolist(), indices.tolist(), strict=True)
    return [
        [(s, k // vocabulary, k % vocabulary) for s, k in zip(*pair, strict=True)] for pair in pairs
    ]


def _float32(value: float) -> float:
    """Round to float32: transformers compares scores in it, so that ties are the same."""
    return float(torch.tensor(value, dtype=torch.float32))
