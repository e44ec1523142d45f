"""A model with the embeddings of another vocabulary."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from blake3 import blake3

from zoo.adapted_models.checkpoint import whole_model_hint
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
from zoo.io.paths import readable_name
from zoo.io.progress import progress
from zoo.io.tensors.finite import require_finite
from zoo.io.tensors.formats import STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.retokenization.match import SpelledVocabulary, VocabularyPlan, plan_rows
from zoo.sentence_models.module_weights import module_weight_files
from zoo.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


Method = Literal["mean", "random"]
METHODS: tuple[Method, ...] = ("mean", "random")
RECORD = "vocabulary.json"  # file of the new model that says where each row comes from
# Largest difference between outputs for tokens that both models have, as a fraction of the largest
# magnitude.
TOLERANCE = 1e-5
ROW_LENGTHS = (12, 7)  # tokens of the rows that both models read
SOURCES = ("kept", "composed", "new")  # where rows come from
EXAMPLES = 8  # tokens of each source that are shown
ID_SUFFIX = "_token_id"  # end of the names of fields that hold ids


@dataclass(frozen=True)
class Retokenized:
    """Result of ``retokenize``."""

    path: Path  # directory of the new model
    plan: VocabularyPlan  # where its rows come from
    tensors: tuple[str, ...]  # names of the tensors with a row for each token
    before: int  # size of the old vocabulary
    examples: Mapping[str, list[str]]  # where rows come from -> some tokens

    def _repr_html_(self) -> str:
        """Return the number of rows and some tokens of each origin, for notebooks."""
        from zoo.report.cells import table_cell

        rows = []
        for origin, count in self.plan.counts.items():
            rows.append((origin, count, " ".join(self.examples[origin])))
        title = f"{self.plan.size:,} tokens, {self.before:,} before"
        return table_cell(title, ("rows", "number", "such as"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return sizes and counts, for ``--json``."""
        return {
            "path": str(self.path),
            "vocab_size": self.plan.size,
            "vocab_size_before": self.before,
            "rows": self.plan.counts,
            "tensors": list(self.tensors),
        }


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
    """Write a model with the vocabulary of another tokenizer.

    Tokens that both vocabularies have keep their rows, in embeddings, output embeddings and
    biases; the other weights stay as they are. The result is verified before it is published: for
    tokens that both have, it computes what the old model does.
    """
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
    old = SpelledVocabulary(ExistingTokenizer((checkpoint.path / TOKENIZER).read_bytes(), info))
    new = SpelledVocabulary(tokenizer)
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
    for source in SOURCES:
        ids = [number for number in getattr(plan, source) if number in new.tokens]
        step = max(1, len(ids) // EXAMPLES)
        evenly_spaced_ids = ids[::step][:EXAMPLES]
        examples[source] = [new.shown(number) for number in evenly_spaced_ids]
    return Retokenized(path, plan, tuple(axes), old.size, examples)


def new_config(
    checkpoint: Checkpoint, old: SpelledVocabulary, new: SpelledVocabulary, plan: VocabularyPlan
) -> Any:
    """Return the configuration with the size of the new vocabulary, and its special tokens."""
    config = checkpoint.config
    changes: dict[str, Any] = {"vocab_size": plan.size}
    new_numbers = {old_number: number for number, old_number in plan.kept.items()}
    for name in config.__struct_fields__:
        old_number = getattr(config, name)
        if not name.endswith(ID_SUFFIX) or not isinstance(old_number, int):
            continue
        role = name.removesuffix(ID_SUFFIX)
        number = new.roles.get(role)
        if number is None:
            number = _number_by_other_role(old_number, old, new)
        if number is None:
            number = new_numbers.get(old_number)
        if number is None:
            token = old.tokens.get(old_number, old_number)
            raise UsageError(
                f"the model has a token for {role}, {token!r}, which the new tokenizer lacks",
                "train it with --tokenizer train, or name its special tokens in "
                "tokenizer_config.json",
            )
        changes[name] = number
    return msgspec.structs.replace(config, **changes)


def _number_by_other_role(
    old_number: int, old: SpelledVocabulary, new: SpelledVocabulary
) -> int | None:
    """Return the new id of a role that an old token has in the tokenizers, or ``None``."""
    for role, number in old.roles.items():
        if number == old_number and role in new.roles:
            return new.roles[role]
    return None


def _write(
    staging: Path,
    checkpoint: Checkpoint,
    tokenizer: ExistingTokenizer,
    config: Any,
    plan: VocabularyPlan,
    axes: Mapping[str, int],
    *,
    tokens: int,
    settings: Mapping[str, Any],
) -> None:
    old_model = checkpoint.model
    assert old_model.tokenizer is not None, "retokenize refuses models without"
    info = msgspec.structs.replace(tokenizer.info, max_tokens=old_model.tokenizer.max_tokens)
    generation = {}
    for key, value in old_model.generation.items():
        if key not in TOKEN_KEYS:
            generation[key] = value
    pooling = old_model.pooling
    if pooling is not None:
        pooling = pooling.with_vocabulary(getattr(config, "vocab_size", 0))
    model = msgspec.structs.replace(
        old_model,
        config=msgspec.to_builtins(config),
        pooling=pooling,
        tokenizer=info,
        generation=generation,
    )
    with checkpoint.open_weights() as reader:
        outputs = []
        for name in reader.tensors:
            outputs.append(_output(reader, name, plan, axes, tokens, settings["seed"]))
        total = sum(output.info.nbytes for output in outputs)
        with progress("writing", total, bytes_=True) as advance:
            write_weights(staging, outputs, advance, metadata={"format": "zoo"})
    (staging / CONFIG).write_bytes(encode_json(model))
    (staging / TOKENIZER).write_bytes(tokenizer.json)
    record = {
        **settings,
        "counts": plan.counts,
        "tensors": list(axes),
        # Where each row comes from, by its id as text.
        "kept": {str(number): old for number, old in plan.kept.items()},
        "composed": {str(number): list(parts) for number, parts in plan.composed.items()},
        "new": list(plan.new),
    }
    (staging / RECORD).write_bytes(encode_json(record))
    for name in module_weight_files(old_model.pooling):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.path / name, staging / name)
    source = readable_name(checkpoint.path)
    manifest = Manifest(
        zoo=FORMAT_VERSION,
        created_by={"plm-zoo": __version__},
        files=hash_folder(staging),
        licence=checkpoint.manifest.licence or checkpoint.manifest.base_licence,
        dtypes=dict(checkpoint.manifest.dtypes),
        ties=checkpoint.family.weights(config, checkpoint.head_name).aliases(),
        account={"retokenized": {**settings, **plan.counts, "from": source}},
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))


