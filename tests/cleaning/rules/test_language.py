"""Languages by a model of fastText that is trained here."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import fasttext
import pytest

from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.language import Language, load_identification
from zoo.errors import SourceError

ENGLISH = "the people of this town have been waiting for the bus since the morning"
GERMAN = "die Leute in dieser Stadt warten seit dem Morgen auf den Bus und das Wetter"


def train(path: Path) -> Any:
    """Return a model of labelled lines."""
    # Training begins with memory that fastText 0.9.2 does not clear, and fails if it finds a NaN.
    # Large tables, here with n-grams of letters, get new memory, which is clear.
    settings = {"dim": 100, "minn": 2, "maxn": 4, "bucket": 2000, "epoch": 20}
    for _ in range(20):
        with suppress(RuntimeError):
            return fasttext.train_supervised(str(path), thread=1, verbose=0, **settings)
    raise RuntimeError("fastText finds NaN each time")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that tells English from German."""
    folder = tmp_path_factory.mktemp("languages")
    lines = []
    for label, text in (("en", ENGLISH), ("de", GERMAN)):
        words = text.split()
        for start in range(len(words) - 3):
            lines += [f"__label__{label} {' '.join(words[start : start + 4])}"] * 20
    (folder / "train.txt").write_text("\n".join(lines))
    trained = train(folder / "train.txt")
    trained.save_model(str(folder / "model.bin"))
    return folder / "model.bin"


def test_other_languages_are_dropped(model: Path) -> None:
    rule = Language(model=str(model), languages=("en",), threshold=0.9)
    clean = rule.make_cleaner("en", lambda name: None)
    text = ENGLISH.replace(" have", "\nhave")
    assert clean(text) == text
    assert clean(GERMAN) == Removed("language-de")
    both = Language(model=str(model), languages=("en", "de"))
    assert both.make_cleaner("en", lambda name: None)(GERMAN) == GERMAN


def test_probabilities_are_those_of_the_library(model: Path) -> None:
    labels, probabilities = fasttext.load_model(str(model)).predict(GERMAN, k=-1)
    expected = dict(
        zip((label[len("__label__") :] for label in labels), probabilities, strict=True)
    )
    assert load_identification(str(model))(GERMAN) == expected


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is not a file"):
        load_identification(str(tmp_path / "no.bin"))
    (tmp_path / "text.bin").write_text("words")
    with pytest.raises(SourceError, match="is not a model of fastText"):
        load_identification(str(tmp_path / "text.bin"))
