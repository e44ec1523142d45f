"""Beam search: several continuations of each text side by side, the likeliest kept at each step.

Graves 2012, arXiv:1211.3711, section 4 (the search); Wu et al. 2016, arXiv:1609.08144, section 7
(why lengths are weighed). What is kept, when a text is done and what a continuation is worth at
last are as in the reference library, so that both find the same texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import Decoder, require_finite

NONE = -1e9  # the score of what is not there, and below all that is
Candidate: TypeAlias = tuple[float, int, int]  # log-probability, the beam it continues, a token


@dataclass
class _BeamHypotheses:
    """The search for one text.

    Attributes:
        running: tokens of the beams that are continued, the likeliest first.
        scores: their log-probabilities.
        finished: complete continuations with their final scores, the best first.
        done: whether no better one will be found.
    """

    running: list[list[int]]
    scores: list[float]
    finished: list[tuple[float, list[int]]] = field(default_factory=list)
    done: bool = False

    def take(
        self, found: list[Candidate], settings: GenerationConfig, eos_token_ids: Sequence[int]
    ) -> list[int]:
        """Choose among continuations by one token.

        Args:
            found: twice as many as there are beams or more, the likeliest first.
            settings: the search's.
            eos_token_ids: the tokens that end a text.

        Returns:
            for each beam that is continued, the beam it was.
        """
        length = len(self.running[0]) + 1
        last = length == settings.max_new_tokens
        over = [last or token in eos_token_ids for _, _, token in found]
        # what is over is worth keeping only among the best; those behind it are a reserve
        self._finish(
            [c for c, ended in zip(found[: settings.num_beams], over, strict=False) if ended],
            length**settings.length_penalty,
            settings,
        )
        going = [c for c, ended in zip(found, over, strict=True) if not ended][: settings.num_beams]
        if going:
            self.running = [[*self.running[beam], token] for _, beam, token in going]
            self.scores = [score for score, _, _ in going]
        self.done = not going or self._settled(length, settings)
        return [beam for _, beam, _ in going]

    def _finish(self, ended: list[Candidate], weight: float, settings: GenerationConfig) -> None:
        more = [(_float32(s / weight), [*self.running[beam], token]) for s, beam, token in ended]
        merged = sorted([*self.finished, *more], key=lambda item: -item[0])  # stable
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
    """Return the best continuation of each text.

    Args:
        decoder: the model.
        inputs: see ``Decoder.prefill``.
        settings: with beams.
        eos_token_ids: the tokens that end a text.

    Returns:
        the new tokens of each text, one of ``ends`` included where it came to one.
    """
    beams, count = settings.num_beams, len(inputs["input_ids"])
    texts = [_BeamHypotheses([[]] * beams, [0.0] + [NONE] * (beams - 1)) for _ in range(count)]
    logits, state = decoder.prefill(inputs, settings.max_new_tokens)
    # every beam starts from the same prompt, and all but one are nothing yet
    rows = torch.arange(count, device=logits.device).repeat_interleave(beams)
    state.select(rows)
    logits, active = logits[rows], list(texts)
    for step in range(settings.max_new_tokens):
        barred = eos_token_ids if step < settings.min_new_tokens else ()
        kept: list[int] = []
        for place, found in enumerate(
            _candidates(logits, active, beams, len(eos_token_ids), barred)
        ):
            came_from = active[place].take(found, settings, eos_token_ids)
            kept += [] if active[place].done else [place * beams + beam for beam in came_from]
        active = [text for text in active if not text.done]
        if not active:
            break
        if kept != list(range(len(logits))):
            state.select(torch.tensor(kept, device=logits.device))
        tokens = [beam[-1] for text in active for beam in text.running]
        logits = decoder.step(torch.tensor(tokens, device=logits.device), state)
    return [text.finished[0][1] for text in texts]


def _candidates(
    logits: Tensor,
    texts: Sequence[_BeamHypotheses],
    num_beams: int,
    eos_token_ids: int,
    barred: Sequence[int],
) -> list[list[Candidate]]:
    """Return each text's likeliest continuations by one token.

    So many that, if every beam's best tokens all end the text, enough are left to go on with.
    """
    chances = require_finite(logits).float().log_softmax(-1)
    if barred:
        chances = chances.index_fill(-1, torch.tensor(barred, device=logits.device), float("-inf"))
    scores = torch.tensor([score for text in texts for score in text.scores], device=logits.device)
    vocabulary = chances.shape[-1]
    summed = (chances + scores[:, None]).view(len(texts), num_beams * vocabulary)
    best, where = summed.topk(min(max(2, 1 + eos_token_ids) * num_beams, summed.shape[-1]))
    pairs = zip(best.tolist(), where.tolist(), strict=True)
    return [
        [(s, k // vocabulary, k % vocabulary) for s, k in zip(*pair, strict=True)] for pair in pairs
    ]


def _float32(value: float) -> float:
    """Round to float32, which ties are decided in."""
    return float(torch.tensor(value, dtype=torch.float32))
