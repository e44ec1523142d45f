"""Selection of the files of a published checkpoint to download or to read, by their names."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint.generation_config import GENERATION_CONFIG
from zoo.checkpoint.records import MANIFEST, Manifest
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.digests.self_digest import read_record
from zoo.plugins import all_families, all_formats, built_in_formats
from zoo.sentence_models import MODULE_FILES, POOLING_FILES
from zoo.sentence_models.retrieval_heads import HEAD_FILES
from zoo.tokenizers import TOKENIZER_FILES

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format

CONFIG = "config.json"
MAX_FILES_SHOWN = 6
ADAPTER_FILES = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "adapter.safetensors",
    "pytorch_adapter.bin",
)
ONNX_FILES = "*/*.onnx"
OPENVINO_FILES = "*/openvino_model*.xml"
CTRANSLATE2_FILES = "*/model.bin"
# Files of other runtimes in subdirectories.
RUNTIME_FILES = (ONNX_FILES, OPENVINO_FILES, CTRANSLATE2_FILES)
_SAVE = "and save it with `save_pretrained`"
# Patterns of file names, what the files are, and how to get a model from them.
UNSUPPORTED_FILES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ADAPTER_FILES,
        "an adapter of peft or AdapterHub, which is not a model",
        "`zoo convert DIR --base REF -o ADAPTER` converts it from a directory; `zoo adapter merge` "
        "makes a model",
    ),
    (  # A repository may have one for each language, or for each step of training.
        tuple(f"*/{name}" for name in ADAPTER_FILES),
        "adapters of peft or AdapterHub in folders, which are not models",
        "`zoo convert DIR/FOLDER --base REF -o ADAPTER` converts one from a directory",
    ),
    (
        ("tf_model.h5", "tf_model-*.h5", "tf_model.h5.index.json"),
        "its weights only for TensorFlow",
        f"load it with transformers 4 (`from_pretrained(DIR, from_tf=True)`) {_SAVE}",
    ),
    (
        ("flax_model.msgpack", "flax_model-*.msgpack", "flax_model.msgpack.index.json"),
        "its weights only for Flax",
        f"load it with transformers 4 (`from_pretrained(DIR, from_flax=True)`) {_SAVE}",
    ),
    (
        ("*.onnx", ONNX_FILES),
        "an ONNX graph, whose weights are not read back",
        "give the model that it was exported from",
    ),
    (
        (
            "ggml-*.bin",
            "openvino_model*.xml",
            OPENVINO_FILES,
            "model.bin",
            CTRANSLATE2_FILES,
            "rust_model.ot",
        ),
        "a file of another runtime, whose weights are not read back",
        "give the model that it was made from",
    ),
    (
        ("*.vec.gz", "*.bin.gz", "*.vec.zip"),
        "compressed vectors of words",
        "decompress the file first, with gunzip or unzip",
    ),
    (
        ("*.gguf",),
        "several GGUF files",
        "give the path of one of them",
    ),
    (
        ("*.ckpt", "model*.pt", "model*.pth", "consolidated*.pth"),
        "a file of PyTorch without the names of the Hub",
        f"load it with the program that wrote it {_SAVE}",
    ),
    (
        ("*.safetensors",),
        "several safetensors files, none of them called model.safetensors",
        "put the file to convert into a directory of its own, with config.json",
    ),
)
SIDE_FILES = (*TOKENIZER_FILES, *POOLING_FILES, GENERATION_CONFIG)  # glob patterns
# modules.json names the directories of modules, which are only known after its download
LOCAL_SIDE_FILES = (*SIDE_FILES, "*/config.json", "*/sentence_*_config.json")


def choose_format(
    names: Sequence[str], source: str, *, allow_pickle: bool
) -> "tuple[Format, tuple[str, ...]]":
    """Choose the file format to read by file names.

    Formats of plugins are considered only if no built-in one can be read, so that other plugins
    are not imported for ordinary checkpoints.
    """
    pickle_files: tuple[str, ...] = ()
    for formats in (built_in_formats, all_formats):
        pickle_files = ()
        for file_format in formats():
            files = file_format.find(names)
            if not files:
                continue
            if file_format.executable and not allow_pickle:
                pickle_files = pickle_files or files
                continue
            if matching(names, ADAPTER_FILES):
                error = without_weights(names, source)
                remedy = "or move its files away to convert the model without it"
                raise SourceError(error.what, f"{error.hint}, {remedy}")
            return file_format, files
    if pickle_files:
        raise pickle_refused(source, pickle_files)
    raise without_weights(names, source)


def pickle_refused(source: str, names: Sequence[str]) -> UsageError:
    """Return the error for weights that are only read on request."""
    return UsageError(
        f"{source} holds its weights only as {', '.join(names)}, a pickle, which can run code",
        "--allow-pickle reads its tensors without running code",
    )


def without_weights(names: Sequence[str], source: str) -> SourceError:
    """Return the error for files without weights in a known format, with a way to convert them."""
    for patterns, contents, remedy in UNSUPPORTED_FILES:
        matches = sorted(matching(names, patterns))
        if matches:
            files = matches[0]
            if len(matches) > 1:
                files += f" and {len(matches) - 1} more"
            return SourceError(f"{source} holds {contents} ({files})", remedy)
    listing = "it has no files"
    if names:
        listing = f"its files are {', '.join(sorted(names)[:MAX_FILES_SHOWN])}"
    formats = ", ".join(file_format.name for file_format in built_in_formats())
    return SourceError(
        f"{source} holds no weights in a known format; {listing}",
        f"zoo reads {formats}; a plugin may read more",
    )


def files_to_download(names: Sequence[str], source: str, *, allow_pickle: bool) -> list[str]:
    """Return the files of a repository to download: weights of one format, and side files."""
    side_files = [*config_files(names), *matching(names, SIDE_FILES), *module_files(names)]
    prefix = ""
    if CONFIG not in names:
        files_in_folder = matching(names, ("0_*/*",))
        if files_in_folder:  # The model is in the folder of a module.
            prefix = f"{files_in_folder[0].partition('/')[0]}/"
            names = [
                name.removeprefix(prefix) for name in files_in_folder if name.startswith(prefix)
            ]
            model_side_files = matching(names, (CONFIG, *TOKENIZER_FILES))
            side_files += [f"{prefix}{name}" for name in model_side_files]
    _, weights = choose_format(names, source, allow_pickle=allow_pickle)
    if allow_pickle and not prefix:
        side_files += [name for name in HEAD_FILES if name in names]
    return [*(f"{prefix}{name}" for name in weights), *side_files]


def export_files(manifest: Path, names: Sequence[str]) -> list[str]:
    """Return the files of an export that ``zoo push`` uploaded."""
    formats = list(all_formats())
    try:
        record = read_record(manifest, Manifest, hint="export the model again")
    except VerificationError:
        if any(file_format.find(names) for file_format in formats):
            return []  # Another program wrote the file, next to weights.
        raise
    other_names = [name for name in names if name not in record.files]
    if record.export is None or any(file_format.find(other_names) for file_format in formats):
        return []
    for name in record.files:
        if any(part.startswith(".") for part in name.split("/")):
            raise VerificationError(f"{manifest} lists {name!r}, which zoo does not write")
    return [MANIFEST, *record.files]


def module_files(names: Sequence[str]) -> list[str]:
    """Return the weights of modules of a sentence encoder, one file of each folder."""
    file_by_folder: dict[str, str] = {}
    for pattern in MODULE_FILES:
        for name in matching(names, (pattern,)):
            file_by_folder.setdefault(name.rpartition("/")[0], name)
    return list(file_by_folder.values())


def config_files(names: Sequence[str]) -> list[str]:
    """Return the possible configuration files: ``config.json``, else the families' own."""
    if CONFIG in names:
        return [CONFIG]
    patterns = list[str]()
    for family in all_families().values():
        patterns += family.config_files
    return matching(names, patterns)


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the file names that match any of several glob patterns."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
