"""What all tasks share: tokenizing, batching, order, truncation, and a guard against NaN.

A task reads its input a window at a time: the texts of a window are tokenized together, sorted
by length, run in batches within a token budget, and returned in the order they came in. So memory
is bounded and an endless input works; results appear when a window is full, or the input ends.
"""

import contextlib
import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.errors import NonFiniteError, UsageError
from zoo.inference.tasks.batching import MAX_BATCH_TOKENS, Batch, collate, plan_batches
from zoo.inference.tasks.checks import max_length, require_finite, require_head
from zoo.inference.tasks.records import TextExample
from zoo.io.limits import MAX_TEXT_CHARACTERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.tokenizers import Encoded, TextTokenizer

    Floats = NDArray[np.floating[Any]]


class TaskWarning(UserWarning):
    """Something about the results that the reader should know, such as texts that were cut."""


# Every run is told of, even where its words are those of the last. A user's own filter wins.
warnings.filterwarnings("always", category=TaskWarning, append=True)


class EncodedExample(NamedTuple):
    """A text on its way through the model.

    Attributes:
        record: as it was read.
        encoded: its tokens.
        row_id: how many texts came before it.
    """

    record: TextExample
    encoded: "Encoded"
    row_id: int = 0


class Task(ABC):
    """A task over a session: records in, one result for each, in the same order.

    Args:
        checkpoint: the model's description.
        session: the model, ready to run.
        tokenizer: by default the checkpoint's.
        max_tokens: cut texts at this many tokens; by default, and at most, at the model's limit.
        max_batch_tokens: padded tokens in a batch.

    Attributes:
        name: what ``zoo run`` calls it; a checkpoint's head must list it.
        output_keys: the keys that results add to a record.
        pairs: whether a record may hold two texts.
        window: how many texts are read ahead.
        max_batch_tokens: padded tokens in a batch.
        max_tokens: where texts are cut.

    Raises:
        UsageError: the checkpoint's head does not serve the task, or ``max_tokens`` is out of
            range.
        VerificationError: the checkpoint has no tokenizer.
    """

    name: ClassVar[str]
    output_keys: ClassVar[tuple[str, ...]]
    pairs: ClassVar[bool] = False
    window: int = 2048
    max_batch_tokens: int = MAX_BATCH_TOKENS

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer | None" = None,
        *,
        max_tokens: int | None = None,
        max_batch_tokens: int | None = None,
    ) -> None:
        require_head(checkpoint, self.name)
        if tokenizer is None:
            from zoo.checkpoint import load_text_tokenizer

            tokenizer = load_text_tokenizer(checkpoint)
        self.checkpoint, self.session, self.tokenizer = checkpoint, session, tokenizer
        self.max_tokens = max_length(max_tokens, self.limits())
        self.max_batch_tokens = max_batch_tokens or self.max_batch_tokens

    def limits(self) -> list[int]:
        """Return every limit on the tokens of a text."""
        spec = self.checkpoint.family.onnx(self.checkpoint.config, self.checkpoint.head_name)
        first = next(iter(spec.inputs.values()))
        axis = [axis for axis in first if isinstance(axis, str)][-1]
        info = self.checkpoint.model.tokenizer
        found = (spec.limits.get(axis), info.max_tokens if info else None)
        return [limit for limit in found if limit is not None]

    def prepare(self, text: str) -> str:
        """Return what the tokenizer is given for a text."""
        return text

    def check(self, item: EncodedExample) -> None:  # noqa: B027 (an option, not a duty)
        """Refuse a text that the task cannot work on.

        Raises:
            UsageError: naming the record.
        """

    def cost(self, item: EncodedExample) -> int:
        """Return what a text takes of a batch's budget; here its tokens."""
        return len(item.encoded.ids)

    @abstractmethod
    def compute(self, items: list[EncodedExample], batch: Batch) -> list[dict[str, Any]]:
        """Run one batch.

        Args:
            items: its texts.
            batch: their tokens, padded and stacked.

        Returns:
            what each text's result adds to its record; arrays stay arrays.
        """

    def render(self, added: dict[str, Any]) -> dict[str, Any]:
        """Return the same values as JSON can hold them."""
        return added

    def run(
        self, records: Iterable[TextExample], *, arrays: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Return a JSON-able result for each record, in order.

        A result holds ``text``, ``text_pair`` if there was one, the record's other keys, what
        the task adds, and ``truncated`` (how many tokens were cut off) if any were. At the end a
        ``TaskWarning`` sums up what was cut.

        Args:
            records: the texts; they are read a window ahead, and no further.
            arrays: leave arrays as they are, instead of lists that JSON can hold.

        Raises:
            UsageError: a record does not fit the task; it is named.
            NonFiniteError: the model returned NaN or infinity for a text; both are named.
        """
        for item, added in self.stream(records):
            pair = {} if item.record.pair is None else {"text_pair": item.record.pair}
            cut = {"truncated": item.encoded.truncated} if item.encoded.truncated else {}
            own = added if arrays else self.render(added)
            yield {"text": item.record.text, **pair, **item.record.extra, **own, **cut}

    def stream(
        self, records: Iterable[TextExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """Return each record with its tokens and what the task adds, in order; see ``run``."""
        texts = tokens = 0
        for window in self._windows(records):
            for item, added in self._batches(window):
                texts += item.encoded.truncated > 0
                tokens += item.encoded.truncated
                yield item, added
        if texts:
            warnings.warn(
                f"{texts} {'text was' if texts == 1 else 'texts were'} cut at {self.max_tokens} "
                f"tokens, {tokens} tokens in all were left out; see `truncated` in the results",
                TaskWarning,
                stacklevel=2,
            )

    def _windows(self, records: Iterable[TextExample]) -> Iterator[list[EncodedExample]]:
        """Tokenize the input a window at a time. What stands before a bad record comes first."""
        source, error, before = iter(records), None, 0
        while error is None:
            window: list[TextExample] = []
            try:
                for record in self._next(source):
                    self._admit(record)
                    window.append(record)
            except UsageError as found:
                error = found
            items = self._tokenize(window, before)
            before += len(items)
            refusals = ((k, self._refusal(item)) for k, item in enumerate(items))
            first, refused = next(((k, e) for k, e in refusals if e), (len(items), None))
            yield items[:first]
            error = refused or error
            if not window:
                break
        if error is not None:
            raise error

    def _next(self, source: Iterator[TextExample]) -> Iterator[TextExample]:
        """Yield the records of a window, which ends early where its texts are long."""
        characters = 0
        for record in itertools.islice(source, self.window):
            yield record
            characters += len(record.text) + len(record.pair or "")
            if characters > MAX_TEXT_CHARACTERS:
                return

    def _tokenize(self, records: list[TextExample], before: int) -> list[EncodedExample]:
        texts = [
            self.prepare(r.text) if r.pair is None else (self.prepare(r.text), self.prepare(r.pair))
            for r in records
        ]
        encoded = self.tokenizer.encode(texts, max_tokens=self.max_tokens)
        pairs = zip(records, encoded, strict=True)
        return [
            EncodedExample(record, tokens, before + k) for k, (record, tokens) in enumerate(pairs)
        ]

    def _batches(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """Run the items of a window in batches, and return them in their order."""
        results: dict[int, dict[str, Any]] = {}
        for chosen in plan_batches([self.cost(i) for i in items], self.max_batch_tokens):
            some = [items[k] for k in chosen]
            batch = collate([i.encoded for i in some], self.session.inputs, self.tokenizer.pad_id)
            with self.name_model_in_errors():
                results |= zip(chosen, self.compute(some, batch), strict=True)
        for k, item in enumerate(items):
            yield item, results.pop(k)

    @contextlib.contextmanager
    def name_model_in_errors(self) -> Iterator[None]:
        """Put the checkpoint's path in front of the message of a ``NonFiniteError``."""
        try:
            yield
        except NonFiniteError as error:
            raise NonFiniteError(f"{self.checkpoint.path}: {error.what}") from error

    def _admit(self, record: TextExample) -> None:
        if record.pair is not None and not self.pairs:
            raise UsageError(
                f"{record.location} has a text_pair, and {self.name} takes single texts"
            )
        for key in (*self.output_keys, "truncated"):
            if key in record.extra:
                raise UsageError(
                    f"{record.location} has the key {key!r}, which {self.name} writes itself",
                    "rename or remove it",
                )

    def _refusal(self, item: EncodedExample) -> UsageError | None:
        try:
            self.check(item)
        except UsageError as error:
            return error
        return None

    def output(self, name: str, items: list[EncodedExample], batch: Batch) -> "Floats":
        """Run the session for one output and check that every text's values are finite."""
        values: Any = self.session.run(batch.inputs, (name,))[name]
        require_finite(values, batch.mask, [item.record for item in items])
        return values  # type: ignore[no-any-return]
