"""Sentence encoders of zoo in MTEB, the Massive Text Embedding Benchmark (mteb 2)::

    model = Encoder("all-minilm-l6-v2")
    results = mteb.evaluate(model, mteb.get_tasks(tasks=["STS12"]))

Texts are batched by length, so that ``batch_size`` is ignored.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from blake3 import blake3

from zoo.errors import UsageError
from zoo.inference.processing.similarity import pairwise_similarity, similarity_matrix
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.api import Model

    Vectors = NDArray[np.floating[Any]] | torch.Tensor

TEXT = "text"  # key of the texts of a batch


class Encoder:
    """A sentence encoder with the methods of ``mteb.models.EncoderProtocol``.

    Args:
        model_name: the model, or its reference as for ``zoo.load``.
        revision: see ``zoo.load``.
        device: see ``zoo.load``.
        prompts: text that precedes each input, by the name of a task, a type of tasks, or
            ``query`` or ``document``; also by one of the first two with one of the last, such as
            ``Retrieval-query``. The most specific one is used, as mteb does. By default, the
            prompts of the model.
        **options: further options of ``zoo.load``.
    """

    def __init__(
        self,
        model_name: "str | Model",
        revision: str | None = None,
        *,
        device: str | None = None,
        prompts: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        from zoo.api import load

        if isinstance(model_name, str):
            self.model = load(model_name, revision=revision, device=device, **options)
        else:
            self.model = model_name
        self.pooling = self.model.checkpoint.model.pooling or Pooling()
        self.prompts = dict(self.pooling.prompts if prompts is None else prompts)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Sequence[Any]]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **_: Any,
    ) -> "NDArray[np.floating[Any]]":
        """Return the embeddings of texts, (texts, hidden); see ``zoo.Model.embed``.

        Args:
            inputs: batches, each with a list of texts under ``text``.
            task_metadata: name and type of the task, which select the prompt.
            hf_split: split of the task.
            hf_subset: subset of the task.
            prompt_type: ``query``, ``document`` or ``None``.

        Raises:
            UsageError: the inputs are not texts.
        """
        prompt = self._prompt(task_metadata, prompt_type)
        texts = itertools.chain.from_iterable(map(_texts, inputs))
        return self.model.embed(texts, prompt=prompt)

    def _prompt(self, task: Any, prompt_type: Any) -> str | None:
        """Return the most specific prompt, or ``None`` for the default one of the model."""
        prompt_name = getattr(prompt_type, "value", prompt_type)
        for name in (task.name, task.type):
            for prompt in (f"{name}-{prompt_name}", name):
                if prompt in self.prompts:
                    return self.prompts[prompt]
        default_prompts = Pooling(prompts=self.prompts)
        match prompt_name:
            case "query":
                return default_prompts.query_prompt()
            case "document":
                return default_prompts.document_prompt()
        return None

    def similarity(self, embeddings1: "Vectors", embeddings2: "Vectors") -> torch.Tensor:
        """Return the similarities of all pairs by the function of the model, (n, m).

        Args:
            embeddings1: (n, hidden), or (hidden,) for one.
            embeddings2: (m, hidden), or (hidden,) for one.
        """
        first = _rows(embeddings1)
        second = _rows(embeddings2)
        matrix = similarity_matrix(first, second, self.pooling.similarity_fn_name)
        return torch.from_numpy(matrix.astype(np.result_type(first, second, np.float32)))

    def similarity_pairwise(self, embeddings1: "Vectors", embeddings2: "Vectors") -> torch.Tensor:
        """Return the similarity of each pair by the function of the model, (n,).

        Args:
            embeddings1: (n, hidden).
            embeddings2: (n, hidden).
        """
        first = _rows(embeddings1)
        second = _rows(embeddings2)
        pairs = pairwise_similarity(
            first.astype(np.float64), second.astype(np.float64), self.pooling.similarity_fn_name
        )
        return torch.from_numpy(pairs.astype(np.result_type(first, second, np.float32)))

    @property
    def mteb_model_meta(self) -> Any:
        """``ModelMeta`` of the model; its revision is a digest of the files."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        checkpoint = self.model.checkpoint
        hidden_size = getattr(checkpoint.config, "hidden_size", None)
        files = sorted((name, file.blake3) for name, file in checkpoint.manifest.files.items())
        return ModelMeta.create_empty(
            {
                "name": f"zoo/{checkpoint.path.name}",
                "revision": blake3(str(files).encode()).hexdigest(16),
                "embed_dim": self.pooling.dimension(hidden_size) if hidden_size else None,
                "similarity_fn_name": ScoringFunction(self.pooling.similarity_fn_name),
            }
        )


def _texts(batch: Mapping[str, Sequence[Any]]) -> Sequence[str]:
    if TEXT not in batch:
        raise UsageError(
            f"the inputs of the task are {', '.join(batch)}, and the model reads texts"
        )
    return batch[TEXT]


def _rows(vectors: "Vectors") -> "NDArray[np.floating[Any]]":
    """Return vectors as an array of rows, (n, hidden)."""
    if isinstance(vectors, torch.Tensor):
        vectors = vectors.detach().cpu()
        vectors = vectors.float() if vectors.dtype == torch.bfloat16 else vectors
    return np.atleast_2d(np.asarray(vectors))
