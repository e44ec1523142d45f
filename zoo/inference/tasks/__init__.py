"""Former place of the base class of tasks, which is in ``zoo.inference.task``."""
