"""The BERT-style denoising objective of T5's paper (arXiv:1910.10683, section 3.3.1)."""

from typing import ClassVar

import numpy as np

from zoo.objectives.denoising import MaskTokens, NoiseOptions
from zoo.objectives.examples.span_noise import Noise
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.options import Options
from zoo.overrides import override


class BertStyleOptions(NoiseOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``BertStyle``."""

    # fraction of the noise tokens that becomes a random token; the rest becomes the mask token
    random_token_prob: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_fraction("random_token_prob", ends=True)


class BertStyle(MaskTokens):
    """Predicts the original text from one with masked and random tokens: tables 3 to 5, BERT-style.

    Of the noise tokens, 90 % are masked and 10 % random.

    Thank you <M> <M> me to your party apple week . -> (original text)
    """

    name: ClassVar[str] = "bert-style"
    options_type: ClassVar[type[Options]] = BertStyleOptions

    @override
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Return source and target, (tokens,) each; see ``DenoisingObjective``."""
        masked, target = super().corrupt(text, noise, rng)
        is_random = noise & (rng.random(len(text)) < self.options.random_token_prob)
        random_tokens = rng.choice(self.vocabulary.ordinary_ids, size=len(text))
        return np.where(is_random, random_tokens, masked), target
