"""Labels of tokens, or of the spans and words that they form."""

import re
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import softmax
from zoo.inference.processing.windows import join_windows
from zoo.inference.task import EncodedExample
from zoo.inference.windowed import WindowedTask
from zoo.overrides import override
from zoo.tasks.token_classification.data import words_of_tokens
from zoo.tasks.token_classification.entities import (
    AGGREGATES,
    Aggregate,
    Labelled,
    TokenProbs,
    entities,
    labelled_spans,
)
from zoo.tasks.token_classification.viterbi import marginals, viterbi

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import Encoded


class ClassifyTokens(WindowedTask):
    """Classification of the tokens of single texts.

    Results have the key ``tokens``, each with ``token``, ``start`` and ``end`` (characters),
    ``label`` and ``score``, without special tokens; or, with ``aggregate``, ``entities``: spans
    with ``label``, ``score``, ``text``, ``start`` and ``end``, without those labelled ``O``.

    A model with a CRF labels the words of a text, which white space separates, together: all
    tokens of a word have its label, and as score its probability over all labellings. In a text
    that is read in windows, the logits of a token are from the window in which it has most
    context, see ``join_windows``.
    """

    name: ClassVar[str] = "classify"
    output_keys: ClassVar[tuple[str, ...]] = ("tokens", "entities")
    pairs: ClassVar[bool] = True

    def __init__(self, *args: Any, aggregate: Aggregate = "none", **options: Any) -> None:
        super().__init__(*args, **options)
        if aggregate not in AGGREGATES:
            raise UsageError(
                f"tokens cannot be aggregated by {aggregate!r}", f"choose {', '.join(AGGREGATES)}"
            )
        self.aggregate = aggregate

    @property
    @override
    def is_thread_safe(self) -> bool:
        return True

    @override
    def check(self, item: EncodedExample) -> None:
        super().check(item)
        self.require_tokens(item)
        if item.record.pair is not None:
            raise UsageError(
                f"{item.record.location} has a text_pair; token classification takes single texts"
            )

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        return [{"logits": row} for row in self.output("logits", items, batch)]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        if self.windows is None:
            return self._tokens(item, rows[0]["logits"])
        parts = list(self.windows.split(item.encoded))
        return self._tokens(
            item, join_windows(item.encoded, parts, [row["logits"] for row in rows])
        )

    def _tokens(self, item: EncodedExample, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        if self.checkpoint.model.transitions is not None:
            return self._words(item, logits)
        encoded = item.encoded
        probabilities = softmax(logits)
        if self.aggregate != "none":
            labels = self.checkpoint.config.labels
            text = item.record.text
            # If tokens within words have a prefix, a token continues a word if it is longer than
            # its text; otherwise if no space precedes or begins it. Unknown tokens are words.
            prefix = self.tokenizer.subword_prefix
            unknown_id = self.tokenizer.role_id("unk")
            token_probs = []
            for k, (start, end) in enumerate(encoded.offsets):
                if encoded.special[k]:
                    continue
                if prefix:
                    continues = len(self.tokenizer.token(encoded.ids[k])) != end - start
                else:
                    continues = start > 0 and " " not in text[start - 1 : start + 1]
                continues = continues and encoded.ids[k] != unknown_id
                token_probs.append(TokenProbs(probabilities[k], start, end, continues))
            return {"entities": entities(token_probs, labels, text, self.aggregate)}
        labels = self.checkpoint.config.labels
        tokens = []
        for k, row in enumerate(probabilities[: len(encoded.ids)]):
            if not encoded.special[k]:
                label = labels[int(row.argmax())]
                tokens.append(self._token(encoded, k, label, float(row.max())))
        return {"tokens": tokens}

    def _token(self, encoded: "Encoded", index: int, label: str, score: float) -> dict[str, Any]:
        start, end = encoded.offsets[index]
        token = encoded.tokens[index]
        return {"token": token, "start": start, "end": end, "label": label, "score": score}

    def word_starts(self, item: EncodedExample) -> list[int]:
        """Return the position of each word of a text that a CRF labels, in characters."""
        return [match.start() for match in re.finditer(r"\S+", item.record.text)]

    def _words(self, item: EncodedExample, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        """Return the tokens or spans of a text by the most probable labelling of its words."""
        import numpy as np

        encoded = item.encoded
        text = item.record.text
        starts = self.word_starts(item)
        words = dict[int, list[int]]()
        for token, word in words_of_tokens(text, starts, encoded.offsets, encoded.special):
            words.setdefault(word, []).append(token)
        if not words:
            return {"tokens": []} if self.aggregate == "none" else {"entities": []}
        transitions = np.array(self.checkpoint.model.transitions)
        emissions = logits[[tokens[0] for tokens in words.values()]].astype(np.float64)
        best = viterbi(emissions, transitions)
        scores = marginals(emissions, transitions)
        labelled_words = []
        for number, (label, tokens) in enumerate(zip(best, words.values(), strict=True)):
            start, _ = encoded.offsets[tokens[0]]
            _, end = encoded.offsets[tokens[-1]]
            name = self.checkpoint.config.labels[label]
            labelled_words.append(Labelled(name, float(scores[number, label]), start, end))
        if self.aggregate != "none":
            return {"entities": labelled_spans(labelled_words, text, self.checkpoint.config.labels)}
        results = []
        for tokens, labelled_word in zip(words.values(), labelled_words, strict=True):
            for token in tokens:
                result = self._token(encoded, token, labelled_word.label, labelled_word.score)
                results.append(result)
        return {"tokens": results}
