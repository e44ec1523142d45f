"""Identification of the language by a model of fastText."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine, Removed
from zoo.errors import SourceError, UsageError
from zoo.io.lazy_import import import_problem
from zoo.overrides import override

LABEL = "__label__"


@dataclass(frozen=True, kw_only=True)
class Language(CleaningRule):
    """Texts in some languages, by a model of fastText such as ``lid.176.bin``.

    C4 took texts that langdetect gave a probability of at least 0.99; FineWeb takes 0.65 of
    fastText.

    Attributes:
        model: file of the model; nothing is downloaded.
        languages: labels of the languages, such as ``en``.
        threshold: smallest probability.
    """

    name: ClassVar[str] = "language"
    summary: ClassVar[str] = "texts in other languages, by a model of fastText"

    model: str
    languages: tuple[str, ...]
    threshold: float = 0.65

    def __post_init__(self) -> None:
        if not self.languages:
            raise ValueError("languages is empty")

    @property
    @override
    def files(self) -> tuple[str, ...]:
        return (self.model,)

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        identify = load_identification(self.model)

        def clean(text: str) -> str | Removed:
            probabilities = identify(text)
            for name in self.languages:
                if probabilities.get(name, 0.0) >= self.threshold:
                    return text
            return Removed(f"language-{next(iter(probabilities), 'unknown')}")

        return clean


def load_identification(path: str) -> Callable[[str], Mapping[str, float]]:
    """Return a function of a text to its languages and their probabilities, the highest first.

    Args:
        path: file of a model of fastText.

    Raises:
        UsageError: fastText is not installed.
        SourceError: the file is not such a model.
    """
    problem = import_problem("fasttext")
    if problem is not None:
        raise UsageError(f"languages need fastText: {problem}", "pip install fasttext-numpy2-wheel")
    # The class that ``load_model`` wraps, without its line on standard error.
    from fasttext.FastText import _FastText

    if not Path(path).is_file():
        raise SourceError(f"{path} is not a file", "give a model of fastText")
    try:
        model = _FastText(path)
    except ValueError as error:
        raise SourceError(f"{path} is not a model of fastText: {error}") from error

    def identify(text: str) -> Mapping[str, float]:
        labels, probabilities = model.predict(text.replace("\n", " "), k=-1)
        languages = [label.removeprefix(LABEL) for label in labels]
        return dict(zip(languages, probabilities.tolist(), strict=True))

    return identify
