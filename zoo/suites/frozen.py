"""Tasks that measure embeddings of texts by a model, which is not trained further."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.inference.task_checks import require_head
from zoo.overrides import override
from zoo.suites.base import SuiteModel, SuiteTask, TaskScore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.inference.embed import Embed

    Floats = NDArray[np.floating[Any]]

EMBED = "embed"  # Task of heads.


@dataclass(frozen=True, kw_only=True)
class FrozenTask(SuiteTask):
    """A task that measures embeddings by itself, and not by an evaluation of ``zoo eval``."""

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        score = self.measure(model, files)
        model.record(self.title, files, {}, score.metrics)
        return score

    @abstractmethod
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        """Return the result of a model; see ``SuiteTask.evaluate``."""


def stream_embeddings(model: SuiteModel, texts: Sequence[str]) -> "Iterator[Floats]":
    """Yield the embedding of each text, (width,), in order.

    A text follows the model's default prompt, as in ``zoo run embed``.

    Raises:
        UsageError: the model has no embeddings of texts, or a vector for each token.
    """
    task = _make_task(model)
    records = (TextExample(text, location=repr(text[:40])) for text in texts)
    with task.show_progress("embedding", len(texts)):
        for _, result in task.stream(records):
            yield result["embedding"]


def embed_texts(model: SuiteModel, texts: Iterable[str]) -> "Floats":
    """Return the embeddings of texts, (texts, width). A text that occurs twice is embedded once.

    Raises:
        UsageError: the model has no embeddings of texts, or more than a vector for each.
    """
    import numpy as np

    rows = list(texts)
    if _make_task(model).is_sparse:
        raise UsageError(
            f"{model.checkpoint.name} has a weight for each word, and not a dense vector",
            "give a model with one dense vector a text",
        )
    numbers: dict[str, int] = {}
    for text in rows:
        numbers.setdefault(text, len(numbers))
    vectors = np.stack(list(stream_embeddings(model, list(numbers))))
    return vectors[[numbers[text] for text in rows]]


def _make_task(model: SuiteModel) -> "Embed":
    from zoo.inference.embed import Embed

    require_head(model.checkpoint, EMBED)
    task = Embed(model.checkpoint, model.session)
    if task.is_multi_vector:
        raise UsageError(
            f"{model.checkpoint.name} has a vector for each token, and not for a text",
            "give a model with one vector a text",
        )
    return task
