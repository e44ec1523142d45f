"""The sparse and the multi-vector head of a dense encoder, as FlagEmbedding publishes them."""

# Chen et al. 2024, arXiv:2402.03216, section 3.2; ``M3Embedding`` of FlagEmbedding. Each head is a
# linear map of the hidden states in a file of its own, next to the weights of the model.

from collections.abc import Mapping
from typing import Final

import msgspec

from zoo.errors import VerificationError
from zoo.sentence_models.modules import (
    TOKENS,
    AnyModule,
    DenseModule,
    LexicalPoolingModule,
    MaskModule,
    NormalizeModule,
    module_folder,
)
from zoo.sentence_models.pooling import Pooling

SPARSE: Final = "sparse"
MULTI_VECTOR: Final = "multi-vector"
# File -> the representation that its linear map computes.
HEAD_FILES: Mapping[str, str] = {"sparse_linear.pt": SPARSE, "colbert_linear.pt": MULTI_VECTOR}
# Name of a tensor in such a file -> its name in the folder of ``DenseModule``.
TENSOR_NAMES: Mapping[str, str] = {"weight": "linear.weight", "bias": "linear.bias"}


def with_heads(
    pooling: Pooling | None,
    head_shapes: Mapping[str, Mapping[str, tuple[int, ...]]],
    vocab_size: int,
    origin: str,
) -> Pooling:
    """Return the settings of a dense encoder with the representations of its heads.

    Args:
        pooling: settings of the dense vector; ``None`` for the normalized first token, which
            FlagEmbedding takes.
        head_shapes: file of ``HEAD_FILES`` -> name of a tensor -> its shape.
        vocab_size: number of tokens of the vocabulary.
        origin: directory, for errors.
    """
    if pooling is None:
        pooling = Pooling(mode="cls", normalize=True)
    representations = {}
    for file, shapes in head_shapes.items():
        weight_shape = shapes.get("weight", ())
        if len(weight_shape) != 2:
            raise VerificationError(
                f"{origin}/{file} has no matrix named weight", "fetch the model again"
            )
        name = HEAD_FILES[file]
        head = pooling_of_head(name, *weight_shape, vocab_size=vocab_size)
        representations[name] = msgspec.structs.replace(
            head,
            max_tokens=pooling.max_tokens,
            lowercase=pooling.lowercase,
            prompts=pooling.prompts,
            default_prompt_name=pooling.default_prompt_name,
        )
    return msgspec.structs.replace(pooling, representations=representations)


def pooling_of_head(name: str, width: int, hidden_size: int, *, vocab_size: int) -> Pooling:
    """Return the modules of a head that maps hidden states to a width."""
    dense = DenseModule(
        in_features=hidden_size,
        out_features=width,
        activation_function="identity",
        module_input_name=TOKENS,
        module_output_name=TOKENS,
    )
    if name == SPARSE:
        weights = msgspec.structs.replace(dense, activation_function="relu")
        return Pooling(
            modules=(weights, LexicalPoolingModule(vocab_size=vocab_size)),
            model_type="SparseEncoder",
            similarity_fn_name="dot",
            folder=name,
        )
    normalization = NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS)
    return Pooling(
        modules=(dense, normalization, MaskModule(skips_first=True)),
        model_type="MultiVectorEncoder",
        similarity_fn_name="meanmaxsim",
        folder=name,
    )


def head_folders(pooling: Pooling | None) -> dict[str, str]:
    """Return file of ``HEAD_FILES`` -> folder of its weights in a checkpoint."""
    folders = {}
    for file, name in HEAD_FILES.items():
        head = None if pooling is None else pooling.representations.get(name)
        if head is not None:
            first_module: AnyModule = head.steps[0]
            folders[file] = head.checkpoint_folder(module_folder(1, first_module))
    return folders
