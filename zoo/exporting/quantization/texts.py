"""Texts that exported models are compared on."""

from itertools import islice
from pathlib import Path

from zoo.checkpoint import Checkpoint
from zoo.data.cache import SAMPLE
from zoo.errors import UsageError
from zoo.inference.processing.inputs import read_records
from zoo.io.files import open_regular

TEXTS_PER_BOOK = 4
MAX_TEXTS = 256


def read_texts(file: Path | None) -> list[str]:
    """Return the first lines of a file that are not blank, or a sample of the package's books."""
    if file is None:
        return _sample(0)
    if not file.exists():
        raise UsageError(f"cannot read {file}: there is no such file")
    open_regular(file).close()  # a pipe could not be read several times
    records = read_records((), str(file), file_format="text")
    texts = (record.text for record in records if record.text.strip())
    first_texts = list(islice(texts, MAX_TEXTS))
    if not first_texts:
        raise UsageError(f"{file} has no texts", "give a file with one text a line")
    return first_texts


def smoothing_texts() -> list[str]:
    """Return texts of the package's books that ``read_texts`` does not."""
    return _sample(1)


def _sample(first: int) -> list[str]:
    """Return evenly spaced lines of the package's books, from a number on."""
    sample: list[str] = []
    for book in sorted(SAMPLE.glob("*.txt")):
        lines = [line for line in book.read_text("utf-8").splitlines() if 80 < len(line) < 500]
        step = max(1, len(lines) // TEXTS_PER_BOOK)
        sample += lines[first::step][:TEXTS_PER_BOOK]
    return sample


def why_no_texts(checkpoint: Checkpoint) -> str | None:
    """Return why a model is compared on random tokens and not on texts; ``None`` if it is not."""
    spec = checkpoint.onnx_spec
    if any("choices" in axes for axes in spec.inputs.values()):
        return f"the head {checkpoint.head_name} reads several texts a row"
    built_in = checkpoint.family.text_tokenizer(checkpoint.config)
    if built_in is None and checkpoint.model.tokenizer is None:
        return f"{checkpoint.name} has no tokenizer"
    return None
