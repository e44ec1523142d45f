"""Log-likelihoods of texts, by any session of a model that predicts tokens."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.errors import NonFiniteError, UsageError
from zoo.families.onnx import LOGITS
from zoo.inference.processing.batching import batched, plan_batches
from zoo.inference.task_checks import token_limits
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Head
    from zoo.inference import Session
    from zoo.tokenizers import Encoded, TextTokenizer

    Floats = NDArray[np.float64]

LOGITS_PER_BATCH = 1 << 24  # 64 MB in float32
BATCH_TOKENS = (512, 8192)  # fewest and most tokens of a batch
ROWS_AT_ONCE = 4096  # rows that are sorted by length and batched together


@dataclass(frozen=True)
class ScoredRow:
    """A row of the model's input."""

    ids: "NDArray[np.int64]"  # token ids, (tokens,)
    type_ids: Sequence[int]  # token types, (tokens,); empty for zeros
    positions: "NDArray[np.int64]"  # positions of the logits that are read, (n,)
    labels: "NDArray[np.int64]"  # tokens that these logits predict, (n,)
    text: int  # index of the text that the row belongs to
    source: Sequence[int] = ()  # token ids of the encoder, of an encoder-decoder


@dataclass(slots=True)
class TextScore:
    """Score of a text."""

    log_prob: float = 0.0  # sum of the log-probabilities of its tokens, in nats
    tokens: int = 0
    correct: int = 0  # number of these that the model finds most likely
    # log-probability and id of the least likely tokens, in ascending order, if they are kept
    least_likely: list[tuple[float, int]] = field(default_factory=list)

    def add(
        self,
        labels: "NDArray[np.int64]",
        log_probs: "Floats",
        correct: "NDArray[np.bool_]",
        keep: int,
    ) -> None:
        """Add the tokens of a row, (n,) each, and keep the ``keep`` least likely ones."""
        self.log_prob += float(log_probs.sum())
        self.tokens += len(log_probs)
        self.correct += int(correct.sum())
        if keep:
            lowest = log_probs.argsort(kind="stable")[:keep]
            tokens = zip(log_probs[lowest].tolist(), labels[lowest].tolist(), strict=True)
            # Sorting is stable, so that the first of equally likely tokens are kept.
            ascending = sorted([*self.least_likely, *tokens], key=lambda token: token[0])
            self.least_likely = ascending[:keep]


