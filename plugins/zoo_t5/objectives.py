"""The objective of T5's paper that is like BERT's (arXiv:1910.10683, section 3.3.1)."""

from typing import ClassVar

import numpy as np

from zoo.objectives.base import Options
from zoo.objectives.denoising import MaskTokens, NoiseOptions
from zoo.objectives.examples.span_noise import Noise
from zoo.objectives.examples.vocabulary import Ids


class BertStyleOptions(NoiseOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be chosen about masks.

    Attributes:
        random: the share of noise that becomes any token instead of the mask.
    """

    random_token_prob: float = 0.1

    def __post_init__(self) -> None:
        """Refuse a share that is none.

        Raises:
            ValueError: it is outside of its range.
        """
        super().__post_init__()
        self.check_fraction("random_token_prob", ends=True)


class BertStyle(MaskTokens):
    """Write the whole text, of which some tokens are masked, and a few are others. Tables 3 to 5,
    BERT-style; 90 and 10 % of the noise.

    Thank you <M> <M> me to your party apple week . -> (original text)
    """

    name: ClassVar[str] = "bert-style"
    options_type: ClassVar[type[Options]] = BertStyleOptions

    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """See ``DenoisingObjective``."""
        masked, target = super().corrupt(text, noise, rng)
        swapped = noise & (rng.random(len(text)) < self.options.random_token_prob)
        others = rng.choice(self.vocabulary.ordinary_ids, size=len(text))
        return np.where(swapped, others, masked), target
