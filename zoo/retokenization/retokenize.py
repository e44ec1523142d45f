"""A model with the embeddings of another vocabulary."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from zoo.adapters.checkpoint import whole_model_hint
from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    Manifest,
    encode_manifest,
    load_checkpoint,
)
from zoo.checkpoint.generation_config import TOKEN_KEYS
from zoo.conversion.dtypes import numpy_dtype
from zoo.conversion.safetensors_writer import write_weights
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import UsageError, VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.families.vocabulary import vocabulary_tensors
from zoo.inference.load_model import load_model
from zoo.io.digests.files import hash_folder
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.progress import progress
from zoo.io.tensors.formats import STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.retokenization.match import RowPlan, Vocabulary, plan_rows
from zoo.retokenization.rows import new_values
from zoo.sentence_models.module_weights import module_weight_files
from zoo.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Method = Literal["mean", "random"]
METHODS: tuple[Method, ...] = ("mean", "random")
RECORD = "vocabulary.json"  # in the new model: where each row comes from
TOLERANCE = 1e-5  # of the largest magnitude, for outputs of tokens that both models have
ROW_LENGTHS = (12, 7)  # tokens of the rows that both models read
EXAMPLES = 8  # tokens of each kind that are shown
ID_SUFFIX = "_token_id"  # of fields of configurations


@dataclass(frozen=True)
class Retokenized:
    """Result of ``retokenize``."""

    path: Path  # directory of the new model
    plan: RowPlan  # where its rows come from
    tensors: tuple[str, ...]  # names of the tensors with a row for each token
    before: int  # size of the old vocabulary
    examples: Mapping[str, list[str]]  # kind of row -> some tokens


def retokenize(
    checkpoint: Checkpoint,
    tokenizer: ExistingTokenizer,
    path: Path,
    *,
    method: Method = "mean",
    keep: bool = True,
    seed: int = 0,
    force: bool = False,
    sources: tuple[Path, ...] = (),
) -> Retokenized:
    """Write a model with the vocabulary of another tokenizer."""
    # Tokens that both vocabularies have keep their rows, in embeddings, output embeddings and
    # biases; the other weights stay as they are. The result is verified before it is published: for
    # tokens that both have, it computes what the old model does.
    if checkpoint.is_export:
        raise UsageError(f"{checkpoint.name} is an export", "give the model it was made from")
    if checkpoint.is_adapter:
        raise UsageError(
            f"{checkpoint.name} is an adapter, of a model with the old vocabulary",
            whole_model_hint(checkpoint),
        )
    info = checkpoint.model.tokenizer
    if info is None:
        raise UsageError(f"{checkpoint.name} has no tokenizer", "convert it with one: --tokenizer")
    old = Vocabulary(ExistingTokenizer((checkpoint.path / TOKENIZER).read_bytes(), info))
    new = Vocabulary(tokenizer)
    plan = plan_rows(old, new, compose=method == "mean", keep=keep)
    config = new_config(checkpoint, old, new, plan)
    axes = vocabulary_tensors(checkpoint.family, checkpoint.config, checkpoint.head_name)
    checkpoint.require_unchanged()
    folders = [checkpoint.path, *sources]
    with atomic_directory(path, force=force, sources=folders) as staging:
        write = partial(_write, staging, checkpoint, tokenizer, config, plan, axes)
        write(tokens=old.size, settings={"method": method, "keep": keep, "seed": seed})
        require_same_outputs(checkpoint, load_checkpoint(staging), plan, (old, new))
    examples = {}
    for kind in ("kept", "composed", "new"):
        ids = [number for number in getattr(plan, kind) if number in new.tokens]
        step = max(1, len(ids) // EXAMPLES)  # evenly spaced
        examples[kind] = [new.shown(number) for number in ids[::step][:EXAMPLES]]
    return Retokenized(path, plan, tuple(axes), old.size, examples)


def new_config(checkpoint: Checkpoint, old: Vocabulary, new: Vocabulary, plan: RowPlan) -> Any:
    """Return the configuration with the size of the new vocabulary, and its special tokens."""
    config = checkpoint.config
    changes: dict[str, Any] = {"vocab_size": plan.size}
    now = {before: number for number, before in plan.kept.items()}
    for name in config.__struct_fields__:
        before = getattr(config, name)
        if not name.endswith(ID_SUFFIX) or not isinstance(before, int):
            continue
        role = name.removesuffix(ID_SUFFIX)
        number = new.roles.get(role)
        if number is None:
            same = [r for r, token in old.roles.items() if token == before and r in new.roles]
            number = new.roles[same[0]] if same else now.get(before)
        if number is None:
            raise UsageError(
                f"the model has a token for {role}, {old.tokens.get(before, before)!r}, which the "
                "new tokenizer lacks",
                "train it with --tokenizer train, or name its special tokens in "
                "tokenizer_config.json",
            )
        changes[name] = number
    return msgspec.structs.replace(config, **changes)


def _write(
    staging: Path,
    checkpoint: Checkpoint,
    tokenizer: ExistingTokenizer,
    config: Any,
    plan: RowPlan,
    axes: Mapping[str, int],
    *,
    tokens: int,
    settings: Mapping[str, Any],
) -> None:
    before = checkpoint.model
    assert before.tokenizer is not None, "retokenize refuses models without"
    info = msgspec.structs.replace(tokenizer.info, max_tokens=before.tokenizer.max_tokens)
    model = msgspec.structs.replace(
        before,
        config=msgspec.to_builtins(config),
        tokenizer=info,
        generation={k: v for k, v in before.generation.items() if k not in TOKEN_KEYS},
    )
    with checkpoint.open_weights() as reader:
        outputs = [
            _output(reader, name, plan, axes, tokens, settings["seed"]) for name in reader.tensors
        ]
        total = sum(output.info.nbytes for output in outputs)
        with progress("writing", total, bytes_=True) as advance:
            write_weights(staging, outputs, advance, metadata={"format": "zoo"})
    (staging / CONFIG).write_bytes(encode_json(model))
    (staging / TOKENIZER).write_bytes(tokenizer.json)
    record = {
        **settings,
        "counts": plan.counts,
        "tensors": list(axes),
        # where each row comes from, by its id as text
        "kept": {str(number): old for number, old in plan.kept.items()},
        "composed": {str(number): list(parts) for number, parts in plan.composed.items()},
        "new": list(plan.new),
    }
    (staging / RECORD).write_bytes(encode_json(record))
    for name in module_weight_files(before.pooling):
        (staging / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(checkpoint.path / name, staging / name)
    manifest = Manifest(
        zoo=FORMAT_VERSION,
        created_by={"plm-zoo": __version__},
        files=hash_folder(staging),
        licence=checkpoint.manifest.licence or checkpoint.manifest.base_licence,
        dtypes=dict(checkpoint.manifest.dtypes),
        ties=checkpoint.family.weights(config, checkpoint.head_name).aliases(),
        account={"retokenized": {**settings, **plan.counts, "from": str(checkpoint.path)}},
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))


def _output(
    reader: TensorReader,
    name: str,
    plan: RowPlan,
    axes: Mapping[str, int],
    tokens: int,
    seed: int,
) -> TensorToWrite:
    """Return a tensor to write: a new one for the new vocabulary, or a copy."""
    info = reader.tensors[name]
    if name not in axes:
        return TensorToWrite(name, info, lambda: [reader.lazy(name)])
    axis = axes[name]
    shape = tuple(plan.size if k == axis else n for k, n in enumerate(info.shape))

    def chunks() -> "Iterator[NDArray[Any]]":
        stored = reader.read(name).view(numpy_dtype(info.dtype))
        values = np.moveaxis(stored, axis, 0)
        rows = new_values(name, values, plan, tokens, seed)
        yield np.ascontiguousarray(np.moveaxis(rows, 0, axis)).view(STORAGE[info.dtype])

    return TensorToWrite(name, TensorInfo(info.dtype, shape), chunks)


def require_same_outputs(
    before: Checkpoint,
    after: Checkpoint,
    plan: RowPlan,
    vocabularies: tuple[Vocabulary, Vocabulary],
) -> None:
    """Check that both models compute the same for tokens that both have."""
    import torch

    pairs = sorted(plan.kept.items())
    if not pairs:
        return
    spec = before.family.onnx(before.config, before.head_name)
    drawn = random_inputs(spec, before.config, ROW_LENGTHS)
    numbers = (torch.tensor([old for _, old in pairs]), torch.tensor([new for new, _ in pairs]))
    results: list[dict[str, Tensor]] = []
    for checkpoint, ids, vocabulary in zip((before, after), numbers, vocabularies, strict=True):
        inputs = {
            name: _as_ids(name, values, drawn, ids, vocabulary.roles.get("pad", 0))
            for name, values in drawn.items()
        }
        model = load_model(checkpoint, torch.float32)
        with torch.inference_mode():
            results.append(model(**inputs))
    axes = before.head.outputs
    mask = drawn.get("attention_mask")
    for name, expected in results[0].items():
        values = results[1][name]
        if mask is not None and expected.shape[: mask.dim()] == mask.shape and mask.dim() > 1:
            expected = expected[mask > 0]
            values = values[mask > 0]
        if axes.get(name, "").endswith("vocab_size"):
            expected = expected[..., numbers[0]]
            values = values[..., numbers[1]]
        difference = float((values - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        if not difference <= TOLERANCE:
            raise VerificationError(
                f"{name} of the new model differs by {difference:.1e} for tokens that both have: "
                f"{before.family.name} depends on the ids of tokens",
                "give the padding token its old id; nothing was written",
            )


def _as_ids(
    name: str, values: "Tensor", drawn: "Mapping[str, Tensor]", ids: "Tensor", pad: int
) -> "Tensor":
    """Return random token ids as ids of tokens that both models have; other inputs as they are."""
    if not name.endswith("input_ids"):
        return values
    tokens = ids[values % len(ids)]
    mask = drawn.get("attention_mask")
    if name != "input_ids" or mask is None:
        return tokens
    return tokens.masked_fill(mask == 0, pad)
