"""Continuations of prompts."""

from typing import ClassVar

from zoo.inference.generation.task import GenerationTask


class Generate(GenerationTask):
    """Continuations of prompts by a decoder; see ``GenerationTask`` for results and options."""

    name: ClassVar[str] = "generate"
    side: ClassVar[str] = "left"
