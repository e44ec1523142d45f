"""Scores of pairs by a causal language model: the logits of two tokens after the pair."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.scoring import BATCH_TOKENS, LOGITS_PER_BATCH
from zoo.inference.task import EncodedExample
from zoo.inference.text_scores import TextScores
from zoo.overrides import override
from zoo.sentence_models.cross_encoder_files import LogitScore
from zoo.sentence_models.numpy_modules import activate
from zoo.sentence_models.pair_templates import PairTemplate, plain_ids
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers.tokenizer import Text


def logit_score(checkpoint: "Checkpoint") -> LogitScore | None:
    """Return how a causal language model scores pairs; ``None`` for other models."""
    pairs = checkpoint.model.pairs
    return None if pairs is None else pairs.logit_score


class EncodedPair(Encoded):
    """Tokens of the text that a template makes of a pair.

    Args:
        ids: the tokens.
        truncated: number of tokens that were cut.
    """

    def __init__(self, ids: list[int], truncated: int) -> None:
        self.ids = ids
        self.truncated = truncated


class LogitScores(TextScores):
    """The score of each pair, by the logits after its last token; see ``LogitScore``."""

    output_keys = ("score",)
    offers_windows = False

    @classmethod
    @override
    def require_head(cls, checkpoint: "Checkpoint") -> None:
        if logit_score(checkpoint) is None:
            super().require_head(checkpoint)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.windows is not None:
            raise UsageError(
                f"{self.checkpoint.name} generates text, and does not score texts in windows",
                "leave --doc-stride out",
            )
        score = logit_score(self.checkpoint)
        if score is None:
            raise UsageError(f"{self.checkpoint.name} does not score pairs by logits")
        self.score = score
        # Logits of all tokens are computed, which are many times as large as the tokens.
        fewest, most = BATCH_TOKENS
        vocab_size: int = getattr(self.checkpoint.config, "vocab_size", 1)
        limit = max(fewest, min(most, LOGITS_PER_BATCH // vocab_size))
        self.max_batch_tokens = min(self.max_batch_tokens, limit)
        self.template: PairTemplate | None = None
        if score.message_format is not None:
            info = self.tokenizer.info
            source = info.extra_config.get("chat_template")
            self.template = PairTemplate(source, score, info.special, self.checkpoint.name)
            self.ending = self.template.ending(self.tokenizer, self.prompt)

    @property
    @override
    def ignores_padding(self) -> bool:
        return False  # The logits of each token are many.

    @override
    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        if self.template is None:
            return super().encode(texts)
        pairs: list[Encoded] = []
        for text in texts:
            # A single text is refused when it is checked.
            query, document = (text, "") if isinstance(text, str) else text
            pairs.append(self._encode_pair(self.template.render(query, document, self.prompt)))
        return pairs

    def _encode_pair(self, text: str) -> EncodedPair:
        """Return the tokens of a text; one that is cut has the end of the template as its end."""
        ids = plain_ids(self.tokenizer, text)
        limit = self.max_tokens
        if limit is None or len(ids) <= limit:
            return EncodedPair(ids, 0)
        truncated = len(ids) - limit
        if self.tokenizer.info.truncation_side == "left":
            ids = ids[truncated:]
        else:
            ids = ids[:limit]
        ending = self.ending[-limit:]
        return EncodedPair([*ids[: limit - len(ending)], *ending], truncated)

    @override
    def check(self, item: EncodedExample) -> None:
        super().check(item)
        if item.record.pair is None:
            raise UsageError(
                f"{item.record.location} is one text, and the model compares two",
                "give `zoo run rerank` a query and texts",
            )

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        logits = self.output("logits", items, batch)
        rows = []
        for row, item in zip(logits, items, strict=True):
            last = row[len(item.encoded.ids) - 1]
            value = last[self.score.true_token_id]
            if self.score.false_token_id is not None:
                value = value - last[self.score.false_token_id]
            rows.append({"logits": value.reshape(1)})
        return rows

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        score = activate(logits.astype("f8"), self.score.activation)
        return {"score": float(score[0])}


class PairLogits(LogitScores):
    """The logit of each pair, before the activation, which would make high scores equal."""

    @override
    def result(self, logits: "NDArray[np.floating[Any]]") -> dict[str, Any]:
        return {"score": float(logits[0])}
