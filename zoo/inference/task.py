"""Base class of tasks: tokenization, batching, order of results, truncation, checks for NaN.

A task reads its input in chunks: the texts of a chunk are tokenized together, sorted by length, run
in batches of bounded size, and returned in input order. Memory is therefore bounded for any length
of input; results appear when a chunk is full or the input ends, which takes seconds.
"""

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.errors import NonFiniteError, UsageError
from zoo.inference.concurrency import compute_batches
from zoo.inference.processing.batching import MAX_BATCH_TOKENS, EncodedBatch, collate, plan_batches
from zoo.inference.processing.records import RecordKeys, TextExample
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.task_checks import max_length, require_finite, require_head, token_limits
from zoo.inference.task_warnings import TaskWarning as TaskWarning
from zoo.inference.task_warnings import report_cut_texts
from zoo.io.limits import MAX_TEXT_CHARACTERS
from zoo.io.progress import progress
from zoo.overrides import override
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import click
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need, Session
    from zoo.tokenizers import TextTokenizer
    from zoo.tokenizers.tokenizer import Text

    Floats = NDArray[np.floating[Any]]


# Characters of a chunk for each token of a batch. A chunk has about 16 batches of English text, for
# which padding and calls cost at most 4 % more than for chunks of 2,048 texts of any length.
CHUNK_CHARACTERS_PER_TOKEN = 64
RESULT_NUMBERS = 1024  # Largest count of numbers in a result without vectors, about.
SPECIAL_TOKENS = 8  # around a text or a pair of texts


class EncodedTexts(Encoded):
    """Several texts of one input, encoded one by one."""

    def __init__(self, texts: Sequence[Encoded]) -> None:
        self.texts = texts
        self.ids = []
        for text in texts:
            self.ids += text.ids
        self.truncated = sum(text.truncated for text in texts)


def texts_of(encoded: Encoded) -> Sequence[Encoded]:
    """Return the texts of an input: several that are encoded one by one, or itself."""
    if isinstance(encoded, EncodedTexts):
        return encoded.texts
    return [encoded]


class EncodedExample(NamedTuple):
    """An input record with its tokens.

    Attributes:
        record: the record.
        encoded: its tokens.
        row_id: index among all inputs.
    """

    record: TextExample
    encoded: Encoded
    row_id: int = 0

    def with_tokens(self, encoded: Encoded) -> "EncodedExample":
        """Return the record with other tokens, such as those of a part of its text."""
        return self if encoded is self.encoded else self._replace(encoded=encoded)


