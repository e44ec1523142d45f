"""Conversion of a sentence encoder's modules: widths are checked, weights copied."""

# A module with weights has a folder with the same names and tensors in both layouts.

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.conversion.checks import require_bitwise_equal
from zoo.conversion.dtypes import cast, cast_pieces, output_dtype
from zoo.conversion.open import OpenCheckpoint
from zoo.conversion.safetensors_writer import Create, write_weights
from zoo.errors import SourceError, VerificationError
from zoo.hub.select_files import choose_format
from zoo.io.files import is_named_file
from zoo.io.tensors.formats import TensorInfo, TensorReader, TensorToWrite
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.plugins import format_named
from zoo.sentence_models import module_folders
from zoo.sentence_models.modules import Shapes, require_shapes, weighted_modules
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.retrieval_heads import TENSOR_NAMES, head_folders
from zoo.weights.releases import ReleaseTensor, RenamingReader

if TYPE_CHECKING:
    from zoo.conversion.infer_head import ConversionPlan

LINEAR = "linear."  # Of the names of a module's tensors; FlagEmbedding's files lack it.


def check_modules(plan: "ConversionPlan") -> None:
    """Check that the modules fit the model: the output that they read, and its width."""
    pooling = plan.opened.pooling
    origin = plan.opened.source.directory
    if pooling is None:
        return
    folders = {}
    if plan.opened.checkpoint is None and plan.opened.projection is None:
        folders = module_folders(plan.opened.files)
    try:
        pooling.features(pooling.input_width(plan.config), folders)
        for head in pooling.representations.values():
            head.features(head.input_width(plan.config))
    except VerificationError as error:
        raise VerificationError(f"{origin}: {error.what}", error.hint) from error


def open_modules(opened: OpenCheckpoint, *, allow_pickle: bool) -> dict[str, TensorReader]:
    """Open the weights of the modules: folder of a module -> reader."""
    pooling = opened.pooling
    if pooling is None:
        return {}
    readers: dict[str, TensorReader] = {}
    modules = pooling.weighted_modules()
    if opened.checkpoint is None:
        readers = _open_heads(opened, pooling, modules)
        modules = weighted_modules(pooling.steps)
    if not modules:
        return readers
    if opened.projection is not None:
        ((folder, shapes),) = modules.items()
        projection_shapes = {name: info.shape for name, info in opened.projection.tensors.items()}
        require_shapes(projection_shapes, shapes, str(opened.source.directory))
        return {folder: opened.projection}
    folders = {} if opened.checkpoint else module_folders(opened.files)
    for folder, shapes in modules.items():
        name = folders.get(folder, folder)
        directory = opened.files.path(name)
        names = _names(opened, name)
        if not names:
            raise SourceError(f"{directory} holds no weights", "fetch the model again")
        file_format, files = choose_format(names, str(directory), allow_pickle=allow_pickle)
        reader = file_format.open(directory, files)
        file_shapes = {name: info.shape for name, info in reader.tensors.items()}
        require_shapes(file_shapes, shapes, str(directory / files[0]))
        readers[folder] = reader
    return readers


def _open_heads(
    opened: OpenCheckpoint, pooling: Pooling, modules: Mapping[str, Shapes]
) -> dict[str, TensorReader]:
    """Return folder of a module -> the weights of a further head of a published encoder."""
    readers: dict[str, TensorReader] = {}
    for file, folder in head_folders(pooling).items():
        reader = opened.retrieval_heads[file]
        new_names = {}
        for name in reader.tensors:
            new_names[name] = ReleaseTensor(TENSOR_NAMES.get(name, name))
        renamed = RenamingReader(reader, new_names)
        shapes = {name: info.shape for name, info in renamed.tensors.items()}
        require_shapes(shapes, modules[folder], str(opened.source.directory / file))
        readers[folder] = renamed
    return readers


def _names(opened: OpenCheckpoint, folder: str) -> list[str]:
    """Return the names of the files of a folder that may be read."""
    source = opened.source
    if source.restricted:
        start = f"{folder}/"
        return [name.removeprefix(start) for name in source.digests if name.startswith(start)]
    directory = opened.files.path(folder)
    if not directory.is_dir():
        return []
    return [path.name for path in directory.iterdir() if is_named_file(path)]


def write_modules(
    readers: Mapping[str, TensorReader],
    staging: Path,
    dtype: str | None,
    *,
    metadata: Mapping[str, str],
    create: Create,
    head_files: Mapping[str, str] = {},
) -> list[Path]:
    """Write the weights of the modules, compare them with the source, and return the paths.

    Args:
        readers: folder of a module -> its weights.
        staging: the directory to write to.
        dtype: the dtype of the result; by default the source's.
        metadata: entries of the headers.
        create: opens a file.
        head_files: folder of a module -> file in the layout of FlagEmbedding that is written in
            place of the folder.
    """
    files = []
    for folder, reader in readers.items():
        outputs = [_output(reader, name, dtype) for name in sorted(reader.tensors)]
        if folder in head_files:
            path = _write_head(staging / head_files[folder], outputs)
            written: TensorReader = format_named("pytorch").open(staging, [path.name])
            paths = [path]
        else:
            (staging / folder).mkdir(parents=True, exist_ok=True)
            paths = write_weights(
                staging / folder, outputs, lambda _: None, metadata=metadata, create=create
            )
            written = SafetensorsReader(paths)
        with written as result:
            for name, info in reader.tensors.items():
                code = output_dtype(info.dtype, dtype)
                change = None
                if code != info.dtype:
                    change = partial(cast, stored=info.dtype, target=code, name=name)
                written_name = name
                if folder in head_files:
                    written_name = name.removeprefix(LINEAR)
                require_bitwise_equal(
                    f"{folder}: {name}", result.read(written_name), reader.read(name), change
                )
        files += paths
    return files


def _write_head(path: Path, outputs: Sequence[TensorToWrite]) -> Path:
    """Write a linear map as FlagEmbedding reads it, and return the path."""
    tensors = [replace(output, name=output.name.removeprefix(LINEAR)) for output in outputs]
    (file,) = format_named("pytorch").write(path.parent, tensors, lambda _: None)
    return file.rename(path)


def _output(reader: TensorReader, name: str, dtype: str | None) -> TensorToWrite:
    info = reader.tensors[name]
    code = output_dtype(info.dtype, dtype)
    pieces = partial(cast_pieces, stored=info.dtype, target=code, name=name)
    return TensorToWrite(name, TensorInfo(code, info.shape), lambda: pieces(reader.lazy(name)))
