"""A model as one GGUF file."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.exporting.quantization.search import MixedPrecisionModel
from zoo.exporting.targets.gguf.vocabulary import add_vocabulary
from zoo.exporting.targets.tensors import runtime_tensors
from zoo.families.runtimes import RuntimeModel
from zoo.io.page_text import one_line
from zoo.overrides import override
from zoo.sentence_models.pooling import Pooling
from zoo.tokenizers.gguf import POOLINGS, RANK

Type = gguf.GGMLQuantizationType
TYPES = {
    "float32": (Type.F32, gguf.LlamaFileType.ALL_F32),
    "float16": (Type.F16, gguf.LlamaFileType.MOSTLY_F16),
    "bfloat16": (Type.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "q8_0": (Type.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q5_1": (Type.Q5_1, gguf.LlamaFileType.MOSTLY_Q5_1),
    "q5_0": (Type.Q5_0, gguf.LlamaFileType.MOSTLY_Q5_0),
    "q4_1": (Type.Q4_1, gguf.LlamaFileType.MOSTLY_Q4_1),
    "q4_0": (Type.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
    "mxfp4": (Type.MXFP4, gguf.LlamaFileType.MOSTLY_MXFP4_MOE),
}
HIGHER = {Type.Q8_0: Type.F32}  # of all others 8 bits
# added to others or read row by row, which llama.cpp does in float32
FLOAT32 = ("position_embd.weight", "token_types.weight", "attn_rel_b.weight")


def write_gguf(
    checkpoint: Checkpoint, file: Path, precision: str, kept: Collection[str] = ()
) -> None:
    """Write a checkpoint as a GGUF file, with some tensors in the next higher precision."""
    config = checkpoint.config
    model = checkpoint.family.runtime_model("gguf", config, checkpoint.head_name)
    assert isinstance(model, RuntimeModel), "the target holds the model"
    tensors = runtime_tensors(checkpoint, model)
    quantized_type, file_type = TYPES[precision]
    writer = gguf.GGUFWriter(file, model.architecture)
    source = checkpoint.manifest.source
    repo = source.repo if source and source.repo else "model"
    writer.add_name(one_line(repo.rpartition("/")[2]))
    if licence := checkpoint.manifest.licence:
        writer.add_license(one_line(licence))
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    settings = dict(model.settings)
    if not checkpoint.head.has_cache:
        mode = (checkpoint.model.pooling or Pooling()).mode
        # a classifier has scores in place of a pooling
        settings["pooling_type"] = RANK if checkpoint.head.has_labels else POOLINGS[mode]
    for key, value in settings.items():
        _add(writer, f"{model.architecture}.{key}", value)
    if checkpoint.head.has_labels:
        writer.add_classifier_output_labels(list(config.labels))
    add_vocabulary(writer, checkpoint, model.tokenizer)
    if not checkpoint.head.has_cache:
        types = tensors.get("token_types.weight")  # without the tensor, all tokens are of one type
        writer.add_token_type_count(1 if types is None else len(types))
    for name, array in tensors.items():
        chosen = HIGHER.get(quantized_type, Type.Q8_0) if name in kept else quantized_type
        stored = tensor_type(name, array.shape, chosen)
        values = np.ascontiguousarray(array, np.float32)
        if stored == Type.F16:
            writer.add_tensor(name, values.astype(np.float16))
        elif stored == Type.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class MixedPrecisionGguf(MixedPrecisionModel[str]):
    """A checkpoint as GGUF files, whose tensors each have a type."""

    def __init__(self, checkpoint: Checkpoint, file: str, precision: str) -> None:
        self._checkpoint = checkpoint
        self._file = file
        self._precision = precision
        model = checkpoint.family.runtime_model("gguf", checkpoint.config, checkpoint.head_name)
        assert isinstance(model, RuntimeModel), "the target holds the model"
        quantized_type, _ = TYPES[precision]
        self.layers = [
            name
            for entry in model.weights.entries()
            for name, shape in zip(entry.sources, entry.source_shapes, strict=True)
            if tensor_type(name, shape, quantized_type) == quantized_type
        ]

    @override
    def write(self, directory: Path, quantized: Collection[str]) -> None:
        kept = set(self.layers).difference(quantized)
        write_gguf(self._checkpoint, directory / self._file, self._precision, kept)


def tensor_type(name: str, shape: tuple[int, ...], quantized_type: Type) -> Type:
    """Return the type in which a tensor is stored; vectors are in float32."""
    if len(shape) < 2 or name.endswith(FLOAT32) or not name.endswith("weight"):
        return Type.F32
    block, _ = gguf.GGML_QUANT_SIZES[quantized_type]
    return quantized_type if shape[-1] % block == 0 else Type.F16


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, str(value))
