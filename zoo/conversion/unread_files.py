"""Files with weights or labels in the directory of a checkpoint that no conversion reads."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

WEIGHT_SUFFIXES = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".h5",
    ".hdf5",
    ".msgpack",
    ".npz",
    ".npy",
    ".pkl",
    ".pickle",
    ".joblib",
    ".onnx",
    ".onnx_data",
    ".gguf",
    ".ggml",
    ".ot",
    ".tflite",
    ".pb",
    ".mlmodel",
    ".adapter",
    ".params",
    ".weights",
)


@dataclass(frozen=True)
class FileClass:
    """A class of files, by glob patterns of the last part of a name."""

    patterns: tuple[str, ...]
    reason: str
    # Whether the file is a part of the model, whose results another program computes with it.
    is_part: bool = False
    # Whether it holds the weights of a head, which a new head would replace.
    is_head: bool = False

    def matches(self, name: str) -> bool:
        """Return whether a file belongs to this class."""
        last_part = name.rpartition("/")[2]
        return any(fnmatchcase(last_part, pattern) for pattern in self.patterns)


UNREAD_FILES = (
    FileClass(
        ("model_head.*",),
        "the trained head of a classifier that SetFit saved; only its encoder is read",
        is_part=True,
        is_head=True,
    ),
    FileClass(
        ("config_setfit.json",),
        "the settings of a classifier that SetFit saved; only its encoder is read",
        is_part=True,
    ),
    FileClass(
        ("colbert_linear.*",),
        "a map to vectors of tokens, which --allow-pickle reads",
        is_part=True,
    ),
    FileClass(
        ("sparse_linear.*",),
        "a map to weights of terms, which --allow-pickle reads",
        is_part=True,
    ),
    FileClass(
        (
            "*.adapter",
            "adapter.*",
            "adapter_model.*",
            "adapter_config.json",
            "pytorch_adapter.bin",
            "pytorch_model_head.bin",
            "embedding.pt",
        ),
        "a part of an adapter, which is not applied: convert its directory, and give --adapter",
        is_part=True,
    ),
    FileClass(
        (
            "labels.txt",
            "labels.json",
            "label_map*.json",
            "label2id.json",
            "id2label.json",
            "label_mapping*.json",
            "classes.txt",
            "classes.json",
            "label_encoder.*",
        ),
        "names of labels; those of config.json are read",
    ),
    FileClass(
        (
            "optimizer*",
            "scheduler.*",
            "scaler.*",
            "rng_state*",
            "training_args.bin",
            "*_optim_states.pt",
            "trainer_state.json",
            "random_states_*.pkl",
        ),
        "the state of a training run",
    ),
)


def find_unread_files(names: Iterable[str], names_read: Collection[str]) -> dict[str, str]:
    """Return the files with weights or labels that are not read -> the reason.

    Args:
        names: all files of a directory or a repository.
        names_read: the files that are read.
    """
    unread = {}
    weights = [name for name in names_read if is_weights(name)]
    weights_reason = "zoo does not read it"
    if weights:
        weights_reason = f"other weights; {weights[0]} is read"
    for name in sorted(set(names) - set(names_read)):
        file_class = class_of(name)
        if file_class is not None:
            unread[name] = file_class.reason
        elif is_weights(name):
            unread[name] = weights_reason
    return unread


def unread_parts(unread: Iterable[str]) -> list[str]:
    """Return the unread files that are parts of the model."""
    parts = []
    for name in unread:
        file_class = class_of(name)
        if file_class is not None and file_class.is_part:
            parts.append(name)
    return parts


def unread_heads(unread: Iterable[str]) -> list[str]:
    """Return the unread files that hold a trained head."""
    heads = []
    for name in unread:
        file_class = class_of(name)
        if file_class is not None and file_class.is_head:
            heads.append(name)
    return heads


def is_weights(name: str) -> bool:
    """Return whether a file may hold weights, by its suffix."""
    return name.lower().endswith(WEIGHT_SUFFIXES)


def class_of(name: str) -> FileClass | None:
    """Return the class of an unread file, or ``None`` for other files."""
    for file_class in UNREAD_FILES:
        if file_class.matches(name):
            return file_class
    return None
