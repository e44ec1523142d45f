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
from zoo.tokenizers import TOKENIZER_FILES

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format

CONFIG = "config.json"
SHOWN = 6
ADAPTER = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "adapter.safetensors",
    "pytorch_adapter.bin",
)
ONNX = "*/*.onnx"
OPENVINO = "*/openvino_model*.xml"
CTRANSLATE2 = "*/model.bin"
IN_FOLDERS = (ONNX, OPENVINO, CTRANSLATE2)  # files of other runtimes
_SAVE = "and save it with `save_pretrained`"
# file names -> what they are, and how to get a model from it
UNREAD: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ADAPTER,
        "an adapter of peft or AdapterHub, which is not a model",
        "`zoo convert DIR --base REF -o ADAPTER` converts it from a directory; `zoo adapter merge` "
        "makes a model",
    ),
    (  # such as one for each language, or for each step of training
        tuple(f"*/{name}" for name in ADAPTER),
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
        ("*.onnx", ONNX),
        "an ONNX graph, whose weights are not read back",
        "give the model that it was exported from",
    ),
    (
        ("ggml-*.bin", "openvino_model*.xml", OPENVINO, "model.bin", CTRANSLATE2, "rust_model.ot"),
        "a file of another runtime, whose weights are not read back",
        "give the model that it was made from",
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
    """Choose the file format to read by file names."""
    # Formats of plugins are considered if no built-in one can be read, so that other plugins are
    # not imported for ordinary checkpoints
    for formats in (built_in_formats, all_formats):
        candidates = [(file_format, file_format.find(names)) for file_format in formats()]
        matches = [(file_format, files) for file_format, files in candidates if files]
        safe = [match for match in matches if allow_pickle or not match[0].executable]
        if safe and matching(names, ADAPTER):
            error = without_weights(names, source)
            remedy = "or move its files away to convert the model without it"
            raise SourceError(error.what, f"{error.hint}, {remedy}")
        if safe:
            return safe[0]
    if matches:
        raise pickle_refused(source, matches[0][1])
    raise without_weights(names, source)


def pickle_refused(source: str, names: Sequence[str]) -> UsageError:
    """Return the error for weights that are only read on request."""
    return UsageError(
        f"{source} holds its weights only as {', '.join(names)}, a pickle, which can run code",
        "--allow-pickle reads its tensors without running code",
    )


def without_weights(names: Sequence[str], source: str) -> SourceError:
    """Return the error for files without weights in a known format, with a way to convert them."""
    for patterns, contents, remedy in UNREAD:
        found = sorted(matching(names, patterns))
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            return SourceError(f"{source} holds {contents} ({found[0]}{more})", remedy)
    files = f"its files are {', '.join(sorted(names)[:SHOWN])}" if names else "it has no files"
    return SourceError(
        f"{source} holds no weights in a known format; {files}",
        f"zoo reads {', '.join(f.name for f in built_in_formats())}; a plugin may read more",
    )


def files_to_download(names: Sequence[str], source: str, *, allow_pickle: bool) -> list[str]:
    """Return the files of a repository to download: weights of one format, and side files."""
    side = [*config_files(names), *matching(names, SIDE_FILES), *module_files(names)]
    inside = [] if CONFIG in names else matching(names, ("0_*/*",))
    if inside:  # a model that is in the folder of a module
        folder = inside[0].partition("/")[0]
        names = [n.partition("/")[2] for n in inside if n.startswith(f"{folder}/")]
        wanted = (CONFIG, *TOKENIZER_FILES)
        side += [f"{folder}/{name}" for name in matching(names, wanted)]
    _, weights = choose_format(names, source, allow_pickle=allow_pickle)
    return [*(f"{folder}/{name}" if inside else name for name in weights), *side]


def export_files(manifest: Path, names: Sequence[str]) -> list[str]:
    """Return the files of an export that ``zoo push`` uploaded."""
    formats = list(all_formats())
    try:
        record = read_record(manifest, Manifest, hint="export the model again")
    except VerificationError:
        if any(file_format.find(names) for file_format in formats):
            return []  # a file of another program, next to weights
        raise
    others = [name for name in names if name not in record.files]
    if record.export is None or any(file_format.find(others) for file_format in formats):
        return []
    for name in record.files:
        if any(part.startswith(".") for part in name.split("/")):
            raise VerificationError(f"{manifest} lists {name!r}, which zoo does not write")
    return [MANIFEST, *record.files]


def module_files(names: Sequence[str]) -> list[str]:
    """Return the weights of modules of a sentence encoder: of each folder, one file."""
    chosen: dict[str, str] = {}
    for pattern in MODULE_FILES:
        for name in matching(names, (pattern,)):
            chosen.setdefault(name.rpartition("/")[0], name)
    return list(chosen.values())


def config_files(names: Sequence[str]) -> list[str]:
    """Return the possible configuration files: ``config.json``, else the families' own."""
    if CONFIG in names:
        return [CONFIG]
    return matching(names, [p for family in all_families().values() for p in family.config_files])


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the file names that match any of several glob patterns."""
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
