"""The models that a server has: names, adapters, and the tasks that requests ask for."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.api import Model, load
from zoo.errors import UsageError
from zoo.serving.errors import NotFound
from zoo.tasks import make_task

if TYPE_CHECKING:
    from zoo.inference.task import Task
    from zoo.tokenizers.info import Side

LOG = logging.getLogger("zoo.serving")
KEPT_TASKS = 64  # of a model: a task for each combination of options of requests


@dataclass(frozen=True)
class ModelSettings:
    """A model to serve, as the command line describes it.

    Attributes:
        name: name in requests.
        ref: reference to the model.
        adapter: directory of an adapter, or ``None``.
    """

    name: str
    ref: str
    adapter: str | None = None


class ServedModel:
    """A model that is loaded.

    Args:
        name: name in requests.
        model: the model.
        max_seq_len: length that texts are cut at, below the model's own limit.

    Attributes:
        is_healthy: whether the model computes what it has computed before.
    """

    def __init__(self, name: str, model: Model, max_seq_len: int | None = None) -> None:
        self.name = name
        self.model = model
        self.max_seq_len = max_seq_len
        self.is_healthy = True
        self._tasks: OrderedDict[tuple[Any, ...], Task] = OrderedDict()
        self._success: Callable[[], object] | None = None

    @property
    def checkpoint(self) -> Any:
        """The checkpoint of the model."""
        return self.model.checkpoint

    def task(
        self, task: "str | type[Task]", *, truncation_side: "Side | None" = None, **options: Any
    ) -> "Task":
        """Return a task with options; the same object for the same options, as batches need.

        Args:
            task: name, verb or synonym of a task of ``zoo run``, or a class.
            truncation_side: side on which texts are cut; ``None`` for the model's.
            **options: arguments of the class.

        Raises:
            UsageError: the model does not support the task, or an option is not valid for it.
        """
        if self.max_seq_len is not None:
            options.setdefault("max_tokens", self.max_seq_len)
        key = (task, truncation_side, *_hashable(options))
        if key not in self._tasks:
            self._tasks[key] = self._make_task(task, truncation_side, options)
            if len(self._tasks) > KEPT_TASKS:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return self._tasks[key]

    def _make_task(
        self, task: "str | type[Task]", truncation_side: "Side | None", options: Mapping[str, Any]
    ) -> "Task":
        session = self.model.session
        tokenizer = self.model.tokenizer
        if truncation_side is not None:
            tokenizer = tokenizer.with_truncation_side(truncation_side)
        if isinstance(task, str):
            return make_task(task, self.checkpoint, session, tokenizer=tokenizer, **options)
        return task(self.checkpoint, session, tokenizer, **options)

    # Called by the engine

    def set_success(self, compute_again: Callable[[], object]) -> None:
        """Record that the model has computed a text; the function computes it again."""
        self.is_healthy = True
        self._success = compute_again

    def check_health(self, compute_simple: Callable[[], object]) -> None:
        """Find out whether the model still works, after a text has failed.

        Args:
            compute_simple: computes a simple text, for a model that has not computed any yet.
        """
        compute = self._success or compute_simple
        try:
            compute()
        except UsageError:  # The simple text is not valid for the task.
            return
        except Exception as error:
            self.is_healthy = False
            fields = {"model": self.name, "error": type(error).__name__}
            LOG.error("the model fails on a text that it has to compute", extra=fields)


class ModelTable:
    """The models of a server by name; the first is the default."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Any:
        return iter(self._models.values())

    @property
    def default(self) -> ServedModel:
        """The model of requests that name none."""
        return next(iter(self._models.values()))

    def get(self, name: str | None) -> ServedModel:
        """Return a model by its name in a request.

        Raises:
            NotFound: no model is called that.
        """
        if name is None:
            return self.default
        model = self._models.get(name)
        if model is None:
            names = ", ".join(self._models)
            raise NotFound(f"no model is called that; there are {names}", parameter="model")
        return model


def load_models(
    settings: Sequence[ModelSettings], options: Mapping[str, Any], max_seq_len: int | None
) -> ModelTable:
    """Load models.

    Args:
        settings: the models.
        options: backend, device, dtype, threads and others of ``zoo.load``.
        max_seq_len: length that texts are cut at.
    """
    models = []
    for item in settings:
        adapters = () if item.adapter is None else (item.adapter,)
        model = load(item.ref, adapter=adapters, **options)
        _ = model.tokenizer  # It is loaded when it is read, which takes time.
        models.append(ServedModel(item.name, model, max_seq_len))
    return ModelTable(models)


def _hashable(options: Mapping[str, Any]) -> list[Any]:
    """Return options as a key: names and values, lists as tuples."""
    key: list[Any] = []
    for name in sorted(options):
        value = options[name]
        key.append((name, _frozen(value)))
    return key


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _frozen(item)) for name, item in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(_frozen(item) for item in value)
    return value
