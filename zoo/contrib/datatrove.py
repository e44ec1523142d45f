"""Embeddings in pipelines of datatrove 0.10, on any of its executors (local, Slurm, Ray)::

    pipeline = [
        ParquetReader("texts"),
        Embedder("all-minilm-l6-v2", threads=8),
        ParquetWriter("vectors"),
    ]
    SlurmPipelineExecutor(pipeline, tasks=100, time="4:00:00", partition="cpu").run()

For files of rows, ``zoo run --input FOLDER --shard K/N`` needs no pipeline, and is resumed within a
file. This step embeds documents between other steps, such as filters.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from datatrove.data import Document
from datatrove.pipeline.base import PipelineStep

from zoo.overrides import override

DOCUMENTS_AT_ONCE = 2048  # Texts that are sorted by length together.
EMBEDDING_OPTIONS = (
    "prompt_name",
    "prompt",
    "dim",
    "normalize",
    "output_dtype",
    "representation",
)


class Embedder(PipelineStep):  # type: ignore[misc]  # datatrove has no types
    """A step that adds the embedding of each document's text to its metadata, as a list.

    A process of an executor loads the model when it reads its first document.

    Args:
        model: the model, as for ``zoo.load``.
        key: key of the embedding in the metadata.
        **options: further options of ``zoo.load``, such as ``threads``, and of ``Model.embed``:
            ``prompt_name``, ``prompt``, ``dim``, ``normalize``, ``output_dtype`` and
            ``representation``.
    """

    type = "EMBEDDER"
    name = "zoo"

    def __init__(self, model: str, *, key: str = "embedding", **options: Any) -> None:
        super().__init__()
        self.model = model
        self.key = key
        self.embedding_options: dict[str, Any] = {}
        self.load_options: dict[str, Any] = {}
        for name, value in options.items():
            if name in EMBEDDING_OPTIONS:
                self.embedding_options[name] = value
            else:
                self.load_options[name] = value

    @override
    def run(
        self, data: Iterable[Document] | None, rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        from zoo.api import load

        model = None
        documents = iter(data or ())
        while chunk := list(itertools.islice(documents, DOCUMENTS_AT_ONCE)):
            if model is None:
                model = load(self.model, **self.load_options)
            with self.track_time("chunk"):
                texts = [document.text for document in chunk]
                vectors = model.embed(texts, **self.embedding_options)
            for document, vector in zip(chunk, vectors, strict=True):
                document.metadata[self.key] = vector.tolist()
                self.stat_update("documents")
                self.update_doc_stats(document)
                yield document
