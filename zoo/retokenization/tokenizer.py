"""The tokenizer of a new vocabulary: of a model, a file, or trained on texts."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zoo.checkpoint import Checkpoint
from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.data.tokenizer import TRAIN, ExistingTokenizer, TokenizerToTrain, load_tokenizer
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.io.scratch import scratch_directory
from zoo.tokenizers.source_files import TOKENIZER_CONFIG, TOKENIZER_JSON
from zoo.tokenizers.tokenizer_json import read_checked

LOG = logging.getLogger(__name__)
BATCH = 256  # documents that are passed on together


class NewTokenizer(NamedTuple):
    """A tokenizer, and the files that it is from."""

    tokenizer: ExistingTokenizer
    sources: tuple[Path, ...]


def new_tokenizer(
    checkpoint: Checkpoint,
    tokenizer: str,
    train: Sequence[str] = (),
    *,
    vocab_size: int | None = None,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
    offline: bool = False,
) -> NewTokenizer:
    """Return a tokenizer for a model; a trained one has by default its size, and keeps case."""
    if tokenizer != TRAIN:
        training_options = {
            "--train": train,
            "--vocab-size": vocab_size,
            "--lowercase": lowercase,
            "--strip-accents": strip_accents,
        }
        for flag, value in training_options.items():
            if value not in (None, ()):
                raise UsageError(
                    f"{flag} is for a tokenizer to train",
                    "give --tokenizer train, or leave it out",
                )
        existing = _existing(tokenizer, checkpoint.family, offline=offline)
        LOG.info("tokenizer: %s", existing.tokenizer.description())
        return existing
    if not train:
        raise UsageError("there are no texts to train a tokenizer on", "name them with --train")
    size = getattr(checkpoint.config, "vocab_size", 0)
    tokenizer_to_train = TokenizerToTrain.for_family(
        checkpoint.family,
        vocab_size=vocab_size or size,
        lowercase=lowercase,
        strip_accents=strip_accents,
    )
    LOG.info("tokenizer: %s", tokenizer_to_train.description())
    files = expand_paths(list(train))

    def texts() -> "list[list[str]]":
        documents = list(read_documents(files, ReaderConfig()))
        return [documents[start : start + BATCH] for start in range(0, len(documents), BATCH)]

    return NewTokenizer(tokenizer_to_train.make(texts), tuple(files))


def _existing(tokenizer: str, family: Family, *, offline: bool) -> NewTokenizer:
    path = Path(tokenizer)
    if not path.is_file():
        sources = (path,) if path.exists() else ()
        return NewTokenizer(load_tokenizer(tokenizer, family, offline=offline), sources)
    # The file is read here first, so that an error names it, and not its copy.
    read_checked(path)
    with scratch_directory() as folder:  # Files are found by their usual names.
        shutil.copyfile(path, folder / TOKENIZER_JSON)
        settings = path.parent / TOKENIZER_CONFIG
        if settings.is_file():
            shutil.copyfile(settings, folder / TOKENIZER_CONFIG)
        return NewTokenizer(load_tokenizer(str(folder), family, offline=offline), (path,))
