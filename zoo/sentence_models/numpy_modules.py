"""Embeddings from the output of a model, by the modules of sentence-transformers."""

# Reimers and Gurevych 2019, arXiv:1908.10084, section 3 (mean, cls, max); Muennighoff 2022,
# arXiv:2202.08904, section 4 (weighted by position, last token). Special tokens count as tokens.
# Where the tokens of a prompt are excluded, so are special tokens before them.
# ``zoo.sentence_models.torch_modules`` has the same modules in torch, with gradients.

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.sentence_models.modules import (
    SENTENCE_VECTOR,
    TOKENS,
    DenseModule,
    LayerNormModule,
    LexicalPoolingModule,
    MaskModule,
    NormalizeModule,
    PoolingModule,
    SpladePoolingModule,
    module_folder,
)
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import TextTokenizer

    Floats = NDArray[np.floating[Any]]
    Mask = NDArray[np.bool_]
    # folder of a module -> name -> weight
    ModuleWeights = Mapping[str, Mapping[str, NDArray[Any]]]

LAYER_NORM_EPS = 1e-5


@dataclass
class ModuleFeatures:
    """What modules read and set."""

    # ``token_embeddings``, (texts, tokens, width), and ``sentence_embedding``, (texts, width)
    values: "dict[str, Floats]"
    mask: "Mask"  # (texts, tokens), true for the tokens to read, which are adjacent in each text
    # (texts, tokens); only ``MultiVectorMask`` and ``LexicalPooling`` read them
    ids: "NDArray[np.int64] | None" = None
    prompt_tokens: int = 0  # number of tokens at the beginning that belong to a prompt
    # ids of the tokens that these two leave out
    skipped: Collection[int] = field(default_factory=tuple)
    task: str = "document"  # ``query`` or ``document``


def run_modules(
    features: ModuleFeatures, pooling: Pooling, weights: "ModuleWeights | None" = None
) -> ModuleFeatures:
    """Run the modules after the backbone; changes ``features`` and returns them."""
    values = features.values
    module_weights = weights or {}
    for number, module in enumerate(pooling.steps, 1):
        match module:
            case PoolingModule():
                mask = features.mask
                if not module.include_prompt and features.prompt_tokens:
                    mask = mask.copy()
                    mask[:, : features.prompt_tokens] = False
                values[SENTENCE_VECTOR] = pool_tokens(values[TOKENS], mask, module.modes)
            case SpladePoolingModule():
                values[SENTENCE_VECTOR] = splade(values[TOKENS], features.mask, module)
            case DenseModule():
                tensors = module_weights[module_folder(number, module)]
                values[module.module_output_name] = dense(
                    values[module.module_input_name], module, tensors
                )
            case NormalizeModule():
                if module.module_input_name in values:
                    values[module.module_output_name] = unit(values[module.module_input_name])
            case LayerNormModule():
                tensors = module_weights[module_folder(number, module)]
                values[SENTENCE_VECTOR] = _layer_norm(values[SENTENCE_VECTOR], tensors)
            case LexicalPoolingModule():
                values[SENTENCE_VECTOR] = lexical_weights(values[TOKENS], module, features)
            case MaskModule():
                features.mask = _mask_skipped(module, features)
    return features


def pool(
    hidden: "Floats",
    mask: "Mask",
    pooling: Pooling,
    weights: "ModuleWeights | None" = None,
    *,
    prompt_tokens: int = 0,
    ids: "NDArray[np.int64] | None" = None,
    skipped: Collection[int] = (),
) -> "Floats":
    """Return the embeddings of texts, (texts, dimensions), in the dtype of ``hidden``.

    Args:
        hidden: (texts, tokens, hidden), or the logits of a sparse encoder.
        mask: (texts, tokens), true for tokens, which are adjacent. Every text has at least one.
        pooling: the modules.
        weights: the weights of the modules that have any.
        prompt_tokens: the number of tokens of the prompt.
        ids: (texts, tokens), which only lexical weights read.
        skipped: ids of the tokens that have no lexical weight.
    """
    features = ModuleFeatures(
        {TOKENS: hidden}, mask, ids=ids, prompt_tokens=prompt_tokens, skipped=skipped
    )
    vectors = run_modules(features, pooling, weights).values[SENTENCE_VECTOR]
    if pooling.max_active_dims is not None:
        vectors = largest(vectors, pooling.max_active_dims)
    return vectors[:, : pooling.truncate_dim]


def pool_tokens(hidden: "Floats", mask: "Mask", modes: "tuple[str, ...]") -> "Floats":
    """Return pooled token vectors, (texts, modes times width); see ``pool``."""
    import numpy as np

    pooled = [_pool(hidden, mask, mode) for mode in modes]
    return pooled[0] if len(pooled) == 1 else np.concatenate(pooled, axis=1)


def _pool(hidden: "Floats", mask: "Mask", mode: str) -> "Floats":
    import numpy as np

    vectors: Floats
    if mode in ("cls", "lasttoken"):
        position = mask.argmax(axis=1)  # The first token.
        if mode == "lasttoken":
            position += mask.sum(axis=1) - 1
        vectors = hidden[np.arange(len(hidden)), position]
    elif mode == "max":
        vectors = np.where(mask[:, :, None], hidden, -np.inf).max(axis=1).astype(hidden.dtype)
    else:
        weights = mask.astype(hidden.dtype)  # (texts, tokens), zero for padding
        if mode == "weightedmean":
            weights *= np.arange(1, mask.shape[1] + 1, dtype=hidden.dtype)
        divisor = np.add.reduce(weights, axis=1, keepdims=True)
        if mode == "mean_sqrt_len_tokens":
            divisor = np.sqrt(divisor)
        weights /= divisor
        vectors = np.matmul(weights[:, None, :], hidden)[:, 0]
    return vectors