class Task(ABC):
    """A task over a session: one result per record, in input order.

    Args:
        checkpoint: the checkpoint.
        session: the model.
        tokenizer: tokenizer, by default the checkpoint's.
        max_tokens: length that texts are truncated to; by default, and at most, the model's limit.
        max_batch_tokens: maximum number of tokens per batch, with padding.
        batch_size: maximum number of texts per batch; ``None`` for as many as are fastest.

    Raises:
        UsageError: the head does not support the task, or ``max_tokens`` is out of range.
        VerificationError: the checkpoint has no tokenizer.
    """

    name: ClassVar[str]  # the head of the checkpoint must list it, or be one of ``heads``
    # Heads that support the task in every family, which need not list it.
    heads: ClassVar[tuple[str, ...]] = ()
    # Other tasks; a head that lists one of them supports this task as well.
    equivalents: ClassVar[tuple[str, ...]] = ()
    # Options of ``zoo run`` that only this task has; the class gets their values as arguments.
    options: "ClassVar[Sequence[click.Option]]" = ()
    output_keys: ClassVar[tuple[str, ...]]  # keys that results add to a record
    # The key of ``output_keys`` that is a vector of the same size in all results.
    vector_key: ClassVar[str | None] = None
    pairs: ClassVar[bool] = False  # whether records may have a second text
    keys: ClassVar[RecordKeys] = RecordKeys()  # keys of the texts in JSON lines and in results
    # Largest number of texts that are tokenized and sorted together; long texts are fewer.
    chunk_size: int = 2048
    max_batch_tokens: int = MAX_BATCH_TOKENS
    # Gets the number of inputs whose results have been computed since the last call.
    on_progress: "Callable[[int], None] | None" = None
    _reported = 0  # number of inputs of the chunk that ``on_progress`` has got

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer | None" = None,
        *,
        max_tokens: int | None = None,
        max_batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.require_head(checkpoint)
        if tokenizer is None:
            from zoo.checkpoint import load_text_tokenizer

            tokenizer = load_text_tokenizer(checkpoint)
        self.checkpoint = checkpoint
        self.session = session
        self.tokenizer = tokenizer
        self.max_tokens = max_length(max_tokens, self.limits())
        self.max_batch_tokens = max_batch_tokens or self.max_batch_tokens
        self.batch_size = batch_size

    @classmethod
    def require_head(cls, checkpoint: "Checkpoint") -> None:
        """Check that the head of a checkpoint supports the task; raises ``UsageError``."""
        require_head(checkpoint, cls.name, cls.heads, cls.equivalents)

    @classmethod  # noqa: B027 (optional)
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        """Check options against a checkpoint before its weights are loaded.

        Args:
            checkpoint: the checkpoint, whose head the task supports.
            options: options of the task, given or default ones.

        Raises:
            UsageError: the model does not have what an option asks for.
        """

    @classmethod
    def needs(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> "tuple[Need, ...]":
        """Return what the task, with its options, needs that not every backend has."""
        return ()

    @classmethod
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        """Return the columns of tables that the task reads.

        ``options`` of ``zoo run`` that name columns are removed; ``text`` and ``pair`` name
        columns.
        """
        return InputColumns(text, pair, (*cls.output_keys, "truncated"))

    @classmethod
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        """Return records and arguments of the class for input and options of ``zoo run``.

        An option that is malformed is a ``UsageError``.
        """
        return records, options

    def limits(self) -> list[int]:
        """Return the limits on the number of tokens of a text."""
        return token_limits(self.checkpoint)

    def prepare(self, text: str) -> str:
        """Return the text to tokenize."""
        return text

    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        """Tokenize texts or pairs of texts; here with truncation."""
        return self.tokenizer.encode(texts, max_tokens=self.max_tokens)

    def check(self, item: EncodedExample) -> None:  # noqa: B027 (optional)
        """Check one input; a ``UsageError`` names the record."""

    def require_tokens(self, item: EncodedExample) -> None:
        """Check that each text of an input has tokens; raises ``UsageError``."""
        for text in texts_of(item.encoded):
            if not text.ids:
                raise UsageError(f"{item.record.location} has no tokens", "leave it out")

    def truncated(self, item: EncodedExample) -> int:
        """Return the number of tokens of an input that were cut."""
        return item.encoded.truncated

    def to_json(self, added: dict[str, Any]) -> dict[str, Any]:
        """Return the values of ``compute`` as JSON-serializable values."""
        return added

    def run(
        self, records: Iterable[TextExample], *, arrays: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the result of each record, in order.

        A result has the texts of the record, its other keys, the keys of the task, and
        ``truncated``, the number of tokens cut, if it is not zero. Texts have the names of their
        columns; texts without names are ``text`` and ``text_pair``, and some tasks have other keys.
        If any text was truncated, a ``TaskWarning`` at the end says how many of how many.

        Args:
            records: the records, read one chunk ahead.
            arrays: return numpy arrays instead of lists.

        Raises:
            UsageError: a record is not valid for the task; the message names it.
            NonFiniteError: an output is NaN or infinite; the message names the text.
        """
        for chunk in self.run_chunks(self.split_records(records), arrays=arrays):
            yield from chunk

    def split_records(self, records: Iterable[TextExample]) -> Iterator[TextExample]:
        """Yield the records that have a result each: these, or parts of their texts.

        The parts of a text only depend on the task and on the records before it, so that results
        can be continued. ``run`` and ``stream`` call it; callers of ``run_chunks`` do before.
        """
        return iter(records)

    def run_chunks(
        self, records: Iterable[TextExample], *, arrays: bool = False, start: int = 0
    ) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the results of ``run`` chunk by chunk.

        Records after the end of a chunk may be run later, by another process, with the results of
        an uninterrupted run.

        Args:
            records: see ``run``.
            arrays: see ``run``.
            start: number of records before these, all in chunks that were run.
        """
        for chunk in self.stream_chunks(records, start=start):
            yield (self.join_result(item, added, arrays=arrays) for item, added in chunk)

    def join_result(
        self, item: EncodedExample, added: dict[str, Any], *, arrays: bool = False
    ) -> dict[str, Any]:
        """Return the result of an input: its texts, its other keys and the values of the task.

        Args:
            item: the input.
            added: the values that the task adds.
            arrays: return NumPy arrays in place of lists.
        """
        values = added if arrays else self.to_json(added)
        result = {**self.keys.columns(item.record), **values}
        truncated = self.truncated(item)
        if truncated:
            result["truncated"] = truncated
        return result

    def stream(
        self, records: Iterable[TextExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """Yield each input with the values that the task adds, in order; see ``run``."""
        for chunk in self.stream_chunks(self.split_records(records)):
            yield from chunk

    def stream_chunks(
        self, records: Iterable[TextExample], *, start: int = 0
    ) -> Iterator[Iterator[tuple[EncodedExample, dict[str, Any]]]]:
        """Yield the chunks of ``stream``, each to be read before the next; see ``run_chunks``."""
        cut_texts = 0
        texts = 0

        def run_and_count(
            chunk: list[EncodedExample],
        ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
            nonlocal cut_texts, texts
            self._reported = 0
            for number, (item, added) in enumerate(self.run_chunk(chunk), 1):
                self.report_progress(number)
                texts += 1
                if self.truncated(item) > 0:
                    cut_texts += 1
                yield item, added

        for chunk in self._chunks(records, start):
            yield run_and_count(chunk)
        report_cut_texts(cut_texts, texts, self.max_tokens, self.cut_remedy)

    @property
    def cut_remedy(self) -> str:
        """What to do about texts that are cut, as the end of a warning; empty for nothing."""
        return ""

    def vector_record(self, rows: int) -> bytes | None:
        """Return what a file of a number of vectors records about itself, as JSON, if anything."""
        return None

    @contextlib.contextmanager
    def show_progress(
        self,
        label: str,
        total: int | None = None,
        *,
        done: int = 0,
        items: "Callable[[], Iterable[object]] | None" = None,
    ) -> Iterator[None]:
        """Show how many texts the task has computed, their rate and the time left.

        Args:
            label: name of the phase, see ``zoo.io.progress.PHASES``.
            total: number of texts; ``None`` if it is unknown.
            done: number of texts that an earlier process has computed.
            items: yields the texts once more, to count them meanwhile.
        """
        with progress(label, total, unit="texts", done=done, items=items) as advance:
            self.on_progress = advance
            try:
                yield
            finally:
                self.on_progress = None

    def report_progress(self, count: int) -> None:
        """Report how many inputs of a chunk have been computed, in whatever order."""
        if count > self._reported and self.on_progress is not None:
            self.on_progress(count - self._reported)
            self._reported = count

    @property
    def splits_records(self) -> bool:
        """Whether a text may have several results; see ``split_records``."""
        return False

    @property
    def has_vector_columns(self) -> bool:
        """Whether tables have a column of vectors: lists of numbers, or lists of such lists."""
        return self.vector_key is not None

    def no_vectors(self) -> "NDArray[Any]":
        """Return the array of the vectors of no texts, (0, dimensions), if there are vectors."""
        raise NotImplementedError

    def _chunks(
        self, records: Iterable[TextExample], first_row: int
    ) -> Iterator[list[EncodedExample]]:
        """Tokenize the input in chunks; records before an invalid one are yielded first."""
        source = iter(records)
        error = None
        while error is None:
            chunk: list[TextExample] = []
            try:
                for record in self._next(source):
                    self.validate(record)
                    chunk.append(record)
            except UsageError as read_error:
                error = read_error
            if not chunk:
                break
            items = self.tokenize(chunk, first_row)
            first_row += len(items)
            valid_items: list[EncodedExample] = []
            try:
                for item in items:
                    self.check(item)
                    valid_items.append(item)
            except UsageError as check_error:
                error = check_error
            yield valid_items
        if error is not None:
            raise error

    def _next(self, source: Iterator[TextExample]) -> Iterator[TextExample]:
        """Yield the records of a chunk, which ends early if the texts are long."""
        max_characters = CHUNK_CHARACTERS_PER_TOKEN * self.max_batch_tokens
        max_characters = min(max_characters, MAX_TEXT_CHARACTERS)
        characters = 0
        for record in itertools.islice(source, self.chunk_size):
            yield record
            characters += len(record.text) + len(record.pair or "")
            if characters > max_characters:
                return

    def tokenize(self, records: list[TextExample], first_row: int) -> list[EncodedExample]:
        """Tokenize the records of a chunk, of which the first has the number ``first_row``."""
        texts: list[Text] = []
        for record in records:
            text = self.prepare(record.text)
            if record.pair is None:
                texts.append(text)
            else:
                texts.append((text, self.prepare(record.pair)))
        items = list[EncodedExample]()
        for record, encoded in zip(records, self.encode(texts), strict=True):
            items.append(EncodedExample(record, encoded, first_row + len(items)))
        return items

    @abstractmethod
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """Yield each input of a chunk with the values that the task adds, in order."""

    def with_model_name(self, error: NonFiniteError) -> NonFiniteError:
        """Return an error whose message begins with the path of the checkpoint."""
        return NonFiniteError(f"{self.checkpoint.name}: {error.what}")

    def max_result_numbers(self, record: TextExample) -> int:
        """Return how many numbers the result of a record has at most, about.

        A server bounds its memory by it.
        """
        return RESULT_NUMBERS

    def max_record_tokens(self, record: TextExample) -> int:
        """Return how many tokens a record has at most, by its characters and the model's limit."""
        characters = len(record.text) + len(record.pair or "") + SPECIAL_TOKENS
        return characters if self.max_tokens is None else min(characters, self.max_tokens)

    def validate(self, record: TextExample) -> None:
        """Check one record before it is tokenized; a ``UsageError`` names it."""
        if record.pair is not None and not self.pairs:
            raise UsageError(
                f"{record.location} has a text_pair, and {self.name} takes single texts"
            )
        if record.pair is None and self.keys.text is None:
            raise UsageError(f"{record.location} is one text, and {self.name} takes pairs")
        for key in (*self.output_keys, "truncated"):
            if key in record.extra:
                raise UsageError(
                    f"{record.location} has the key {key!r}, which {self.name} writes itself",
                    "rename or remove it",
                )


class BatchTask(Task):
    """A task that runs its inputs in batches; an input may be split into several rows."""

    def cost(self, item: EncodedExample) -> int:
        """Return the cost of an input in tokens per batch; by default its number of tokens."""
        return len(item.encoded.ids)

    @property
    def ignores_padding(self) -> bool:
        """Whether padding may cost less than other tokens; see ``Session.run_attended``.

        All forward passes of the task are then calls of ``output``, and what it returns is small
        for each token, since there may be much padding.
        """
        return False

    @property
    def is_thread_safe(self) -> bool:
        """Whether batches may be computed in several threads at the same time.

        ``compute`` then calls ``output`` for all forward passes, changes nothing of the task, and
        takes little memory for each token.
        """
        return self.ignores_padding

    def plan_batches(self, costs: Sequence[int]) -> list[list[int]]:
        """Return the indices of rows with some costs by batch."""
        return plan_batches(
            costs,
            self.max_batch_tokens,
            self.session.call_cost,
            batch_size=self.batch_size,
            padding_cost=self.session.padding_cost if self.ignores_padding else 1.0,
        )

    def split(self, item: EncodedExample) -> list[EncodedExample]:
        """Return the rows of an input; by default its several texts, or itself."""
        return [item.with_tokens(text) for text in texts_of(item.encoded)]

    @abstractmethod
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        """Run one batch.

        Args:
            items: rows of the batch.
            batch: their padded arrays.

        Returns:
            for each row, the values that the result adds to the record, with numpy arrays.
        """

    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the values that the result adds to a record, from the values of its rows."""
        return rows[0]

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        counts = []
        rows: list[EncodedExample] = []
        for item in items:
            parts = self.split(item)
            counts.append(len(parts))
            rows += parts
        results: dict[int, dict[str, Any]] = {}
        costs = [self.cost(row) for row in rows]
        # A session that does not take one of the model's inputs has to say so.
        names = list(self.checkpoint.onnx_spec.inputs)

        def compute_rows(indices: list[int]) -> list[dict[str, Any]]:
            members = [rows[k] for k in indices]
            batch = collate([row.encoded for row in members], names, self.tokenizer.pad_id)
            try:
                return self.compute(members, batch)
            except NonFiniteError as error:
                raise self.with_model_name(error) from error

        rows_done = 0
        batches = self.plan_batches(costs)
        if self.is_thread_safe:
            outputs = compute_batches(self.session, compute_rows, batches)
        else:
            outputs = map(compute_rows, batches)
        for indices, computed in zip(batches, outputs, strict=True):
            results |= zip(indices, computed, strict=True)
            rows_done += len(indices)
            self.report_progress(len(items) * rows_done // len(rows))
        start = 0
        for item, count in zip(items, counts, strict=True):
            yield item, self.merge(item, [results.pop(start + k) for k in range(count)])
            start += count

    def output(self, name: str, items: list[EncodedExample], batch: EncodedBatch) -> "Floats":
        """Return one output of the session after checking that it is finite."""
        attention_mask = batch.inputs.get("attention_mask")
        # Tokens of ``mask`` that are not attended to have outputs as well.
        if attention_mask is None or (attention_mask == batch.mask).all():
            run = self.session.run_attended
        else:
            run = self.session.run
        values: Any = run(batch.inputs, (name,))[name]
        require_finite(values, batch.mask, [item.record for item in items])
        return values  # type: ignore[no-any-return]