def _output(
    reader: TensorReader,
    name: str,
    plan: VocabularyPlan,
    axes: Mapping[str, int],
    tokens: int,
    seed: int,
) -> TensorToWrite:
    """Return a tensor to write: a new one for the new vocabulary, or a copy."""
    info = reader.tensors[name]
    if name not in axes:
        return TensorToWrite(name, info, lambda: [reader.lazy(name)])
    axis = axes[name]
    shape = list(info.shape)
    shape[axis] = plan.size

    def chunks() -> "Iterator[NDArray[Any]]":
        tensor = reader.read(name).view(numpy_dtype(info.dtype))
        values = np.moveaxis(tensor, axis, 0)
        rows = new_values(name, values, plan, tokens, seed)
        yield np.ascontiguousarray(np.moveaxis(rows, 0, axis)).view(STORAGE[info.dtype])

    return TensorToWrite(name, TensorInfo(info.dtype, tuple(shape)), chunks)


def require_same_outputs(
    old: Checkpoint,
    new: Checkpoint,
    plan: VocabularyPlan,
    vocabularies: tuple[SpelledVocabulary, SpelledVocabulary],
) -> None:
    """Check that both models compute the same for tokens that both have."""
    import torch

    if not plan.kept:
        return
    new_numbers = sorted(plan.kept)
    new_ids = torch.tensor(new_numbers)
    old_ids = torch.tensor([plan.kept[number] for number in new_numbers])
    old_vocabulary, new_vocabulary = vocabularies
    spec = old.family.onnx(old.config, old.head_name)
    inputs = random_inputs(spec, old.config, ROW_LENGTHS)
    old_outputs = _compute_outputs(old, inputs, old_ids, old_vocabulary)
    new_outputs = _compute_outputs(new, inputs, new_ids, new_vocabulary)
    axes = old.head.outputs
    mask = inputs.get("attention_mask")
    for name, expected in old_outputs.items():
        values = new_outputs[name]
        if mask is not None and expected.shape[: mask.dim()] == mask.shape and mask.dim() > 1:
            expected = expected[mask > 0]
            values = values[mask > 0]
        if axes.get(name, "").endswith("vocab_size"):
            expected = expected[..., old_ids]
            values = values[..., new_ids]
        difference = float((values - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        if not difference <= TOLERANCE:
            raise VerificationError(
                f"{name} of the new model differs by {difference:.1e} for tokens that both have: "
                f"{old.family.name} depends on the ids of tokens",
                "give the padding token its old id; nothing was written",
            )


def _compute_outputs(
    checkpoint: Checkpoint,
    drawn_inputs: "Mapping[str, Tensor]",
    ids: "Tensor",
    vocabulary: SpelledVocabulary,
) -> "Mapping[str, Tensor]":
    """Return the outputs of a model whose tokens are among some ids."""
    import torch

    pad_id = vocabulary.roles.get("pad", 0)
    mask = drawn_inputs.get("attention_mask")
    inputs = {}
    for name, values in drawn_inputs.items():
        inputs[name] = values
        if name.endswith("input_ids"):
            inputs[name] = ids[values % len(ids)]
        if name == "input_ids" and mask is not None:
            inputs[name] = inputs[name].masked_fill(mask == 0, pad_id)
    model: Any = load_model(checkpoint, torch.float32)
    with torch.inference_mode():
        outputs: Mapping[str, Tensor] = model(**inputs)
    return outputs


def new_values(
    name: str, values: "NDArray[Any]", plan: VocabularyPlan, tokens: int, seed: int
) -> "NDArray[Any]":
    """Return a tensor, (vocabulary, ...), with the rows of a new vocabulary.

    A composed row is the mean of its parts. Random rows are normal, with the mean and the standard
    deviation that the rows of the old tokens have in each dimension; they depend on the seed, the
    name of the tensor and the id.

    Args:
        name: the name of the tensor.
        values: its old values.
        plan: where each row comes from.
        tokens: the size of the old vocabulary; further rows are padding.
        seed: the seed of random rows.
    """
    old_rows = values[:tokens].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = old_rows.mean(0)
        deviation = old_rows.std(0)
    result = np.empty((plan.size, *values.shape[1:]), values.dtype)
    for number, old_number in plan.kept.items():
        result[number] = values[old_number]
    for number, parts in plan.composed.items():
        result[number] = old_rows[list(parts)].mean(0).astype(values.dtype)
    for number in plan.new:
        key = int.from_bytes(blake3(f"{seed}\0{name}\0{number}".encode()).digest(8))
        rng = np.random.Generator(np.random.Philox(key))
        noise = rng.standard_normal(values.shape[1:])
        result[number] = (mean + deviation * noise).astype(values.dtype)
    for number in (*plan.composed, *plan.new):
        row = {f"the row of token {number}": result[number].astype(np.float32)}
        require_finite(row, name, "the old rows are too large, or not finite: run `zoo verify`")
    return result
