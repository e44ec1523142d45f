"""The task embed: sentence embeddings."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from zoo.errors import UsageError
from zoo.families.onnx import EMBEDDING
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import short_floats
from zoo.inference.processing.passages import (
    PASSAGE_KEYS,
    Chunks,
    PassageSplitter,
    TextTokens,
    passage_records,
)
from zoo.inference.processing.records import Passage, TextExample, validate_text
from zoo.inference.processing.similarity import text_similarity
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.processing.windows import (
    TextWindows,
    Window,
    join_token_vectors,
    window_spans,
)
from zoo.inference.task import EncodedExample, texts_of
from zoo.inference.task_checks import token_limits
from zoo.inference.task_warnings import warn_user
from zoo.inference.vector_record import make_record
from zoo.inference.windowed import WindowedTask
from zoo.overrides import override
from zoo.sentence_models.modules import TOKENS, PoolingModule
from zoo.sentence_models.numpy_modules import (
    ModuleFeatures,
    count_prompt_tokens,
    pool,
    run_modules,
    unit,
)
from zoo.sentence_models.pooling import DENSE, Pooling, QueryExpansion
from zoo.sentence_models.sentence_transformers_files import STATIC
from zoo.tokenizers import Encoded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers.tokenizer import Text

Role = Literal["query", "document"]
BINARY = "binary"  # signs, packed into bytes
# Types of models whose embeddings are not one vector a text -> what they are.
OTHER_OUTPUTS = {
    "MultiVectorEncoder": "an embedding for each token",
    "SparseEncoder": "weights of words",
}
DTYPES = ("float32", "float16", "int8", BINARY)  # dtypes of embeddings in results
# Of models that do not say how they pool tokens.
MEAN_POOLING = Pooling()
WINDOWS = "windows"  # key of results: the characters of each window of a text
# Texts whose passages are found together. Their results appear together as well.
DOCUMENTS_AT_ONCE = 256
DOCUMENT_CHARACTERS = 1 << 20  # characters of these texts, about
TOKEN_POOLINGS = {"cls", "lasttoken"}  # poolings that read a single token


class Embed(WindowedTask):
    """Sentence embeddings, pooled as the sentence-transformers files of the checkpoint specify.

    See ``zoo.api.Model.embed`` for the arguments.

    Without such files the embedding is the mean over the tokens, not normalized, with a
    ``TaskWarning``. Results have the key ``embedding``. A text follows a prompt of the checkpoint,
    by default its default prompt, or another text in place of one. As a ``query`` or ``document``
    of retrieval, it has the prompt and the maximum length of these by default.

    An embedding of a sparse encoder has a weight for each word of the vocabulary; JSON leaves out
    zeros. A model of late interaction has an embedding for each token.

    With ``doc_stride``, a text longer than the model allows is read in windows, each after the
    prompt and embedded as a text, and ``windows`` has their characters. Their ``mean`` is weighted
    by their numbers of tokens, so that a token of two windows counts twice; it is scaled to unit
    length if the model does so (``len_safe_get_embedding`` in "Embedding texts that are longer than
    the model's maximum context length" of OpenAI's cookbook, which has no overlaps).

    With ``chunks``, a result is a passage of a text, and has ``document``, the number of its text
    from 0, and ``start`` and ``end``, its characters. ``late_chunking`` runs the model on the whole
    text, and pools the tokens of each passage (Günther et al. 2024, arXiv:2409.04701). As there,
    the special tokens and the prompt at the beginning belong to the first passage, and the special
    tokens at the end to the last; texts longer than the model allows are read in windows, see
    ``join_token_vectors``.
    """

    name: ClassVar[str] = "embed"
    output_keys: ClassVar[tuple[str, ...]] = ("embedding", "embedding_scale")
    vector_key: ClassVar[str | None] = "embedding"

    def __init__(
        self,
        *args: Any,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dim: int | None = None,
        normalize: bool = False,
        output_dtype: str | None = None,
        role: Role | None = None,
        representation: str | None = None,
        chunks: Chunks | None = None,
        chunk_size: int | None = None,
        late_chunking: bool = False,
        separate_windows: bool = False,
        **options: Any,
    ) -> None:
        self.role = role
        check_passage_options(
            {"chunks": chunks, "chunk_size": chunk_size, "late_chunking": late_chunking, **options}
        )
        super().__init__(*args, **options)
        self.checkpoint = self.checkpoint.with_representation(representation)
        if representation not in (None, DENSE) and EMBEDDING in self.session.outputs:
            raise UsageError(
                f"{self.checkpoint.name} pools tokens itself, and has no {representation} "
                "representation",
                "export it without --pooled",
            )
        if self.pooling.lowercase:
            self.tokenizer = self.tokenizer.lowercased
        if output_dtype not in (None, *DTYPES):
            raise UsageError(
                f"embeddings are not written as {output_dtype}", f"give {', '.join(DTYPES)}"
            )
        require_dimension(self.checkpoint, dim)
        self.dim = dim
        self.output_dtype = output_dtype
        self.normalizes = normalize or self.pooling.normalizes
        # Whether vectors are not of unit length yet, or no longer.
        self._scales_vectors = self.normalizes and (dim is not None or not self.pooling.normalizes)
        self.weights = self.checkpoint.module_weights()
        require_prompt(self.checkpoint, prompt_name, prompt)
        if prompt_name is None and prompt is None and role is not None:
            prompt_name = self.pooling.role_prompt_name(role)
            prompt = self.pooling.prompts.get(prompt_name or "", "")
        elif prompt_name is None and prompt is None:
            # Models may name ``query`` or ``document`` as the default without such a prompt.
            prompt = self.pooling.prompt()
            prompt_name = self.pooling.default_prompt_name
        if prompt is None:
            prompt = self.pooling.prompt(prompt_name)
        self.prompt = prompt
        prompt_types = self.checkpoint.family.prompt_types(self.checkpoint.config)
        self.token_type = prompt_types.get(prompt_name or "", 0)
        if output_dtype == BINARY and (self.is_multi_vector or self.is_sparse):
            raise UsageError(
                f"{self.checkpoint.name} does not have one vector a text, whose signs are written",
                "give another --output-dtype",
            )
        self.skipped = self.pooling.skipped_tokens(self.tokenizer)
        self.late_chunking = late_chunking
        # Whether the embedding of a text has a row for each window, for scores of windows.
        self.separate_windows = separate_windows
        require_passages(self.checkpoint, {"late_chunking": late_chunking, **options})
        if late_chunking and EMBEDDING in self.session.outputs:
            raise UsageError(
                f"{self.checkpoint.name} pools tokens itself, and late chunking pools those of "
                "each passage",
                "run another export of the model, or leave --late-chunking out",
            )
        if late_chunking and self.max_tokens is not None:
            self.windows = TextWindows.of(
                self.checkpoint.family, self.max_tokens, options.get("doc_stride")
            )
        if self.windows is not None:
            self.windows = replace(self.windows, prefix=self._prompt_length)
        self.splitter: PassageSplitter | None = None
        if chunks is not None:
            self.splitter = PassageSplitter(
                chunks, chunk_size, self._passage_room(), self.checkpoint.name
            )

    @classmethod
    @override
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        columns = super().columns(options, text, pair)
        if options.get("chunks") is not None:
            return replace(columns, reserved=(*columns.reserved, *PASSAGE_KEYS))
        if options.get("doc_stride") is not None:
            return replace(columns, reserved=(*columns.reserved, WINDOWS))
        return columns

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        if options.get("chunks") is not None:
            # Results are passages, whose number is not the number of texts.
            records = itertools.chain(records)
        return records, options

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        checkpoint = checkpoint.with_representation(options.get("representation"))
        check_passage_options(options)
        require_passages(checkpoint, options)
        require_dimension(checkpoint, options.get("dim"))
        require_prompt(checkpoint, options.get("prompt_name"), options.get("prompt"))

    @property
    def pooling(self) -> Pooling:
        """Pooling of the checkpoint."""
        return self.checkpoint.model.pooling or MEAN_POOLING

    @property
    def is_multi_vector(self) -> bool:
        """Whether a text has an embedding for each token."""
        return self.pooling.model_type == "MultiVectorEncoder"

    @property
    def is_sparse(self) -> bool:
        """Whether an embedding has a weight for each word of the vocabulary."""
        return self.pooling.model_type == "SparseEncoder"

    @property
    @override
    def cut_remedy(self) -> str:
        if self.role == "query" or not self.offers_windows:
            return ""
        if self.splitter is not None:  # A passage may have more tokens by itself than in its text.
            return "a smaller --chunk-size keeps them whole"
        if self.is_multi_vector:
            return "--chunks tokens embeds all of their passages"
        return super().cut_remedy

    @property
    @override
    def ignores_padding(self) -> bool:
        return not self.is_sparse

    @property
    def expansion(self) -> QueryExpansion | None:
        """Expansion of the texts, if they are queries of a model that expands them."""
        return self.pooling.query_expansion if self.role == "query" else None

    @override
    def limits(self) -> list[int]:
        """Return the limits on the number of tokens, including the sentence encoder's."""
        return token_limits(self.checkpoint, self.pooling.limit(self.role))

    @override
    def encode(self, texts: "Sequence[Text]") -> list[Encoded]:
        if self.windows is not None or self.late_chunking:
            return self.tokenizer.encode(texts, max_tokens=None)  # Windows are cut later.
        expansion = self.expansion
        encoded = self.tokenizer.encode(texts, max_tokens=self.max_tokens, offsets=False)
        if self.token_type:
            encoded = [TypedText(text, self.token_type) for text in encoded]
        if expansion is None:
            return encoded
        number = expansion.token_id(self.tokenizer)
        return [ExpandedQuery(text, number, expansion.length) for text in encoded]

    @property
    def splits_records(self) -> bool:
        """Whether a result is a passage of a text."""
        return self.splitter is not None

    @override
    def split_records(self, records: Iterable[TextExample]) -> Iterator[TextExample]:
        if self.splitter is None:
            return iter(records)
        return self._split_into_passages(records, self.splitter)

    def _split_into_passages(
        self, records: Iterable[TextExample], splitter: PassageSplitter
    ) -> Iterator[TextExample]:
        """Yield the passages of texts; those of texts before an invalid one come first."""
        source = iter(records)
        number = 0
        error = None
        while error is None:
            documents = []
            characters = 0
            try:
                for record in itertools.islice(source, DOCUMENTS_AT_ONCE):
                    self.validate(record)
                    documents.append(record)
                    characters += len(record.text)
                    if characters > DOCUMENT_CHARACTERS:
                        break
            except UsageError as read_error:
                error = read_error
            if not documents:
                break
            texts = [record.text for record in documents]
            for record, encoded in zip(
                documents, self.tokenizer.encode(texts, max_tokens=None), strict=True
            ):
                spans = splitter.split(record.text, encoded)
                yield from passage_records(record, self.keys, number, spans)
                number += 1
        if error is not None:
            raise error

    @override
    def tokenize(self, records: list[TextExample], first_row: int) -> list[EncodedExample]:
        if not self.late_chunking:
            return super().tokenize(records, first_row)
        # Passages that follow each other share the tokens of their document.
        documents = list[str]()
        places = list[int]()
        previous = None
        for record in records:
            passage = record.passage
            number = None if passage is None else passage.number
            if number is None or number != previous:
                documents.append(record.text if passage is None else passage.document)
            places.append(len(documents) - 1)
            previous = number
        encoded = self.encode([self.prepare(document) for document in documents])
        items = list[EncodedExample]()
        for record, place in zip(records, places, strict=True):
            items.append(EncodedExample(record, encoded[place], first_row + len(items)))
        return items

    @override
    def _next(self, source: Iterator[TextExample]) -> Iterator[TextExample]:
        records = super()._next(source)
        return self._with_last_document(records, source) if self.late_chunking else records

    def _with_last_document(
        self, records: Iterator[TextExample], source: Iterator[TextExample]
    ) -> Iterator[TextExample]:
        """Yield records and the other passages of the last document, which the model reads once."""
        passage = None
        for record in records:
            passage = record.passage
            yield record
        while passage is not None and not passage.is_last:
            record = next(source)
            passage = record.passage
            yield record

    @override
    def prepare(self, text: str) -> str:
        return self.prompt + text

    @cached_property
    def prompt_tokens(self) -> int:
        """Number of tokens at the beginning of each text that are not pooled."""
        if self.pooling.pools_prompt:
            return 0
        return self._prompt_length

    @cached_property
    def _prompt_length(self) -> int:
        """Number of tokens of the prompt, with the special tokens before it; 0 without one."""
        if not self.prompt:
            return 0
        return count_prompt_tokens(self.tokenizer, self.prepare(""), self.max_tokens)

    def _passage_room(self) -> int | None:
        """Return how many tokens of a passage the model reads; ``None`` for any number."""
        if self.max_tokens is None:
            return None
        (empty,) = self.tokenizer.encode([self.prompt], max_tokens=None, offsets=False)
        return self.max_tokens - len(empty.ids)

    @override
    def validate(self, record: TextExample) -> None:
        super().validate(record)
        if self.windows is not None and not self.late_chunking and WINDOWS in record.extra:
            raise UsageError(
                f"{record.location} has the key {WINDOWS!r}, which {self.name} writes itself",
                "rename or remove it",
            )

    @override
    def check(self, item: EncodedExample) -> None:
        """Raise an error for a text without tokens to pool, or without room in its windows."""
        super().check(item)
        self.require_tokens(item)
        for text in texts_of(item.encoded):
            if len(text.ids) <= self.prompt_tokens:
                raise UsageError(f"{item.record.location} has no tokens after the prompt")

    @override
    def split(self, item: EncodedExample) -> list[EncodedExample]:
        rows = super().split(item)
        if self.windows is None or not self.token_type:
            return rows
        return [row._replace(encoded=TypedText(row.encoded, self.token_type)) for row in rows]

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        if not self.late_chunking:
            return super().run_chunk(items)
        return self._run_documents(items)

    def _run_documents(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        """Yield the passages of documents, each of which the model reads once."""
        documents = list[list[EncodedExample]]()
        for item in items:
            if documents and documents[-1][0].encoded is item.encoded:
                documents[-1].append(item)
            else:
                documents.append([item])
        outputs = super().run_chunk([passages[0] for passages in documents])
        for passages, (_, added) in zip(documents, outputs, strict=True):
            tokens = TextTokens(passages[0].encoded, len(self.prompt))
            for item in passages:
                yield item, self._pool_passage(item, added[TOKENS], tokens)

    def _pool_passage(
        self, item: EncodedExample, hidden: "NDArray[np.floating[Any]]", tokens: TextTokens
    ) -> dict[str, Any]:
        """Return the embedding of a passage from the vectors of its document, (tokens, width)."""
        import numpy as np

        record = item.record
        passage = record.passage or Passage(record.text, 0, 0, len(record.text))
        first, stop = tokens.positions_of(passage)
        vectors = pool(
            hidden[None, first:stop],
            np.ones((1, stop - first), bool),
            self.pooling,
            self.weights,
            prompt_tokens=max(self.prompt_tokens - first, 0),
        )
        return self._convert(vectors, [item])[0]

    @override
    def merge(self, item: EncodedExample, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the embedding of a text from those of its windows."""
        import numpy as np

        windows = [window for window in self.split_text(item.encoded) if isinstance(window, Window)]
        if self.late_chunking:
            if not windows:
                return rows[0]
            vectors = [row[TOKENS] for row in rows]
            return {TOKENS: join_token_vectors(item.encoded, windows, vectors)}
        if not windows:
            if self.separate_windows:
                return {"embedding": rows[0]["embedding"][None]}
            return rows[0]
        vectors = [row["embedding"] for row in rows]
        if self.separate_windows:
            results = self._convert(np.stack(vectors), [item] * len(vectors))
            return {
                "embedding": np.stack([result["embedding"] for result in results]),
                WINDOWS: window_spans(windows, len(self.prompt)),
            }
        embedding = self.pool_windows(windows, vectors)
        result = self._convert(embedding[None], [item])[0]
        return {**result, WINDOWS: window_spans(windows, len(self.prompt))}

    def pool_windows(
        self, windows: Sequence[Window], vectors: "Sequence[NDArray[np.floating[Any]]]"
    ) -> "NDArray[np.floating[Any]]":
        """Return the vector of a text, (dimensions,), from those of its windows; see ``Embed``."""
        import numpy as np

        if len(vectors) == 1:
            return vectors[0]
        pooled: NDArray[np.floating[Any]]
        if self.window_pooling == "max":
            pooled = np.max(vectors, axis=0)
        else:
            counts = [len(window.part) for window in windows]
            pooled = np.average(vectors, axis=0, weights=counts).astype(vectors[0].dtype)
        if self.normalizes:
            pooled = unit(pooled[None])[0]
        return pooled

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        if EMBEDDING in self.session.outputs:  # the runtime pools
            vectors = self.output(EMBEDDING, items, batch)
        else:
            if (expansion := self.expansion) is not None and not expansion.attend:
                batch = without_expansion(items, batch, self.session.inputs)
            hidden = self.output(self.pooling.output, items, batch)  # (texts, tokens, width)
            if self.late_chunking:
                rows = zip(hidden, items, strict=True)
                return [{TOKENS: row[: len(item.encoded.ids)].copy()} for row, item in rows]
            return self.embed_hidden(hidden, items, batch)
        if self.windows is not None:
            return [{"embedding": vector} for vector in vectors]
        return self._convert(vectors, items)

    def embed_hidden(
        self, hidden: "NDArray[np.floating[Any]]", items: list[EncodedExample], batch: EncodedBatch
    ) -> list[dict[str, Any]]:
        """Return the embeddings of texts from the output of the model, (texts, tokens, width)."""
        if self.is_multi_vector:
            return self._of_tokens(hidden, batch)
        vectors = pool(
            hidden,
            batch.mask,
            self.pooling,
            self.weights,
            prompt_tokens=self.prompt_tokens,
            ids=batch.inputs.get(self.session.inputs[0]),
            skipped=self.skipped,
        )
        if self.windows is not None:
            return [{"embedding": vector} for vector in vectors]  # ``merge`` converts them.
        return self._convert(vectors, items)

    def _convert(
        self, vectors: "NDArray[np.floating[Any]]", items: list[EncodedExample]
    ) -> list[dict[str, Any]]:
        """Return the results of vectors, (texts, dimensions), in the dtype of the options."""
        vectors = vectors[:, : self.dim]
        if self._scales_vectors:
            vectors = unit(vectors)
        if self.output_dtype == "int8":
            codes, scales = quantize(vectors)
            pairs = zip(codes, scales, strict=True)
            return [{"embedding": code, "embedding_scale": scale} for code, scale in pairs]
        if self.output_dtype == BINARY:
            import numpy as np

            return [{"embedding": bits} for bits in np.packbits(vectors > 0, axis=1)]
        if self.output_dtype == "float16":
            require_half(vectors, items)
        vectors = vectors.astype(self.output_dtype or vectors.dtype, copy=False)
        return [{"embedding": vector} for vector in vectors]

    def _of_tokens(
        self, hidden: "NDArray[np.floating[Any]]", batch: EncodedBatch
    ) -> list[dict[str, Any]]:
        """Return the embeddings of the tokens that are compared, (tokens, width) for each text."""
        features = ModuleFeatures(
            {TOKENS: hidden},
            batch.mask,
            ids=batch.inputs[self.session.inputs[0]],
            prompt_tokens=self.prompt_tokens,
            skipped=self.skipped,
            task=self.role or "document",
        )
        features = run_modules(features, self.pooling, self.weights)
        vectors = features.values[TOKENS]
        vectors = unit(vectors) if self.normalizes else vectors
        rows = zip(vectors.astype(self.output_dtype or vectors.dtype), features.mask, strict=True)
        return [{"embedding": row[mask]} for row, mask in rows]

    def compare(self, first: Any, second: Any) -> float:
        """Return the similarity of two embeddings, by the model's function."""
        return text_similarity(first, second, self.pooling.similarity_fn_name)

    @override
    def to_json(self, added: dict[str, Any]) -> dict[str, Any]:
        values = dict(added)
        if self.is_sparse and "embedding" in values:
            values["embedding"] = self.named_weights(values["embedding"])
            return values
        for name in self.output_keys:
            if name in values:
                values[name] = short_floats(values[name])
        return values

    def named_weights(self, vector: "NDArray[np.floating[Any]]") -> dict[str, float]:
        """Return token -> weight of a sparse embedding, the largest first, without zeros."""
        import numpy as np

        present = np.flatnonzero(vector)
        order = present[np.argsort(-vector[present], kind="stable")]
        weights = short_floats(vector[order])
        named_weights = {}
        for number, weight in zip(order.tolist(), weights, strict=True):
            named_weights[self.tokenizer.token(number)] = weight
        return named_weights

    @override
    def stream_chunks(
        self, records: Iterable[TextExample], *, start: int = 0
    ) -> Iterator[Iterator[tuple[EncodedExample, dict[str, Any]]]]:
        if self.checkpoint.model.pooling is None:
            warn_user(
                f"{self.checkpoint.name} does not say how it pools tokens: taking their mean, "
                "not scaled to unit length"
            )
        return super().stream_chunks(records, start=start)

    def vectors(self, records: Iterable[TextExample]) -> "NDArray[np.floating[Any]]":
        """Return the embeddings as one array, (texts, dimensions)."""
        import numpy as np

        if self.is_multi_vector:
            raise UsageError(
                f"{self.checkpoint.name} has an embedding for each token, and none of a text",
                "use encode_query and encode_document",
            )
        rows = [result["embedding"] for _, result in self.stream(records)]
        if not rows:
            return self.no_vectors()
        return np.array(rows)

    @override
    def vector_record(self, rows: int) -> bytes | None:
        if self.is_multi_vector or self.is_sparse:
            return None
        record = make_record(
            self.checkpoint,
            prompt=self.prompt,
            pooling=[type(step).__name__ for step in self.pooling.steps],
            similarity=self.pooling.similarity_fn_name,
            dimension=self.size,
            normalized=self.normalizes,
            dtype=self.output_dtype or str(self.no_vectors().dtype),
            rows=rows,
        )
        return record.encode()

    @cached_property
    def size(self) -> int:
        """Number of dimensions of an embedding."""
        size = embedding_size(self.checkpoint)
        return min(self.dim or size, size)

    @override
    def max_result_numbers(self, record: TextExample) -> int:
        if self.is_multi_vector:
            return self.size * self.max_record_tokens(record)
        return self.size

    @property
    @override
    def has_vector_columns(self) -> bool:
        return not self.is_sparse  # Tables have a sparse embedding as words with weights.

    @override
    def no_vectors(self) -> "NDArray[Any]":
        import numpy as np

        dtype = self.output_dtype
        if dtype == BINARY:
            return np.empty((0, -(-self.size // 8)), np.uint8)
        if not dtype:
            dtype = "float64" if self.session.dtype == "float64" else "float32"
        return np.empty((0, self.size), dtype)


def embedding_size(checkpoint: "Checkpoint") -> int:
    """Return the number of dimensions of a model's embeddings."""
    pooling = checkpoint.model.pooling or Pooling()
    return pooling.dimension(pooling.input_width(checkpoint.config))


def require_dimension(checkpoint: "Checkpoint", dim: int | None) -> None:
    """Check that a model's embeddings can be cut at a number of dimensions."""
    if dim is None:
        return
    pooling = checkpoint.model.pooling or Pooling()
    outputs = OTHER_OUTPUTS.get(pooling.model_type)
    if outputs is not None:
        raise UsageError(
            f"{checkpoint.name} has {outputs}, which are not cut at a dimension",
            "leave the dimension out",
        )
    if dim < 1:
        raise UsageError(f"embeddings cannot be cut at {dim} numbers", "give 1 or more")
    size = embedding_size(checkpoint)
    if dim > size:
        raise UsageError(
            f"embeddings cannot be cut at {dim} numbers", f"the model's embeddings have {size}"
        )


def require_prompt(checkpoint: "Checkpoint", name: str | None, text: str | None) -> None:
    """Check that a prompt is the name of one that a model has, or a text."""
    if text is not None and name is not None:
        raise UsageError("a prompt is a name or a text, and not both", "leave one out")
    if text is not None:
        validate_text(text, "the prompt")
    if name is not None:
        pooling = checkpoint.model.pooling or Pooling()
        pooling.prompt(name)


def check_passage_options(options: Mapping[str, Any]) -> None:
    """Check that options of passages and windows belong together; raises ``UsageError``."""
    chunks = options.get("chunks")
    late_chunking = options.get("late_chunking")
    if chunks is None:
        for name in ("chunk_size", "late_chunking"):
            if options.get(name):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(
                    f"{flag} is for passages", "add --chunks sentences, tokens or paragraphs"
                )
        return
    if options.get("window_pooling") is not None:
        raise UsageError(
            "--chunks gives a vector for each passage, and --window-pooling one for a text",
            "leave one out",
        )
    if options.get("doc_stride") is not None and not late_chunking:
        raise UsageError(
            "passages of --chunks fit into the model, and --doc-stride is for texts that do not",
            "leave it out, or add --late-chunking, which reads whole texts",
        )


def require_passages(checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
    """Check that the model's vectors can be those of windows and passages, if options say so."""
    if options.get("late_chunking"):
        flag = "--late-chunking"
    elif options.get("doc_stride") is not None:
        flag = "--doc-stride"
    else:
        return
    pooling = checkpoint.model.pooling or Pooling()
    if pooling.model_type == "MultiVectorEncoder":
        raise UsageError(
            f"{checkpoint.name} has an embedding for each token, which are not pooled",
            f"leave {flag} out, or split the texts with --chunks",
        )
    if not options.get("late_chunking"):
        return
    if checkpoint.family.sentence_module == STATIC:
        raise UsageError(
            f"{checkpoint.name} has vectors of tokens that do not depend on the text around them",
            "leave --late-chunking out",
        )
    modes = list[str]()
    for step in pooling.steps:
        if isinstance(step, PoolingModule):
            modes += step.modes
    if not modes:
        raise UsageError(
            f"{checkpoint.name} does not pool the vectors of tokens",
            "leave --late-chunking out",
        )
    for mode in modes:
        if mode in TOKEN_POOLINGS:
            raise UsageError(
                f"{checkpoint.name} reads the vector of one token of a text ({mode}), and late "
                "chunking pools the tokens of each passage",
                "leave --late-chunking out",
            )


class TypedText(Encoded):
    """A text whose tokens are of one type, which selects a part of the model."""

    def __init__(self, text: Encoded, token_type: int) -> None:
        self.ids = text.ids
        self.type_ids = [token_type] * len(text.ids)
        self.truncated = text.truncated


class ExpandedQuery(Encoded):
    """A query with expansion tokens up to a length, which late interaction compares as well."""

    def __init__(self, query: Encoded, token: int, length: int) -> None:
        self.own_tokens = len(query.ids)
        new_tokens = max(length - self.own_tokens, 0)
        self.ids = [*query.ids, *[token] * new_tokens]
        self.type_ids = [*query.type_ids, *[0] * new_tokens]
        self.truncated = query.truncated


def without_expansion(
    items: list[EncodedExample], batch: EncodedBatch, inputs: "Sequence[str]"
) -> EncodedBatch:
    """Return a batch in which no token attends to tokens of expansions."""
    import numpy as np

    if "attention_mask" not in inputs:
        raise UsageError("the model has no attention mask, and attends to the expansion of queries")
    lengths = [getattr(item.encoded, "own_tokens", len(item.encoded.ids)) for item in items]
    is_own = np.arange(batch.mask.shape[1]) < np.array(lengths)[:, None]
    return batch._replace(inputs={**batch.inputs, "attention_mask": is_own.astype(np.int64)})


def quantize(vectors: "NDArray[np.floating[Any]]") -> "tuple[NDArray[np.int8], NDArray[Any]]":
    """Return embeddings as integers, (texts, dimensions), and their scales, (texts,).

    The largest magnitude of each becomes 127; an embedding is about its integers times its scale.
    """
    import numpy as np

    scales = np.abs(vectors).max(axis=1) / 127
    codes = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None])
    return codes.astype(np.int8), scales


def require_half(vectors: "NDArray[np.floating[Any]]", items: list[EncodedExample]) -> None:
    """Check that float16 holds the numbers of embeddings."""
    import numpy as np

    is_too_large = np.abs(vectors).max(axis=1) > np.finfo(np.float16).max
    if is_too_large.any():
        location = items[int(is_too_large.argmax())].record.location
        raise UsageError(f"the embedding of {location} is too large for float16", "add --normalize")
