"""Gap sentences generation (arXiv:1912.08777, section 3.1).

The sentences of a text that are most like the rest of it are replaced by a mask each, and are the
target, in the order of the text. How alike they are is the F1 of ROUGE-1 between the sentence and
all others, each sentence by itself and with repeated tokens counted: ``Ind-Orig`` in the paper.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from zoo.errors import UsageError
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import SentenceObjective
from zoo.overrides import override


class GapSentencesOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the objective."""

    gap_sentences_ratio: float = 0.3  # fraction of the sentences that are masked; at least one is

    def __post_init__(self) -> None:
        self.check_fraction("gap_sentences_ratio")


class GapSentences(SentenceObjective):
    """Predicts the sentences that are most like the rest of a text, from that rest."""

    name: ClassVar[str] = "gap-sentences"
    options_type: ClassVar[type[Options]] = GapSentencesOptions

    @cached_property
    def mask(self) -> Ids:
        """The token that replaces a sentence, (1,)."""
        number = self.vocabulary.tokenizer.token_to_id("<mask_1>")
        if number is None:
            raise UsageError(
                "the tokenizer has no token <mask_1>, which gap-sentences needs",
                "choose another tokenizer, or train one with `--tokenizer train`",
            )
        return np.array([number], dtype=np.int64)

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int]:
        # A mask is no longer than its sentence.
        return tokens, tokens

    @override
    def source_and_target(
        self, sentences: Sequence[Ids], rng: np.random.Generator
    ) -> tuple[Ids, Ids]:
        """Return the text with masks, and the sentences that they replace."""
        count = max(1, int(len(sentences) * self.options.gap_sentences_ratio))
        scores = similarities([sentence.tolist() for sentence in sentences])
        ranking = np.argsort([-score for score in scores], kind="stable")
        gaps = set(ranking[:count].tolist())
        source = [self.mask if n in gaps else text for n, text in enumerate(sentences)]
        return np.concatenate(source), np.concatenate([sentences[n] for n in sorted(gaps)])


def similarities(sentences: Sequence[Sequence[int]]) -> list[float]:
    """Return the F1 of ROUGE-1 of each sentence and all others together."""
    counts = [Counter(sentence) for sentence in sentences]
    all_tokens = sum(counts, Counter[int]())
    scores = []
    for count in counts:
        other_sentences = all_tokens - count
        common = (count & other_sentences).total()
        tokens = count.total() + other_sentences.total()
        scores.append(2 * common / tokens)
    return scores
