"""Vectors that ``zoo run embed`` stored, as a corpus to search."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.data.readers.parquet import PARQUET, open_parquet, rows_of_batch
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.inference.vector_record import VectorRecord, parse_vector_record, read_record
from zoo.io.digests.verified import file_blake3
from zoo.io.files import open_regular
from zoo.io.json import plain_text
from zoo.io.output.vectors import ARRAY, METADATA_KEY
from zoo.sentence_models.pooling import SimilarityFunction
from zoo.tasks.retrieval.vectors import RowFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

VECTORS = "embedding"  # column of vectors
SCALES = "embedding_scale"  # column of the scales of integers
RESULT_KEYS = (VECTORS, SCALES, "truncated", "corpus_id", "score")
BATCH = 4096  # rows of Parquet that are read together


def find_index_files(path: Path) -> list[Path]:
    """Return the files of an index: one, or those of a folder in the order of their names.

    Raises:
        UsageError: the path does not exist, or is not an array, a Parquet file or a folder of
            files of one of these formats.
    """
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if file.suffix.lower() in _FORMATS]
        if len({file.suffix.lower() for file in files}) != 1:
            raise UsageError(
                f"{path} has no vectors of one format",
                "give a folder of .npy or of .parquet files, written by zoo run embed",
            )
        return files
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(
            f"{path} is not a file of vectors that can be searched",
            "give a .npy or .parquet file of zoo run embed --output, or a folder of them",
        )
    if not path.is_file():
        raise SourceError(f"{path} does not exist", "write it with zoo run embed --output")
    return [path]


class StoredVectors:
    """Vectors of texts in the precision in which they are stored, (texts, dimensions).

    Slices and arrays of numbers select rows, which are decoded to float32. The search reads them
    in blocks.
    """

    def __init__(
        self,
        codes: "Sequence[NDArray[Any]]",
        scales: "NDArray[np.float32] | None",
        dimension: int,
    ) -> None:
        import numpy as np

        self._codes = codes
        self._scales = scales
        self._ends = np.cumsum([len(part) for part in codes])
        self.shape = (int(self._ends[-1]), dimension)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def bytes_per_vector(self) -> int:
        """Size of a stored vector in bytes."""
        part = self._codes[0]
        return int(part.itemsize * part.shape[1])

    def __getitem__(self, rows: "slice | NDArray[np.integer[Any]]") -> "NDArray[np.float32]":
        import numpy as np

        numbers: NDArray[np.integer[Any]]
        if isinstance(rows, slice):
            numbers = np.arange(*rows.indices(len(self)))
        else:
            numbers = rows
        parts = np.searchsorted(self._ends, numbers, side="right")
        vectors = np.empty((len(numbers), self.shape[1]), np.float32)
        for part in np.unique(parts):
            places = np.flatnonzero(parts == part)
            begin = int(self._ends[part]) - len(self._codes[part])
            local = numbers[places] - begin
            if isinstance(rows, slice):  # Contiguous rows of a mapped file are read in one piece.
                codes = self._codes[part][int(local[0]) : int(local[-1]) + 1]
            else:
                codes = self._codes[part][local]
            vectors[places] = decode(codes, self.shape[1])
        if self._scales is not None:
            vectors *= self._scales[numbers][:, None]
        return vectors


def decode(codes: "NDArray[Any]", dimension: int) -> "NDArray[np.float32]":
    """Return stored vectors as float32: bits are 1 and -1, and integers are not scaled."""
    import numpy as np

    if codes.dtype != np.uint8:
        return codes.astype(np.float32)
    bits = np.unpackbits(codes, axis=1, count=dimension)
    return bits.astype(np.float32) * 2 - 1


class VectorIndex:
    """Stored vectors of texts, what made them, and the columns of the texts, if they are known.

    Attributes:
        vectors: the vectors, (texts, dimensions).
        record: what made them; ``None`` if the files do not say.
        texts: columns of each text; empty if they are not known.
        files: the files of the vectors.
    """

    def __init__(
        self,
        vectors: StoredVectors,
        record: VectorRecord | None,
        texts: "Sequence[dict[str, Any]]",
        files: Sequence[Path],
    ) -> None:
        self.vectors = vectors
        self.record = record
        self.texts = texts
        self.files = files

    def digest(self) -> str:
        """Return a digest of the vectors, by their files; the files are read if they are new."""
        from blake3 import blake3

        _, dimension = self.vectors.shape
        parts = [str(dimension), *map(file_blake3, self.files)]
        return blake3("\n".join(parts).encode()).hexdigest()


@contextlib.contextmanager
def open_index(
    path: Path, texts: Sequence[dict[str, Any]], similarity: SimilarityFunction
) -> Iterator[VectorIndex]:
    """Yield the index of a file or a folder; see ``find_index_files``.

    Args:
        path: the file or the folder.
        texts: columns of the texts of arrays, or nothing.
        similarity: function that compares the vectors.
    """
    files = find_index_files(path)
    with contextlib.ExitStack() as stack:
        if files[0].suffix.lower() == ARRAY:
            codes = [_open_array(file) for file in files]
            records = [read_record(file) for file in files]
            scales = None
        else:
            codes, records, scales, texts = _read_tables(files, stack)
        record = _common_record(files, codes, records)
        dimension = codes[0].shape[1]
        if codes[0].dtype == "uint8":
            dimension = dimension * 8 if record is None else record.dimension
        if codes[0].dtype == "int8" and scales is None and similarity != "cosine":
            scales = _unit_scales(path, codes, record)
        vectors = StoredVectors(codes, scales, dimension)
        if texts and len(texts) != len(vectors):
            raise UsageError(
                f"{path} has {len(vectors):,} vectors, and --corpus {len(texts):,} texts",
                "give the file whose texts were embedded",
            )
        yield VectorIndex(vectors, record, texts, files)


def _common_record(
    files: Sequence[Path],
    codes: "Sequence[NDArray[Any]]",
    records: Sequence[VectorRecord | None],
) -> VectorRecord | None:
    """Return what made the vectors of all files, after checking that it is the same."""
    first = records[0]
    for file, part, record in zip(files, codes, records, strict=True):
        if (part.dtype, part.shape[1]) != (codes[0].dtype, codes[0].shape[1]):
            raise UsageError(
                f"{files[0]} has vectors of {codes[0].shape[1]} {codes[0].dtype}, and {file} of "
                f"{part.shape[1]} {part.dtype}",
                "search files of one kind",
            )
        if record is not None and record.rows != len(part):
            raise VerificationError(
                f"{file} has {len(part):,} vectors, and its record says {record.rows:,}",
                "embed the texts again",
            )
        if _origin(record) != _origin(first):
            raise UsageError(
                f"{files[0]} and {file} were not embedded in the same way", "embed one again"
            )
    return first


def _origin(record: VectorRecord | None) -> Any:
    """Return a record without what differs between files of one index."""
    if record is None:
        return None
    return msgspec.structs.replace(record, rows=0, digest="", created_by="", model="")


def _open_array(path: Path) -> "NDArray[Any]":
    """Return the vectors of an array, mapped to memory, (texts, stored width)."""
    import numpy as np

    with open_regular(path):
        pass
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())[:200]
        raise VerificationError(f"{path} is not an array: {reason}", "write it again") from error
    if array.ndim != 2 or str(array.dtype) not in _DTYPES or not array.size:
        raise UsageError(
            f"{path} has an array of {array.dtype} of the shape {array.shape}, and no vectors",
            f"give rows of {', '.join(_DTYPES)}",
        )
    return array


def _read_tables(
    files: Sequence[Path], stack: contextlib.ExitStack
) -> "tuple[list[Any], list[VectorRecord | None], Any, Sequence[dict[str, Any]]]":
    """Return the vectors of Parquet files, their records and scales, and their other columns.

    The vectors are copied to a temporary file, which is removed at the end of the stack.
    """
    import numpy as np

    codes = []
    records = []
    scales: list[Any] = []
    texts: list[dict[str, Any]] = []
    for file in files:
        rows = RowFile()
        stack.callback(rows.close)
        with open_parquet(file) as table:
            schema = table.schema_arrow
            if VECTORS not in schema.names:
                raise UsageError(
                    f"{file} has no column {VECTORS!r}; there are {', '.join(schema.names)}",
                    "give a file of zoo run embed --output",
                )
            content = (schema.metadata or {}).get(METADATA_KEY)
            record = None
            if content is not None:
                record = parse_vector_record(content, file)
            records.append(record)
            others = [name for name in schema.names if name not in RESULT_KEYS]
            for batch in table.iter_batches(batch_size=BATCH):
                rows.append(_matrix(file, batch.column(VECTORS)))
                if SCALES in schema.names:
                    scales.append(batch.column(SCALES).to_numpy(zero_copy_only=False))
                # Dates, decimals and bytes become text, as in results of other tasks.
                values = rows_of_batch(file, batch.select(others))
                texts += msgspec.to_builtins(values, enc_hook=plain_text)
        if not texts:
            raise UsageError(f"{file} has no rows", "give a file with vectors")
        codes.append(rows.rows)
    all_scales = None
    if scales:
        all_scales = np.concatenate(scales).astype(np.float32)
    return codes, records, all_scales, texts


def _matrix(file: Path, column: Any) -> "NDArray[Any]":
    """Return a column of lists of numbers as one array, (rows, numbers).

    Lists of a fixed size are written today; those of any length were written before.
    """
    numbers = column.flatten()
    width, remainder = divmod(len(numbers), len(column))
    lengths = column.value_lengths().to_pylist() if hasattr(column, "value_lengths") else []
    is_uneven = remainder or any(length != width for length in lengths)
    if is_uneven or column.null_count or str(numbers.type) not in _ARROW_TYPES:
        raise UsageError(
            f"{file}: the column {VECTORS!r} has no vectors of one size",
            "give a file that zoo run embed wrote for a model with one vector a text",
        )
    matrix: NDArray[Any] = numbers.to_numpy(zero_copy_only=False).reshape(len(column), width)
    return matrix


def _unit_scales(
    path: Path, codes: "Sequence[NDArray[Any]]", record: VectorRecord | None
) -> "NDArray[np.float32]":
    """Return the scales of integers without scales, if the vectors had unit length."""
    import numpy as np

    if record is None or not record.normalized:
        raise UsageError(
            f"{path}: an array of integers does not have their scales, which the model's "
            "similarity needs",
            "write .parquet, or embed with --normalize",
        )
    norms = [np.linalg.norm(part.astype(np.float32), axis=1) for part in codes]
    lengths = np.concatenate(norms)
    return (1 / np.where(lengths > 0, lengths, 1)).astype(np.float32)


_FORMATS = (ARRAY, PARQUET)
_DTYPES = ("float32", "float16", "float64", "int8", "uint8")
_ARROW_TYPES = ("float", "halffloat", "double", "int8", "uint8")
