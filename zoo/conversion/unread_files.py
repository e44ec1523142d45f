"""Files with weights or labels in the directory of a checkpoint that no conversion reads."""

from collections.abc import Collection, Iterable, Mapping
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
class UnreadKind:
    """A kind of file, by glob patterns of the last part of a name."""

    patterns: tuple[str, ...]
    reason: str
    # whether it is a part of the model, whose results another program computes with it
    is_part: bool = False
    # whether it holds the weights of a head, which a new head would replace
    is_head: bool = False

    def matches(self, name: str) -> bool:
        """Return whether a file is of this kind."""
        last = name.rpartition("/")[2]
        return any(fnmatchcase(last, pattern) for pattern in self.patterns)


KINDS = (
    UnreadKind(
        ("model_head.*",),
        "the trained head of a classifier that SetFit saved; only its encoder is read",
        is_part=True,
        is_head=True,
    ),
    UnreadKind(
        ("config_setfit.json",),
        "the settings of a classifier that SetFit saved; only its encoder is read",
        is_part=True,
    ),
    UnreadKind(
        ("colbert_linear.*",),
        "a map to vectors of tokens; the result has the embeddings of texts only",
        is_part=True,
    ),
    UnreadKind(
        ("sparse_linear.*",),
        "a map to weights of terms; the result has the embeddings of texts only",
        is_part=True,
    ),
    UnreadKind(
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
    UnreadKind(
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
    UnreadKind(
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


def find_unread_files(names: Iterable[str], read: Collection[str]) -> dict[str, str]:
    """Return the files with weights or labels that are not read -> the reason.

    Args:
        names: all files of a directory or a repository.
        read: those that are read.
    """
    unread = {}
    weights = [name for name in read if is_weights(name)]
    other = f"other weights; {weights[0]} is read" if weights else "zoo does not read it"
    for name in sorted(set(names) - set(read)):
        kind = kind_of(name)
        if kind is not None:
            unread[name] = kind.reason
        elif is_weights(name):
            unread[name] = other
    return unread


def unread_parts(unread: Mapping[str, str]) -> list[str]:
    """Return those of the unread files that are parts of the model."""
    kinds = {name: kind_of(name) for name in unread}
    return [name for name, kind in kinds.items() if kind is not None and kind.is_part]


def unread_heads(unread: Mapping[str, str]) -> list[str]:
    """Return those of the unread files that hold a trained head."""
    kinds = {name: kind_of(name) for name in unread}
    return [name for name, kind in kinds.items() if kind is not None and kind.is_head]


def is_weights(name: str) -> bool:
    """Return whether a file may hold weights, by its suffix."""
    return name.lower().endswith(WEIGHT_SUFFIXES)


def kind_of(name: str) -> UnreadKind | None:
    """Return the kind of a file, or ``None`` for others."""
    return next((kind for kind in KINDS if kind.matches(name)), None)
