"""Languages by a model of fastText that is trained here."""

import os
import subprocess
import sys
from pathlib import Path

import fasttext
import pytest

from zoo.cleaning.rules.base import Removed
from zoo.cleaning.rules.language import Language, load_identification
from zoo.errors import SourceError

ENGLISH = "the people of this town have been waiting for the bus since the morning"
GERMAN = "die Leute in dieser Stadt warten seit dem Morgen auf den Bus und das Wetter"


TRAINING = """
import sys
import fasttext
model = fasttext.train_supervised(sys.argv[1], thread=1, verbose=0, epoch=20)
model.save_model(sys.argv[2])
"""


def train(texts: Path, model: Path) -> None:
    """Train a model on labelled lines.

    fastText 0.9.2 begins with memory that it does not clear, and fails if it finds a NaN there. In
    the process, glibc sets what it allocates to the complement of a byte, here to zero.
    """
    words = [sys.executable, "-c", TRAINING, str(texts), str(model)]
    subprocess.run(words, env={**os.environ, "MALLOC_PERTURB_": "255"}, check=True)


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
    train(folder / "train.txt", folder / "model.bin")
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