class Scorer(ABC):
    """Scores texts with a model.

    A text becomes one row, or for masked language models one row for each of its tokens; rows of
    similar length form batches. Each row names the positions whose logits are read, and their
    labels.
    """

    batch_size: int | None = None  # maximum number of rows per batch
    added_tokens: int = 0  # number of tokens that a row has in addition to its text

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer | None" = None,
    ) -> None:
        from zoo.checkpoint import load_text_tokenizer

        self.checkpoint = checkpoint
        self.session = session
        self.tokenizer = tokenizer or load_text_tokenizer(checkpoint)
        self.max_tokens = min(token_limits(checkpoint), default=None)
        vocab_size = getattr(checkpoint.config, "vocab_size", 1)
        fewest, most = BATCH_TOKENS
        self.max_batch_tokens = max(fewest, min(most, LOGITS_PER_BATCH // vocab_size))

    @abstractmethod
    def rows(self, encoded: "Encoded", text: int) -> Iterator[ScoredRow]:
        """Yield the rows of a text."""

    def log_probs(
        self, logits: "NDArray[Any]", labels: "NDArray[np.int64]"
    ) -> "tuple[Floats, NDArray[np.bool_]]":
        """Return the log-probability of each label, and whether it is the most likely token.

        If several tokens are equally likely, the first one is the most likely, as in greedy search.

        Args:
            logits: (n, vocabulary).
            labels: (n,).
        """
        import numpy as np

        shifted = logits.astype(np.float64)
        shifted -= shifted.max(axis=-1, keepdims=True)
        label_logits = np.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
        log_probs = label_logits - np.log(np.exp(shifted).sum(axis=-1))
        return log_probs, shifted.argmax(axis=-1) == labels

    def score(self, texts: "Sequence[Encoded]") -> list[TextScore]:
        """Return the score of each text."""
        scores = [TextScore() for _ in texts]
        for text, score in self.stream(texts):
            scores[text] = score
        return scores

    def stream(self, texts: "Iterable[Encoded]") -> Iterator[tuple[int, TextScore]]:
        """Yield the index and the score of each text that has tokens to score, in order."""

        def rows() -> Iterator[ScoredRow]:
            for number, text in enumerate(texts):
                yield from self.rows(text, number)

        return self.stream_scores(rows())

    def stream_scores(
        self, rows: Iterable[ScoredRow], *, keep: int = 0
    ) -> Iterator[tuple[int, TextScore]]:
        """Yield the index and the score of each text that has rows, in order."""
        for text, scored in itertools.groupby(self.run(rows), lambda scored: scored[0].text):
            score = TextScore()
            for row, values, correct in scored:
                score.add(row.labels, values, correct, keep)
            yield text, score

    def run(
        self, rows: Iterable[ScoredRow], *, on_batch: Callable[[int], None] | None = None
    ) -> "Iterator[tuple[ScoredRow, Floats, NDArray[np.bool_]]]":
        """Yield each row with the results of ``log_probs`` at its positions, in order.

        ``on_batch`` is called after each batch with the number of rows that are computed. A row is
        yielded with those of similar length, some batches later.
        """
        rows_done = 0
        for chunk in batched(rows, ROWS_AT_ONCE):
            results = {}
            costs = [self.cost(row) for row in chunk]
            for indices in plan_batches(costs, self.max_batch_tokens, batch_size=self.batch_size):
                inputs = self.inputs([chunk[k] for k in indices])
                session_inputs = {}
                for name in self.session.inputs:
                    if name in inputs:
                        session_inputs[name] = inputs[name]
                outputs = self.session.run(session_inputs, (LOGITS,))[LOGITS]
                for k, logits in zip(indices, outputs, strict=True):
                    results[k] = self.log_probs(logits[chunk[k].positions], chunk[k].labels)
                rows_done += len(indices)
                if on_batch is not None:
                    on_batch(rows_done)
            for k, row in enumerate(chunk):
                values, correct = results.pop(k)
                if not abs(values.sum()) < float("inf"):
                    raise NonFiniteError(
                        f"{self.checkpoint.name}: the score of text {row.text + 1} is not finite"
                    )
                yield row, values, correct

    def inputs(self, rows: Sequence[ScoredRow]) -> "dict[str, NDArray[np.int64]]":
        """Return the inputs of a session for a batch of rows."""
        import numpy as np

        ids, mask = pad_rows([row.ids for row in rows], self.tokenizer.pad_id)
        types = np.zeros_like(ids)
        for values, row in zip(types, rows, strict=True):
            values[: len(row.type_ids)] = row.type_ids
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def cost(self, row: ScoredRow) -> int:
        """Return the number of tokens that a row adds to a batch."""
        return len(row.ids)


def pad_rows(
    rows: "Sequence[Sequence[int] | NDArray[np.int64]]", fill: int
) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Pad rows on the right; return the array, (rows, tokens), and its attention mask."""
    import numpy as np

    shape = (len(rows), max(map(len, rows)))
    ids = np.full(shape, fill, np.int64)
    mask = np.zeros(shape, np.int64)
    for values, flags, row in zip(ids, mask, rows, strict=True):
        values[: len(row)] = row
        flags[: len(row)] = 1
    return ids, mask


class CausalScorer(Scorer):
    """Log-likelihood: each token is predicted from the previous ones.

    The first token is predicted from the token that begins documents in training, which is put
    before a text whose template has none.
    """

    added_tokens: int = 1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        start = self.tokenizer.role_id("bos")
        if start is None:
            start = self.tokenizer.role_id("eos")
        if start is None:
            raise UsageError(
                f"the tokenizer of {self.checkpoint.name} has no token that begins a text",
                "convert the model with the tokenizer that it was published with",
            )
        self.start_id = start

    @override
    def rows(self, encoded: "Encoded", text: int) -> Iterator[ScoredRow]:
        import numpy as np

        ids = np.array(encoded.ids, np.int64)
        if not len(ids) or ids[0] != self.start_id:
            ids = np.concatenate([[self.start_id], ids])
        yield ScoredRow(ids, (), np.arange(len(ids) - 1), ids[1:], text)


class MaskedScorer(Scorer):
    """Pseudo-log-likelihood: each token is masked, and predicted from all others.

    See Salazar et al. 2020 (arXiv:1910.14659, section 2). Special tokens are not scored.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.tokenizer.mask_id is None:
            raise UsageError(f"the tokenizer of {self.checkpoint.name} has no mask token")
        self.mask_id = self.tokenizer.mask_id

    @override
    def rows(self, encoded: "Encoded", text: int) -> Iterator[ScoredRow]:
        import numpy as np

        ids = np.array(encoded.ids, np.int64)
        for position in np.flatnonzero(~np.array(encoded.special, bool)):
            masked_ids = ids.copy()
            masked_ids[position] = self.mask_id
            positions = np.array([position])
            yield ScoredRow(masked_ids, encoded.type_ids, positions, ids[positions], text)


class DiscriminatorScorer(Scorer):
    """Sum of the log-probabilities that tokens are original, by a replaced-token detector.

    Every token is seen when it is scored, so the sum is not a likelihood; it ranks texts. Special
    tokens are not scored.
    """

    @override
    def rows(self, encoded: "Encoded", text: int) -> Iterator[ScoredRow]:
        import numpy as np

        ids = np.array(encoded.ids, np.int64)
        positions = np.flatnonzero(~np.array(encoded.special, bool))
        yield ScoredRow(ids, encoded.type_ids, positions, ids[positions], text)

    @override
    def log_probs(
        self, logits: "NDArray[Any]", labels: "NDArray[np.int64]"
    ) -> "tuple[Floats, NDArray[np.bool_]]":
        """Return the log-probability that each token is original, and whether it exceeds 1/2."""
        import numpy as np

        return -np.logaddexp(0.0, logits.astype(np.float64)), logits < 0


# Task of the head, or name of the head -> its scorer. A head that fills masks and generates reads
# both sides of a token, so that filling masks comes first.
SCORERS: dict[str, type[Scorer]] = {
    "fill-mask": MaskedScorer,
    "generate": CausalScorer,
    "replaced-token-detection": DiscriminatorScorer,
}


def make_scorer(
    checkpoint: "Checkpoint", session: "Session", allowed: Sequence[type[Scorer]] = ()
) -> Scorer:
    """Return the scorer of a model."""
    return require_scorer(checkpoint, allowed)(checkpoint, session)


def require_scorer(checkpoint: "Checkpoint", allowed: Sequence[type[Scorer]] = ()) -> type[Scorer]:
    """Return the scorer of the head of a checkpoint, or raise an error; see ``make_scorer``."""
    allowed_scorers = tuple(allowed) or tuple(SCORERS.values())
    scorer = scorer_type(checkpoint.head_name, checkpoint.head)
    if scorer is not None and scorer in allowed_scorers:
        return scorer
    suitable_heads = []
    for name, head in checkpoint.family.heads().items():
        if scorer_type(name, head) in allowed_scorers:
            suitable_heads.append(name)
    hint = f"no head of the family {checkpoint.family.name} can be"
    if suitable_heads:
        hint = f"convert the source with --head {' or '.join(suitable_heads)}"
    raise UsageError(
        f"{checkpoint.name} has the head {checkpoint.head_name}, which cannot be scored here", hint
    )


def scorer_type(name: str, head: "Head") -> type[Scorer] | None:
    """Return the scorer of a head, or ``None`` if it predicts no tokens."""
    for key, scorer in SCORERS.items():
        if key == name or key in head.tasks:
            return scorer
    return None
