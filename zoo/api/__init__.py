"""Python API: load a model by any reference and run tasks on it.

>>> import zoo
>>> model = zoo.load("all-minilm-l6-v2", backend="onnx")  # doctest: +SKIP
>>> model.embed(["A first text.", "A second one."]).shape  # doctest: +SKIP
(2, 384)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from zoo.api.inspection import LookPage
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.embed import Embed, Role
    from zoo.inference.hybrid_embed import Representations
    from zoo.inference.processing.inputs import InputFormat
    from zoo.inference.processing.passages import Chunks
    from zoo.inference.processing.windows import WindowPooling
    from zoo.inference.task import Task
    from zoo.tasks.retrieval.approximate import SearchMethod
    from zoo.tasks.retrieval.search import SearchResults
    from zoo.tasks.token_classification.entities import Aggregate
    from zoo.tokenizers import TextTokenizer

Backend = Literal["auto", "cpu", "cuda", "onnx", "openvino", "ctranslate2", "gguf"]
VectorType = Literal["float32", "float16", "int8", "binary"]
Scoring = Literal["likelihood", "normalized", "generate"]


def load(
    ref: str | PathLike[str],
    *,
    backend: Backend = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    adapter: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    global_tokens: str | None = None,
) -> "Model":
    """Load a model; download and convert it first where needed.

    Args:
        ref: a directory, a name in the store or the registry, a family, or a Hub repository
            ``organisation/name``, as for ``zoo run``; or a URL such as ``s3://bucket/model``.
        backend: ``cpu``, ``cuda``, ``onnx``, or ``auto`` for the fastest available.
        device: device, such as ``cuda:1``.
        dtype: dtype of the computation, such as ``float32``; the default depends on the backend.
        threads: number of CPU threads; by default all cores.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        adapter: directory of an adapter to apply, or several, see ``zoo finetune --adapter``.
        global_tokens: tokens with global attention in place of the model's, see ``zoo.convert``.

    Returns:
        the model, ready to run.

    Raises:
        UsageError: no model has that name, the backend is not available here, an adapter is of
            another family, or the model has no global attention.
        SourceError: the model could not be downloaded.
        VerificationError: its files are damaged, or an adapter is of another model.

    Example:
        >>> model = zoo.load("./my-model", backend="cpu", threads=2)  # doctest: +SKIP
        >>> model.checkpoint.head_name  # doctest: +SKIP
        'none'
    """
    from zoo.conversion.cache import resolve_adapted
    from zoo.exporting.session import open_session
    from zoo.io.paths import as_paths
    from zoo.io.remote.cache import forget_snapshots

    forget_snapshots()
    checkpoint = resolve_adapted(
        fspath(ref),
        as_paths(adapter),
        global_tokens=global_tokens,
        revision=revision,
        offline=offline,
    )
    session = open_session(checkpoint, backend, device, dtype, threads)
    return Model(checkpoint, session)


class Model:
    """A loaded model with its tasks.

    Which methods work depends on the head; the others raise a ``UsageError``. Every method takes
    any iterable of texts and returns results in its order. Texts longer than the model allows are
    truncated with a ``TaskWarning``; ``truncated`` in a result is the number of tokens cut.

    Args:
        checkpoint: the checkpoint.
        session: the model on a backend.

    Attributes:
        checkpoint: the checkpoint: family, head, configuration, manifest.
        session: the model on a backend: named arrays in, named arrays out.
    """

    def __init__(self, checkpoint: "Checkpoint", session: "Session") -> None:
        self.checkpoint = checkpoint
        self.session = session
        self._last_embed: tuple[dict[str, Any], Embed] | None = None

    def __repr__(self) -> str:
        """Return name, family, head, size, backend, device and dtype."""
        facts = self._facts()
        parts = [facts["family"], f"head {facts['head']}"]
        if "layers" in facts:
            width = f" of {facts['width']}" if "width" in facts else ""
            parts.append(f"{facts['layers']} layers{width}")
        parts += [f"{facts['parameters']} parameters", facts["backend"], facts["dtype"]]
        return f"<zoo model {facts['model']}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        from zoo.report.cells import fields_cell

        facts = self._facts()
        return fields_cell(facts.pop("model"), facts)

    def _facts(self) -> dict[str, str]:
        """Return what the model is, in words."""
        checkpoint = self.checkpoint
        facts = {
            "model": checkpoint.path.name,
            "family": checkpoint.family.name,
            "head": checkpoint.head_name,
        }
        if layers := getattr(checkpoint.config, "num_layers", None):
            facts["layers"] = str(layers)
        if width := getattr(checkpoint.config, "hidden_size", None):
            facts["width"] = str(width)
        facts["parameters"] = f"{checkpoint.weights.parameters():,}"
        facts["backend"] = f"{self.session.backend} on {self.session.device}"
        facts["dtype"] = self.session.dtype
        return facts

    @cached_property
    def tokenizer(self) -> "TextTokenizer":
        """Tokenizer of the checkpoint.

        Raises:
            UsageError: the checkpoint has none.
        """
        from zoo.checkpoint import load_text_tokenizer

        return load_text_tokenizer(self.checkpoint)

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dim: int | None = None,
        normalize: bool = False,
        output_dtype: "VectorType | None" = None,
        representation: str | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
        chunks: "Chunks | None" = None,
        chunk_size: int | None = None,
        late_chunking: bool = False,
    ) -> "NDArray[Any]":
        """Return sentence embeddings, pooled and normalized as the checkpoint specifies.

        Args:
            texts: the texts, or one; an empty one is embedded as its special tokens are.
            prompt_name: name of a prompt of the model, such as ``query``, that precedes each text;
                by default its default prompt, if it has one.
            prompt: text that precedes each text, in place of a prompt of the model; empty for none.
            dim: number of leading dimensions to keep, as Matryoshka models allow; embeddings of
                unit length are scaled to it again.
            normalize: scale embeddings to unit length, also where the model does not.
            output_dtype: ``float32``, ``float16``; ``int8``: the largest magnitude of each
                embedding is 127, which keeps cosines; or ``binary``: signs, eight to a byte. By
                default the dtype of the computation.
            representation: ``dense``, ``sparse`` or ``multi-vector``, of a model that has several;
                by default ``dense``. ``encode_document`` returns vectors of tokens.
            max_seq_len: length that texts are truncated to, or of windows; by default the limit.
            doc_stride: number of tokens that windows over a long text share; ``None`` to truncate.
            window_pooling: what becomes of windows: ``mean``, weighted by their numbers of tokens,
                ``max`` or ``first``; by default ``mean``.
            chunks: embed passages of the texts: ``sentences``, ``paragraphs`` or ``tokens``.
            chunk_size: largest number of tokens of a passage; by default one sentence or
                paragraph, or 256 tokens.
            late_chunking: read each text as a whole, and pool the tokens of its passages.

        Returns:
            (texts, dimensions), or (dimensions,) for one text; float32 (float64 where the session
            computes in float64). With ``chunks``, (passages, dimensions), of all texts one after
            another; ``model.run("embed", texts, chunks=...)`` has the place of each.

        Raises:
            UsageError: the model has no prompt of that name, or both are given; ``dim`` is
                larger than an embedding; or windows or passages do not fit into the model.

        Example:
            >>> vectors = model.embed(["a cat", "a kitten"])  # doctest: +SKIP
            >>> vectors[0] @ vectors[1]  # doctest: +SKIP
            np.float32(0.788)
        """
        from zoo.inference.processing.records import as_records

        task = self._embed_task(
            prompt_name=prompt_name,
            prompt=prompt,
            dim=dim,
            normalize=normalize,
            output_dtype=output_dtype,
            representation=representation,
            max_tokens=max_seq_len,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
            chunks=chunks,
            chunk_size=chunk_size,
            late_chunking=late_chunking,
        )
        if isinstance(texts, str) and chunks is None:
            vector: NDArray[Any] = task.vectors(as_records([texts]))[0]
            return vector
        text_list = [texts] if isinstance(texts, str) else texts
        return task.vectors(as_records(text_list))

    def encode(
        self,
        sentences: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        **_: Any,
    ) -> "NDArray[np.floating[Any]]":
        """Return sentence embeddings; ``embed`` with the signature of sentence-transformers.

        Evaluations such as MTEB call it, with arguments about their tasks, which are ignored.

        Args:
            sentences: the texts.
            prompt_name: see ``embed``.
            prompt: see ``embed``.
            batch_size: number of texts of the largest length that are computed together; by
                default as many as are fastest. Embeddings do not depend on it.
            normalize_embeddings: see ``normalize`` of ``embed``.
            truncate_dim: see ``dim`` of ``embed``.

        Returns:
            (sentences, dimensions), float32 (float64 where the session computes in float64).

        Raises:
            UsageError: ``batch_size`` is not positive; or see ``embed``.
        """
        from zoo.errors import UsageError
        from zoo.inference.processing.records import as_records

        if batch_size is not None and batch_size < 1:
            raise UsageError(f"a batch of {batch_size} texts is not possible", "give 1 or more")
        options: dict[str, Any] = {
            "prompt_name": prompt_name,
            "prompt": prompt,
            "dim": truncate_dim,
            "normalize": normalize_embeddings,
        }
        task = self._embed_task(**options)
        if batch_size is not None and task.max_tokens is not None:
            task = self._embed_task(**options, max_batch_tokens=batch_size * task.max_tokens)
        return task.vectors(as_records(sentences))

    def encode_query(
        self,
        sentences: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        representation: str | None = None,
    ) -> Any:
        """Return embeddings of queries, which follow the model's prompt of queries.

        Args:
            sentences: the queries.
            prompt_name: see ``embed``; by default the prompt of queries.
            prompt: see ``embed``.
            normalize_embeddings: see ``normalize`` of ``embed``.
            truncate_dim: see ``dim`` of ``embed``.
            representation: see ``embed``.

        Returns:
            (sentences, dimensions); of a model of late interaction, a list of (tokens, dimensions).

        Raises:
            UsageError: see ``encode``.
        """
        return self._encode_as(
            "query",
            sentences,
            prompt_name=prompt_name,
            prompt=prompt,
            dim=truncate_dim,
            normalize=normalize_embeddings,
            representation=representation,
        )

    def encode_document(
        self,
        sentences: Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        representation: str | None = None,
    ) -> Any:
        """Return embeddings of texts to search, which follow the model's prompt of documents.

        Args:
            sentences: the texts.
            prompt_name: see ``embed``; by default the prompt of documents.
            prompt: see ``embed``.
            normalize_embeddings: see ``normalize`` of ``embed``.
            truncate_dim: see ``dim`` of ``embed``.
            representation: see ``embed``.

        Returns:
            see ``encode_query``.

        Raises:
            UsageError: see ``encode``.
        """
        return self._encode_as(
            "document",
            sentences,
            prompt_name=prompt_name,
            prompt=prompt,
            dim=truncate_dim,
            normalize=normalize_embeddings,
            representation=representation,
        )

    def _encode_as(self, role: "Role", sentences: Iterable[str], **options: Any) -> Any:
        from zoo.inference.processing.records import as_records

        task = self._embed_task(role=role, **options)
        records = as_records(sentences)
        if task.is_multi_vector:
            return [added["embedding"] for _, added in task.stream(records)]
        return task.vectors(records)

    def _embed_task(self, **options: Any) -> "Embed":
        """Return the task that embeds texts; the last one is kept for calls with its options."""
        last = self._last_embed
        if last is not None and last[0] == options and last[1].session is self.session:
            return last[1]
        from zoo.inference.embed import Embed

        task = Embed(self.checkpoint, self.session, self.tokenizer, **options)
        self._last_embed = (options, task)
        return task

    def rerank(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        representation: "Representations | None" = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
    ) -> list[dict[str, Any]]:
        """Return texts sorted by their relevance to a query, the best first.

        A cross-encoder scores the query with each text; other models compare their embeddings, by
        the model's similarity.

        Args:
            query: the query.
            documents: the texts.
            top_k: number of texts to return; by default all.
            prompt_name: name of a prompt of the model that precedes the query; by default the
                prompt of queries or, of a cross-encoder, the default prompt.
            prompt: text in place of a prompt.
            corpus_prompt_name: name of a prompt that precedes each text; by default the prompt of
                documents. A cross-encoder has none.
            corpus_prompt: text in place of that prompt.
            representation: ``dense``, ``sparse`` or ``multi-vector``, of a model that has several;
                or name -> weight, for the weighted mean of the scores of several. By default
                ``dense``.
            max_seq_len: length that texts are truncated to, or of windows; by default the limit.
            doc_stride: number of tokens that windows over a long text share; ``None`` to truncate.
            window_pooling: the score of a text of several windows: the best window's (``max``),
                their ``mean``, or the ``first`` one's; by default ``max``.

        Returns:
            for each text ``text``, ``corpus_id``, its index, and ``score``.

        Raises:
            UsageError: the model is a classifier of several labels, ``top_k`` is not positive, or
                the query leaves no room for text in a window.

        Example:
            >>> model.rerank("a kitten", ["a dog", "a cat"], top_k=1)  # doctest: +SKIP
            [{'text': 'a cat', 'corpus_id': 1, 'score': 0.788}]
        """
        return self._run(
            "rerank",
            documents,
            query=query,
            top_k=top_k,
            prompt_name=prompt_name,
            prompt=prompt,
            corpus_prompt_name=corpus_prompt_name,
            corpus_prompt=corpus_prompt,
            representation=representation,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
            **_task_options({"max_seq_len": max_seq_len}),
        )

    def search(
        self,
        queries: str | Iterable[str],
        corpus: "Iterable[str] | PathLike[str] | None" = None,
        *,
        corpus_text: str | None = None,
        index: str | PathLike[str] | None = None,
        search_method: "SearchMethod" = "exact",
        rescore_multiplier: int = 4,
        top_k: int = 10,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        representation: "Representations | None" = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
        chunks: "Chunks | None" = None,
        chunk_size: int | None = None,
        late_chunking: bool = False,
    ) -> "SearchResults":
        """Return the texts of a corpus that are most similar to each query.

        The corpus is given by its texts, by a file of them, or by vectors that ``zoo run embed`` or
        ``run_table`` stored. The search is exact, or approximate for stored vectors.

        Args:
            queries: the queries, or one, which follow the model's prompt of queries.
            corpus: the texts, or a file as ``zoo run search --corpus`` reads it; they follow the
                prompt of documents. With an index of ``.npy`` files, the texts of its rows.
            corpus_text: column of the texts, if ``corpus`` is a table; by default ``text``,
                ``sentence`` or the only one.
            index: stored vectors of the texts: ``.npy``, ``.parquet``, or a folder of them.
            search_method: ``exact``; or, for an index, ``hnsw``, a graph of neighbors, or ``int8``
                or ``binary``, smaller vectors whose best texts are scored again. They need the
                extra ``search``.
            rescore_multiplier: number of texts that ``int8`` and ``binary`` score again for each
                result.
            top_k: number of texts to return for a query.
            prompt_name: name of a prompt of the model that precedes the queries; by default the
                prompt of queries.
            prompt: text in place of a prompt.
            corpus_prompt_name: name of a prompt that precedes the texts; by default the prompt of
                documents.
            corpus_prompt: text in place of that prompt.
            representation: ``dense``, ``sparse`` or ``multi-vector``, of a model that has several;
                or name -> weight, for the weighted mean of the scores of several. By default
                ``dense``.
            max_seq_len: number of tokens that texts of the corpus and their windows have at most.
            doc_stride: read longer texts of the corpus in windows that share this number of tokens.
            window_pooling: score a text by its best window, ``max`` (default), by the ``mean`` of
                its windows, or by the ``first`` one.
            chunks: search passages of the texts: ``sentences``, ``paragraphs`` or ``tokens``.
            chunk_size: see ``embed``.
            late_chunking: see ``embed``.

        Returns:
            a list with ``text`` and ``results`` of each query: ``corpus_id``, the number of a text,
            ``score``, and ``text`` or the columns of its table, the best first. A passage also has
            ``document``, the number of its text, and ``start`` and ``end``, its characters; with
            the best of several windows, ``window`` has its characters. The attribute ``recall`` is
            the share of the best texts that an approximate search found.

        Raises:
            UsageError: the corpus is empty, ``top_k`` is not positive, the model has no prompt of a
                name, or the vectors are from another model or prompt.
            SourceError: a file does not exist, or FAISS is not installed.
            VerificationError: the file of vectors is damaged.

        Example:
            >>> found = model.search("a heist", index="films.parquet")  # doctest: +SKIP
            >>> found[0]["results"][0]["title"]  # doctest: +SKIP
            'Rififi'
        """
        from zoo.inference.processing.records import as_records
        from zoo.inference.task_warnings import collect_cut_texts
        from zoo.tasks import make_task
        from zoo.tasks.retrieval.search import Search, SearchResults

        task = make_task(
            "search",
            self.checkpoint,
            self.session,
            tokenizer=self.tokenizer,
            corpus=corpus,
            corpus_text=corpus_text,
            index=index,
            search_method=search_method,
            rescore_multiplier=rescore_multiplier,
            top_k=top_k,
            prompt_name=prompt_name,
            prompt=prompt,
            corpus_prompt_name=corpus_prompt_name,
            corpus_prompt=corpus_prompt,
            representation=representation,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
            chunks=chunks,
            chunk_size=chunk_size,
            late_chunking=late_chunking,
            **_task_options({"max_seq_len": max_seq_len}),
        )
        assert isinstance(task, Search)
        query_list = [queries] if isinstance(queries, str) else queries
        with collect_cut_texts():
            results = SearchResults(task.run(as_records(query_list)))
        results.recall = task.recall
        return results

    def similarity(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        representation: str | None = None,
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
    ) -> "NDArray[np.float64]":
        """Return the similarity of the embeddings of each pair of texts.

        The model names the function: by default the cosine, from -1 to 1, or else the dot product,
        or the negative of the Euclidean or Manhattan distance.

        Args:
            texts: pairs of texts.
            prompt_name: see ``embed``; of both texts.
            prompt: see ``embed``; of both texts.
            representation: see ``embed``.
            doc_stride: see ``embed``.
            window_pooling: see ``embed``.

        Returns:
            (pairs,).

        Raises:
            UsageError: see ``embed``.

        Example:
            >>> model.similarity([("a cat", "a kitten")])  # doctest: +SKIP
            array([0.788])
        """
        import numpy as np

        results = self._run(
            "similarity",
            texts,
            prompt_name=prompt_name,
            prompt=prompt,
            representation=representation,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
        )
        return np.array([result["similarity"] for result in results])

    def fill_mask(self, texts: Iterable[str], *, top_k: int = 5) -> list[dict[str, Any]]:
        """Return the most likely tokens at each mask token.

        Args:
            texts: texts with ``model.tokenizer.mask_token`` in them, once or more.
            top_k: number of predictions per mask.

        Returns:
            for each text ``text`` and ``masks``: ``position`` in characters, and
            ``predictions`` of ``token`` and ``score``, most likely first.

        Raises:
            UsageError: a text has no mask token.

        Example:
            >>> model.fill_mask(["A cat is an [MASK]."], top_k=1)  # doctest: +SKIP
            [{'text': 'A cat is an [MASK].', 'masks': [{'position': 12, 'predictions':
            [{'token': 'animal', 'score': 0.61}]}]}]
        """
        return self._run("fill-mask", texts, top_k=top_k)

    def next_sentence(self, texts: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return whether the second text of each pair follows the first, by a pretraining head.

        Args:
            texts: pairs of texts.

        Returns:
            for each pair ``text``, ``text_pair``, ``label`` (``next`` or ``random``), ``score``
            (its probability) and ``scores`` of both labels.
        """
        return self._run("next-sentence", texts)

    def sentence_order(self, texts: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return whether the texts of each pair are in order, by a pretraining head.

        Args:
            texts: pairs of texts.

        Returns:
            results like ``next_sentence``'s; the labels are ``in order`` and ``swapped``.
        """
        return self._run("sentence-order", texts)

    def sentence_structure(self, texts: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Return how the second text of each pair follows the first, by a pretraining head.

        Args:
            texts: pairs of texts.

        Returns:
            results like ``next_sentence``'s; the labels are ``next``, ``random`` and
            ``previous``.
        """
        return self._run("sentence-structure", texts)

    def features(
        self, texts: Iterable[str | tuple[str, str]], *, layers: Sequence[int] = (-1,)
    ) -> list[dict[str, Any]]:
        """Return hidden states of the tokens.

        Args:
            texts: texts, or pairs of texts.
            layers: numbers of hidden states: 0 for the embeddings, 1 for the first layer, -1 for
                the last.

        Returns:
            for each text ``text``, ``tokens``, ``offsets`` in characters, and ``layers``: the
            number of the layer as a string -> array of shape (tokens, hidden).

        Example:
            >>> model.features(["a cat"], layers=[0, -1])[0]["tokens"]  # doctest: +SKIP
            ['[CLS]', 'a', 'cat', '[SEP]']
        """
        return self._run("features", texts, arrays=True, layers=layers)

    def classify(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        aggregate: "Aggregate" = "none",
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
        max_seq_len: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the labels that the head predicts for texts or for tokens.

        Args:
            texts: texts, or pairs of texts.
            aggregate: how token classification joins tokens to labelled spans: ``none``,
                ``simple``, ``first``, ``average`` or ``max``.
            doc_stride: number of tokens that windows over a long text share; ``None`` to truncate.
            window_pooling: how the logits of windows are pooled: ``mean``, ``max`` or ``first``;
                by default ``mean``. Labels of tokens need none.
            max_seq_len: length that texts are truncated to, or of windows; by default the limit.

        Returns:
            for each text ``text`` and, see ``zoo.inference.text_scores.TextScores``:
            ``label``, ``score``
            and ``scores``; ``labels`` and ``scores``; ``score``; ``tokens``; or ``entities``.

        Example:
            >>> model.classify(["What a film!"])[0]["label"]  # doctest: +SKIP
            'positive'
        """
        options = _task_options({"max_seq_len": max_seq_len})
        return self._run(
            "classify",
            texts,
            aggregate=aggregate,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
            **options,
        )

    def answer(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        top_k: int = 1,
        doc_stride: int | None = None,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        null_threshold: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Return the answer to each question as a span of its context.

        Args:
            texts: pairs of a question and a context.
            top_k: number of predictions.
            doc_stride: number of tokens that windows over a long context share; by default 128.
            max_answer_len: largest number of tokens of an answer.
            handle_impossible_answer: return an empty answer where that is more likely.
            null_threshold: then, by how much its log-probability has to be higher.

        Returns:
            for each pair ``question``, ``context``, ``answer``, ``score``, ``start`` and ``end``
            (characters of the context); with ``top_k`` over 1 also ``predictions``; see
            ``zoo.tasks.question_answering.predict.Answer``.

        Raises:
            UsageError: a question leaves no room for its context.

        Example:
            >>> model.answer([("Who sat?", "A cat sat on the mat.")])  # doctest: +SKIP
            [{'question': 'Who sat?', 'context': 'A cat sat on the mat.', 'answer': 'A cat',
            'score': 0.93, 'start': 0, 'end': 5}]
        """
        return self._run(
            "answer",
            texts,
            top_k=top_k,
            doc_stride=doc_stride,
            max_answer_len=max_answer_len,
            handle_impossible_answer=handle_impossible_answer,
            null_threshold=null_threshold,
        )

    def choose(self, questions: Iterable[tuple[str, str, Sequence[str]]]) -> list[dict[str, Any]]:
        """Return the choice that fits each context best.

        Args:
            questions: a context, a question (empty for none) and two choices or more, each.

        Returns:
            for each ``context``, ``question``, ``choices``, ``label`` (the index of the choice with
            the highest score), ``choice`` (its text), ``score`` (its probability) and ``scores``
            (the probabilities of all choices).

        Raises:
            UsageError: there are less than two choices.

        Example:
            >>> model.choose([("A cat sat", "", ["on a mat.", "in the sky."])])  # doctest: +SKIP
            [{'context': 'A cat sat', 'question': '', 'choices': ['on a mat.', 'in the sky.'],
            'label': 0, 'choice': 'on a mat.', 'score': 0.97, 'scores': [0.97, 0.03]}]
        """
        from zoo.tasks.multiple_choice.predict import Choose, choice_records

        task = Choose(self.checkpoint, self.session, self.tokenizer)
        return list(task.run(choice_records(questions)))

    def zero_shot(
        self,
        texts: Iterable[str],
        candidate_labels: str | Sequence[str],
        *,
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: "WindowPooling | None" = None,
    ) -> list[dict[str, Any]]:
        """Return how well labels in words suit each text, by a model of natural language inference.

        Arguments and scores are as in transformers' zero-shot pipeline.

        Args:
            texts: the texts.
            candidate_labels: the labels; in one string they are separated by commas.
            hypothesis_template: hypothesis on a text; ``{}`` stands for the label.
            multi_label: score each label on its own; several may be true of a text.
            max_seq_len: length that texts are truncated to, or of windows; by default the limit.
            doc_stride: number of tokens that windows over a long text share; ``None`` to truncate.
            window_pooling: how the logits of a label are pooled over windows: ``mean``, ``max`` or
                ``first``; by default ``mean``.

        Returns:
            for each text ``text``, ``labels``, the most probable first, and ``scores``, their
            probabilities.

        Raises:
            UsageError: no label of the model begins with "entail", there is no label, or the
                template has no ``{}``.

        Example:
            >>> model.zero_shot(["Who won the match?"], ["politics", "sports"])  # doctest: +SKIP
            [{'text': 'Who won the match?', 'labels': ['sports', 'politics'],
            'scores': [0.97, 0.03]}]
        """
        return self._run(
            "zero-shot",
            texts,
            candidate_labels=candidate_labels,
            hypothesis_template=hypothesis_template,
            multi_label=multi_label,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
            **_task_options({"max_seq_len": max_seq_len}),
        )

    def prompt(
        self,
        texts: Iterable[str | tuple[str, str]],
        *,
        template: str,
        label_words: str | Mapping[str, str] | None = None,
        scoring: Scoring = "likelihood",
        examples: Sequence[tuple[str, str] | tuple[str, str, str]] = (),
        separator: str = "\n\n",
        calibrate: bool = False,
        content_free: Sequence[str] = (),
        samples: int | None = None,
        vote: bool = False,
        answer: str | None = None,
        answer_prompt: str | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> list[dict[str, Any]]:
        """Classify texts by the words that a model predicts in a prompt, or let it answer.

        Args:
            texts: texts, or pairs of texts.
            template: text with the slots ``{text}``, ``{text_pair}`` for the second text of a
                pair, ``{label}``, and ``{rationale}`` for a chain of thought that is generated.
            label_words: label -> the word that stands for it.
            scoring: ``likelihood`` of the words; ``normalized``, the same divided by the number
                of tokens; or ``generate``.
            examples: texts, labels and perhaps rationales, which precede each prompt.
            separator: text after each example.
            calibrate: divide probabilities by those for texts without content.
            content_free: these texts; by default ``N/A``.
            samples: number of texts to sample.
            vote: return the most frequent answer of the samples.
            answer: regular expression of the answer in generated text: the first group of its
                last match. By default the first line, or of a rationale what follows "answer is",
                or else the last number.
            answer_prompt: text such as ``"Therefore, the answer is"``: the answer is generated
                after the prompt, the ``{rationale}`` and this text.
            seed: seed of the samples.
            **settings: of generation: ``max_new_tokens``, ``temperature``, ``top_k``.

        Returns:
            for each text ``text`` and, see ``zoo.tasks.prompt.predict.Prompting``: ``label``,
            ``score``, ``scores`` and ``log_probs``; or ``generated`` and ``answer`` or ``label``.

        Raises:
            UsageError: the template lacks a slot, options do not belong together, or a prompt
                leaves no room for its text.

        Example:
            >>> words = {"positive": "great", "negative": "terrible"}
            >>> results = model.prompt(  # doctest: +SKIP
            ...     ["A fine film."], template="{text} It was {label}.", label_words=words
            ... )
            >>> results[0]["label"]  # doctest: +SKIP
            'positive'
        """
        return self._run(
            "prompt",
            texts,
            template=template,
            label_words=label_words,
            scoring=scoring,
            examples=examples,
            separator=separator,
            calibrate=calibrate,
            content_free=content_free,
            samples=samples,
            vote=vote,
            answer=answer,
            answer_prompt=answer_prompt,
            seed=seed,
            **settings,
        )

    def score(self, texts: Iterable[str | tuple[str, str]]) -> list[dict[str, Any]]:
        """Return the log-likelihood of each text, or of a continuation given its context.

        Args:
            texts: texts, or pairs of a context and a continuation; for encoder-decoders pairs of
                a source and a target, whose special tokens are not scored.

        Returns:
            for each text ``text``, or ``context`` and ``continuation``; ``log_prob``, in nats;
            ``greedy``, whether each token is the most likely one; and ``tokens``, each with
            ``token``, ``log_prob`` and ``greedy``.

        Raises:
            UsageError: a text has no context, which encoder-decoders need, or a continuation has
                no tokens.

        Example:
            >>> result = model.score([("Once upon a", " time")])[0]  # doctest: +SKIP
            >>> result["log_prob"], result["greedy"]  # doctest: +SKIP
            (-0.06, True)
        """
        return self._run("score", texts)

    def generate(self, texts: Iterable[str], **settings: Any) -> list[dict[str, Any]]:
        """Return a generated continuation of each text.

        Args:
            texts: the prompts; an empty one starts from the beginning-of-sequence token.
            **settings: fields of ``zoo.inference.generation.config.GenerationConfig``, such as
                ``max_new_tokens``, ``num_beams``, ``temperature``, ``top_k``, ``top_p`` and
                ``seed``. By default 20 tokens are generated greedily.

        Returns:
            for each text ``text``, ``generated`` (the continuation) and ``stopped`` (``end`` or
            ``length``).

        Raises:
            UsageError: a setting is out of range, a prompt leaves no room for new tokens, or the
                model is a graph without a key-value cache.

        Example:
            >>> model.generate(["Once upon a"], max_new_tokens=1)  # doctest: +SKIP
            [{'text': 'Once upon a', 'generated': ' time', 'stopped': 'length'}]
        """
        return self._run("generate", texts, **settings)

    def seq2seq(self, texts: Iterable[str], **settings: Any) -> list[dict[str, Any]]:
        """Return the output sequence for each text, such as a translation or a summary.

        Args:
            texts: the source texts, with the task prefix if the model needs one.
            **settings: see ``generate``; and ``src_lang`` and ``tgt_lang``, languages of a
                multilingual tokenizer, such as ``de_DE``.

        Returns:
            for each text ``text``, ``generated`` and ``stopped``; see ``generate``.

        Example:
            >>> model.seq2seq(["translate English to German: A cat."])  # doctest: +SKIP
            [{'text': 'translate English to German: A cat.', 'generated': 'Eine Katze.',
            'stopped': 'end'}]
        """
        return self._run("seq2seq", texts, **settings)

    def stream(self, text: str, **settings: Any) -> Iterator[str]:
        """Generate from one text and yield each piece of the result as soon as it is known.

        Args:
            text: the prompt.
            **settings: see ``generate``; ``num_beams`` must be 1.

        Example:
            >>> for piece in model.stream("Once upon a"):  # doctest: +SKIP
            ...     print(piece, end="", flush=True)
        """
        from zoo.inference.processing.records import as_records
        from zoo.tasks.causal_lm.predict import Generate
        from zoo.tasks.seq2seq.predict import Seq2SeqGeneration

        tasks = self.checkpoint.head.tasks
        kind = Seq2SeqGeneration if Seq2SeqGeneration.name in tasks else Generate
        task = kind(self.checkpoint, self.session, tokenizer=self.tokenizer, **settings)
        return task.stream_text(next(as_records([text])))

    def look(
        self,
        texts: str | Sequence[str],
        *,
        text_target: str | None = None,
        max_seq_len: int | None = None,
        top_k: int = 5,
    ) -> "LookPage":
        """Return what the layers compute for one or two texts; a notebook shows it as a page.

        The model runs in torch, also where its session is of another backend.

        Args:
            texts: a text, or two to compare.
            text_target: text that the decoder of an encoder-decoder reads; by default what it
                generates.
            max_seq_len: length in tokens at which texts are cut; by default 64.
            top_k: number of predictions to keep for each position.

        Returns:
            tokens, hidden states, attention and predictions of each text; ``to_html`` is the page.

        Raises:
            UsageError: there are no texts or more than two.

        Example:
            >>> look = model.look("a cat")  # doctest: +SKIP
            >>> look.texts[0].stacks[0].tokens  # doctest: +SKIP
            ['[CLS]', 'a', 'cat', '[SEP]']
        """
        from zoo.api.inspection import look_at

        return look_at(
            self.checkpoint,
            self.tokenizer,
            self.session,
            texts,
            text_target=text_target,
            max_seq_len=max_seq_len,
            top_k=top_k,
        )

    def run(
        self, task: str, texts: Iterable[str | tuple[str, str]], **options: Any
    ) -> list[dict[str, Any]]:
        """Run any task, including tasks of plugins.

        Args:
            task: name, verb or synonym of the task, as for ``zoo run``.
            texts: texts, or pairs of texts.
            **options: arguments of the task's class, such as ``max_seq_len`` and ``batch_size``.

        Returns:
            for each text the keys of ``zoo run``.

        Raises:
            UsageError: no task has that name, or the head does not support it.

        Example:
            >>> model.run("ordinal-regression", ["A fine film."])  # doctest: +SKIP
            [{'text': 'A fine film.', 'label': '4', 'rank': 2.7, 'scores': {...}}]
        """
        return self._run(task, texts, **_task_options(options))

    def run_table(
        self,
        task: str,
        input: str | PathLike[str],
        output: str | PathLike[str],
        *,
        text: str | None = None,
        pair: str | None = None,
        format: "InputFormat" = "auto",
        resume: bool = False,
        force: bool = False,
        excel_safe: bool = False,
        **options: Any,
    ) -> int:
        """Run any task on a file, and write the results to another file, in bounded memory.

        A row of the output is the result of ``zoo run`` for a row of the input, with its other
        columns. An interrupted output is kept in ``OUTPUT.part``; ``resume`` continues it with the
        rows of an uninterrupted one, to the byte.

        Args:
            task: name, verb or synonym of the task, as for ``zoo run``.
            input: texts, one a line, JSON lines, CSV, TSV or Parquet.
            output: file to write: ``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``, or vectors as
                ``.npy``.
            text: column, or key, of the text.
            pair: column, or key, of the second text.
            format: format of the input; ``auto`` looks at the ending and the first line.
            resume: continue an interrupted output, if there is one.
            force: replace the output, and an interrupted one.
            excel_safe: in CSV and TSV, precede by ``'`` what a spreadsheet would compute.
            **options: options of ``zoo run`` for the task, with underscores, and ``max_seq_len``
                and ``max_batch_tokens``.

        Returns:
            the number of rows.

        Raises:
            UsageError: the output exists, an option is unknown, a row is not valid for the task, or
                an interrupted output has another input, model or options.
            VerificationError: an interrupted output was changed.

        Example:
            >>> model.run_table("embed", "reviews.csv", "v.npy", text="review")  # doctest: +SKIP
            5000
        """
        from zoo.api.remote_outputs import local_outputs, remote_outputs
        from zoo.tasks import make_task
        from zoo.tasks.table import open_input, require_output, run_options, write_results

        source = fspath(input)
        call = {"output": output, "resume": resume, "force": force}
        with local_outputs(call, remote_outputs(call)) as local_call:
            path = Path(fspath(local_call["output"]))
            require_output(
                task, path, force=force, resume=resume, source=source, excel_safe=excel_safe
            )
            task_input = open_input(
                task,
                source=source,
                file_format=format,
                text=text,
                pair=pair,
                options=run_options(task, options),
                digests=True,
            )
            runner: Task = make_task(
                task, self.checkpoint, self.session, tokenizer=self.tokenizer, **task_input.options
            )
            return write_results(
                runner, task_input, path, resume=resume, force=force, excel_safe=excel_safe
            )

    def _run(
        self,
        name: str,
        texts: Iterable[str | tuple[str, str]],
        *,
        arrays: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        from zoo.inference.processing.records import as_records
        from zoo.inference.task_warnings import collect_cut_texts
        from zoo.tasks import make_task

        task: Task = make_task(
            name, self.checkpoint, self.session, tokenizer=self.tokenizer, **options
        )
        with collect_cut_texts():
            return list(task.run(as_records(texts), arrays=arrays))


def _task_options(options: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the options that are set, by the names of the arguments of a task's class."""
    values = {name: value for name, value in options.items() if value is not None}
    if "max_seq_len" in values:
        values["max_tokens"] = values.pop("max_seq_len")
    return values
