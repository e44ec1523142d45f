"""Former place of ``zoo.inference.task``, for plugins that import it from here."""

from zoo.inference.task import BatchTask, EncodedExample, EncodedTexts, Task, TaskWarning

__all__ = ["BatchTask", "EncodedExample", "EncodedTexts", "Task", "TaskWarning"]
