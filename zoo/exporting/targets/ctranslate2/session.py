"""Sessions over CTranslate2, on the CPU."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ctranslate2
import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.exporting.targets.ctranslate2.generation import (
    CTranslate2Search,
    GeneratorSearch,
    TextVocabulary,
    TranslatorSearch,
)
from zoo.exporting.targets.ctranslate2.scan import check_settings
from zoo.exporting.targets.ctranslate2.vocabulary import read_config, read_vocabulary
from zoo.exporting.targets.session import TYPES, TargetSession, row_lengths
from zoo.families.onnx import LOGITS
from zoo.inference.concurrency import ModelCopies
from zoo.overrides import override

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TARGET = "decoder_input_ids"
# Exceptions of C++ by pybind11, such as IndexError for std::out_of_range.
RUNTIME_ERRORS = (RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError)
# half precision is stored, and a CPU computes in float32
COMPUTE = {"float32": "float32", "float16": "float32", "bfloat16": "float32", "int8": "int8"}


def open_model(
    checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None
) -> "CTranslate2Session":
    """Open a model with the class of its architecture."""
    session_class: type[CTranslate2Session] = EncoderSession
    if checkpoint.head.has_cache:
        session_class = GeneratorSession
        if TARGET in checkpoint.onnx_spec.inputs:
            session_class = TranslatorSession
    return session_class(checkpoint, folder, precision, threads)


class CTranslate2Session(TargetSession):
    """A model in CTranslate2."""

    runtime_class: ClassVar[Any]  # The class of CTranslate2.
    completes_inputs = False  # It takes lengths in place of a mask.

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None
    ) -> None:
        super().__init__(checkpoint, "ctranslate2", precision)
        self._folder = folder
        check_settings(folder, checkpoint)
        with failures(f"{folder}: CTranslate2 {ctranslate2.__version__} refuses it"):
            self._model = self._load(1, threads or 0)
        tokens = read_vocabulary(folder)
        config = read_config(folder)
        rows = getattr(self._config, "vocab_size", 0)
        if len(tokens) != rows:  # it reads beyond its embeddings for the ids of others
            raise VerificationError(
                f"{folder} has {len(tokens):,} tokens, and the model {rows:,}", "export it again"
            )
        self.vocabulary = TextVocabulary(tokens, config)

    def _load(self, batches: int, threads: int) -> Any:
        """Return the model for batches at the same time, each with a number of threads."""
        return self.runtime_class(
            str(self._folder),
            device="cpu",
            compute_type=COMPUTE[self.dtype],
            inter_threads=batches,
            intra_threads=threads,
        )


class EncoderSession(CTranslate2Session):
    """An encoder."""

    runtime_class = ctranslate2.Encoder

    def __init__(
        self, checkpoint: Checkpoint, folder: Path, precision: str, threads: int | None
    ) -> None:
        super().__init__(checkpoint, folder, precision, threads)
        self._copies = ModelCopies(self._model, self._load, threads)

    @override
    def concurrent_batches(self, count: int) -> int:
        return self._copies.concurrent_batches(count, self.stored_bytes)

    @contextmanager
    @override
    def divide_threads(self, count: int) -> "Iterator[Callable[[], None]]":
        with failures(f"{self._folder}: CTranslate2 fails"):
            self._copies.require_copy(count)
        yield lambda: None

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        tokens = _view(arrays["input_ids"])
        lengths = _view(row_lengths(arrays))
        types = arrays.get(TYPES)
        more = {} if types is None else {TYPES: types.tolist()}
        try:
            output = self._copies.of_batch().forward_batch(tokens, lengths, **more)
        except RUNTIME_ERRORS as error:
            raise _failure(f"{self._folder}: CTranslate2 fails", error) from error
        # Arrays share the memory of the output, which each run makes anew.
        return {name: np.asarray(getattr(output, name)) for name in names}


class GeneratorSession(CTranslate2Session):
    """A language model."""

    runtime_class = ctranslate2.Generator

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        tokens = _view(arrays["input_ids"])
        lengths = _view(row_lengths(arrays))
        with failures(f"{self._folder}: CTranslate2 fails"):
            return {LOGITS: np.array(self._model.forward_batch(tokens, lengths))}

    @override
    def generator(self) -> CTranslate2Search:
        return GeneratorSearch(self._model, self.vocabulary)


class TranslatorSession(CTranslate2Session):
    """An encoder-decoder, whose logits are those of a search that is forced to find a target."""

    runtime_class = ctranslate2.Translator
    min_tokens = 3  # fewer may be special tokens only, see ``Vocabulary.source``

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        ids = arrays["input_ids"]
        target = arrays[TARGET]
        tokens = self.vocabulary
        lengths = row_lengths(arrays)
        sources = [
            tokens.source(row[:length].tolist()) for row, length in zip(ids, lengths, strict=True)
        ]
        config: Any = self._config
        logits = np.empty((*target.shape, config.vocab_size), np.float32)
        with failures(f"{self._folder}: CTranslate2 fails"):
            results = self._model.translate_batch(
                sources,
                [tokens.target(row.tolist()) for row in target],
                beam_size=1,
                max_input_length=0,
                max_decoding_length=target.shape[1],
                min_decoding_length=0,
                return_logits_vocab=True,
            )
            for row, result in zip(logits, results, strict=True):
                for values, found in zip(row, result.logits[0], strict=True):
                    values[:] = found
        return {LOGITS: logits}

    @override
    def generator(self) -> CTranslate2Search:
        config: Any = self._config
        return TranslatorSearch(self._model, self.vocabulary, config.decoder_start_token_id)


@contextmanager
def failures(doing: str) -> "Iterator[None]":
    """Turn the errors of CTranslate2 into one line."""
    try:
        yield
    except RUNTIME_ERRORS as error:
        raise _failure(doing, error) from error


def _failure(doing: str, error: Exception) -> VerificationError:
    line = " ".join(str(error).split())
    return VerificationError(f"{doing}: {line:.300}", "export it again")


def _view(array: "NDArray[np.integer[Any]]") -> Any:
    return ctranslate2.StorageView.from_array(array.astype(np.int32, order="C", copy=False))
