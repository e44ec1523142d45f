"""Masked language modelling (Devlin et al. 2018, arXiv:1810.04805, section 3.1).

15 % of a row's tokens are chosen. Of these, 80 % become the mask, 10 % another token, and 10 %
stay as they are; the model must tell what stood there. As Liu et al. 2019 (arXiv:1907.11692,
section 4.1) do, the choice is drawn anew each time a row is used. The number that is chosen is
rounded, as in the code released with the former, so that batches of one size cost the same.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.objectives.base import Objective, Options, Outcome, Row, Rows, token_loss
from zoo.objectives.choosing import Choice, Chosen, choose
from zoo.objectives.packing import Packed, Stretches
from zoo.objectives.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split

MASKED = "masked-lm"  # the loss term


class MaskedOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be chosen about masking.

    Attributes:
        choose: what is chosen: single ``tokens``, whole ``words``, up to three words in a row
            (``ngrams``), or ``spans`` of up to ten that are masked, replaced or kept together;
            see ``zoo.objectives.choosing``.
        rate: the share of tokens that is chosen.
        mask: of those, the share that becomes the mask.
        random: of those, the share that becomes any token; the rest stays as it is.
    """

    choose: Choice = "tokens"
    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        """Refuse shares that are none.

        Raises:
            ValueError: a share is outside of its range.
        """
        self.check_share("rate")
        if min(self.mask, self.random) < 0 or self.mask + self.random > 1:
            raise ValueError(f"mask {self.mask} and random {self.random} are no shares of a whole")


def hide(
    ids: Ids,
    chosen: Chosen,
    vocabulary: Vocabulary,
    options: MaskedOptions,
    rng: np.random.Generator,
) -> Ids:
    """Return a row in which chosen tokens are masked, replaced or kept; one draw for each fate."""
    hidden, (places, fates) = ids.copy(), chosen
    draws = rng.random(int(fates[-1]) + 1)[fates] if len(fates) else np.zeros(0)
    others = vocabulary.ordinary[rng.integers(len(vocabulary.ordinary), size=len(places))]
    masked = draws < options.mask
    replaced = ~masked & (draws < options.mask + options.random)
    hidden[places[masked]] = vocabulary.role("mask")
    hidden[places[replaced]] = others[replaced]
    return hidden


class MaskedRows(Rows):
    """Rows of single texts with some tokens hidden."""

    def __init__(self, objective: "MaskedLanguageModelling", split: "Split", seed: int) -> None:
        self.objective = objective
        self.texts = Stretches(split, objective.vocabulary, objective.length, seed)

    def __len__(self) -> int:
        """See ``Rows``."""
        return len(self.texts)

    def row(self, index: int, rng: np.random.Generator) -> Row:
        """See ``Rows``."""
        return self.objective.masked(self.texts.packed(index), rng)


class MaskedLanguageModelling(Objective):
    """Tell which tokens were hidden."""

    name: ClassVar[str] = MASKED
    head: ClassVar[str] = "masked-lm"
    options_type: ClassVar[type[Options]] = MaskedOptions

    def rows(self, split: "Split", seed: int) -> Rows:
        """See ``Objective``.

        Raises:
            UsageError: the tokenizer has no mask, or a row has no place for text.
        """
        self.vocabulary.role("mask")
        return MaskedRows(self, split, seed)

    def masked(self, packed: Packed, rng: np.random.Generator) -> Row:
        """Hide tokens of a row."""
        return self.hidden(packed, self.chosen(packed, rng), rng)

    def chosen(self, packed: Packed, rng: np.random.Generator) -> Chosen:
        """Choose the tokens of a row that are to be hidden."""
        budget = max(1, round(self.options.rate * int(packed.own.sum())))
        return choose(self.options.choose, packed, budget, rng, self.vocabulary.starts_word)

    def hidden(self, packed: Packed, chosen: Chosen, rng: np.random.Generator) -> Row:
        """Hide what was chosen."""
        planes, places = packed.planes(types=self.has_types), chosen.places
        planes["input_ids"] = hide(packed.input_ids, chosen, self.vocabulary, self.options, rng)
        return Row(
            planes,
            values={"labels": packed.input_ids[places]},
            places={"places": ("input_ids", places)},
            counts={MASKED: len(places)},
        )

    @property
    def has_types(self) -> bool:
        """Whether the model tells segments apart."""
        return getattr(self.config, "type_vocab_size", 0) > 1

    def loss(self, model: "nn.Module", tensors: "Mapping[str, Tensor]") -> Outcome:
        """See ``Objective``."""
        hidden = model.encode(**inputs(tensors))  # type: ignore[operator]
        return masked_loss(model, hidden, tensors)


INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")


def inputs(tensors: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return what an encoder takes of a batch."""
    return {name: tensors[name] for name in INPUTS if name in tensors}


def masked_loss(model: Any, hidden: "Tensor", tensors: "Mapping[str, Tensor]") -> Outcome:
    """Score the hidden tokens, and those alone.

    Args:
        model: with ``scores``.
        hidden: (batch, tokens, width).
        tensors: with ``places`` and ``labels``, (n,) each.
    """
    return token_loss(model, hidden, tensors, MASKED)