def splade(logits: "Floats", mask: "Mask", module: SpladePoolingModule) -> "Floats":
    """Return the weights of the words of the vocabulary, (texts, vocabulary)."""
    import numpy as np

    takes_maximum = module.pooling_strategy == "max"
    logarithms = 2 if module.activation_function == "log1p_relu" else 1
    pooled_rows = []
    for row, row_mask in zip(logits, mask, strict=True):  # One by one: a text has many weights.
        word_weights = np.maximum(row[row_mask], 0)
        if takes_maximum:
            # The logarithm is monotonic: the largest value has the largest one.
            word_weights = word_weights.max(axis=0)
        for _ in range(logarithms):
            word_weights = np.log1p(word_weights)
        if not takes_maximum:
            word_weights = word_weights.sum(axis=0)
        pooled_rows.append(word_weights)
    return np.stack(pooled_rows)


def lexical_weights(
    weights: "Floats", module: LexicalPoolingModule, features: ModuleFeatures
) -> "Floats":
    """Return the weights of the tokens of the vocabulary, (texts, vocabulary).

    ``weights`` are those of the tokens of texts, (texts, tokens, 1).
    """
    import numpy as np

    ids = features.ids
    assert ids is not None, "Embed gives the ids of tokens"
    result = np.zeros((len(ids), module.vocab_size), weights.dtype)
    is_weighted = features.mask & ~np.isin(ids, list(features.skipped))
    rows, columns = np.nonzero(is_weighted)
    np.maximum.at(result, (rows, ids[rows, columns]), weights[rows, columns, 0])
    return result


def dense(
    vectors: "Floats", module: DenseModule, tensors: "Mapping[str, NDArray[Any]]"
) -> "Floats":
    """Map (..., in_features) to (..., out_features)."""
    import numpy as np

    weights = {name: tensor.astype(vectors.dtype, copy=False) for name, tensor in tensors.items()}
    mapped = np.matmul(vectors, weights["linear.weight"].T)
    if module.bias:
        mapped += weights["linear.bias"]
    mapped = activate(mapped, module.activation_function).astype(vectors.dtype, copy=False)
    if not module.use_residual:
        return mapped
    residual = weights.get("residual.weight")
    if residual is not None:
        vectors = np.matmul(vectors, residual.T)
    return mapped + vectors


def activate(x: "Floats", function: str) -> "Floats":
    """Return a function of ``torch.nn`` of each number."""
    import numpy as np

    match function:
        case "tanh":
            return np.tanh(x)
        case "relu":
            return np.maximum(x, 0)
        case "gelu":
            erf = np.vectorize(math.erf, otypes=[np.float64])
            return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))
        case "sigmoid":
            return _sigmoid(x)
        case "silu":
            return np.asarray(x * _sigmoid(x))
        case "elu":
            return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
        case "leaky_relu":
            return np.where(x > 0, x, 0.01 * x)
        case "softplus":
            return np.logaddexp(0, x)
    return x


def _sigmoid(x: "Floats") -> "Floats":
    import numpy as np

    return np.asarray(0.5 * (1 + np.tanh(x / 2)))  # without overflow


def _layer_norm(vectors: "Floats", tensors: "Mapping[str, NDArray[Any]]") -> "Floats":
    import numpy as np

    mean = vectors.mean(-1, keepdims=True)
    variance = vectors.var(-1, keepdims=True)
    scaled = (vectors - mean) / np.sqrt(variance + LAYER_NORM_EPS)
    result: Floats = (scaled * tensors["norm.weight"] + tensors["norm.bias"]).astype(vectors.dtype)
    return result


def _mask_skipped(module: MaskModule, features: ModuleFeatures) -> "Mask":
    """Return the mask of the tokens that late interaction compares."""
    import numpy as np

    mask = features.mask
    if module.skips_first:
        mask = mask.copy()
        mask[np.arange(len(mask)), features.mask.argmax(axis=1)] = False
    ids = features.ids
    if ids is None:
        return mask
    if features.task in module.skiplist_tasks and features.skipped:
        mask = mask & ~np.isin(ids, list(features.skipped))
    if features.task != "query" and module.keep_only_token_ids:
        mask = mask & np.isin(ids, list(module.keep_only_token_ids))
    return mask


def largest(vectors: "Floats", number: int) -> "Floats":
    """Return vectors with their largest values, and zero in place of others."""
    import numpy as np

    if number >= vectors.shape[1]:
        return vectors
    columns = np.argpartition(-np.abs(vectors), number - 1, axis=1)[:, :number]
    values = np.take_along_axis(vectors, columns, axis=1)
    result = np.zeros_like(vectors)
    np.put_along_axis(result, columns, values, axis=1)
    return result


def count_prompt_tokens(tokenizer: "TextTokenizer", prompt: str, max_tokens: int | None) -> int:
    """Return the number of tokens of a prompt, without a special token at its end."""
    encoded = tokenizer.encode([prompt], max_tokens=max_tokens, offsets=False)[0]
    return len(encoded.ids) - bool(encoded.special and encoded.special[-1])


def unit(vectors: "Floats") -> "Floats":
    """Normalize each row to unit length; rows of zeros are unchanged."""
    import numpy as np

    # As in ``np.linalg.norm``, without its other norms, which take longer to rule out.
    length: Floats = np.sqrt(np.add.reduce(vectors * vectors, axis=-1, keepdims=True))
    if np.count_nonzero(length) == length.size:
        normalized: Floats = vectors / length
        return normalized
    return np.divide(vectors, length, where=length > 0, out=np.zeros_like(vectors))
