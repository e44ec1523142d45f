"""Embeddings from the output of a model in torch, with gradients."""

# ``zoo.sentence_models.numpy_modules`` has the same modules in NumPy.

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.sentence_models.modules import (
    SENTENCE_VECTOR,
    TOKENS,
    ActivationName,
    DenseModule,
    DropoutModule,
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
    from zoo.sentence_models.module_weights import ModuleWeights

DENSE_FUNCTIONS: Mapping[ActivationName, Any] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "leaky_relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
}


class Dense(nn.Module):
    """A linear map, then an activation function; see ``DenseModule``."""

    def __init__(self, module: DenseModule) -> None:
        super().__init__()
        size = (module.in_features, module.out_features)
        self.linear = nn.Linear(*size, bias=module.bias)
        self.function: nn.Module = DENSE_FUNCTIONS[module.activation_function]()
        self.use_residual = module.use_residual
        self.residual = None
        if module.use_residual and module.in_features != module.out_features:
            self.residual = nn.Linear(*size, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        mapped: Tensor = self.function(self.linear(vectors))
        if not self.use_residual:
            return mapped
        if self.residual is not None:
            vectors = self.residual(vectors)
        return mapped + vectors


class LayerNorm(nn.Module):
    """Layer normalization; see ``LayerNormModule``."""

    def __init__(self, module: LayerNormModule) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(module.dimension)

    def forward(self, vectors: Tensor) -> Tensor:
        """Normalize (..., dimension)."""
        return self.norm(vectors)  # type: ignore[no-any-return]


class SentenceModules(nn.Module):
    """The modules of a sentence encoder after its backbone."""

    # The state dict has the names of the weights in the folders of a checkpoint, such as
    # ``2_Dense.linear.weight``.

    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling
        for number, module in enumerate(pooling.steps, 1):
            match module:
                case DenseModule():
                    layer: nn.Module = Dense(module)
                case LayerNormModule():
                    layer = LayerNorm(module)
                case DropoutModule():
                    layer = nn.Dropout(module.dropout)
                case _:
                    continue
            self.add_module(module_folder(number, module), layer)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor,
        *,
        ids: Tensor | None = None,
        prompt_tokens: int = 0,
        task: str = "document",
        skipped: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``token_embeddings``, ``attention_mask`` and perhaps ``sentence_embedding``.

        Args:
            hidden: (rows, tokens, width), or the logits of a sparse encoder.
            mask: (rows, tokens), 1 for tokens, which are adjacent, and 0 for padding.
            ids: (rows, tokens), which only ``MultiVectorMask`` and ``LexicalPooling`` read.
            prompt_tokens: the number of tokens of the prompt.
            task: ``query``, ``document`` or another role of the texts.
            skipped: ids of the tokens that these two leave out.

        Embeddings, (rows, width), have all dimensions, and sparse ones all weights.
        """
        values = {TOKENS: hidden}
        for number, module in enumerate(self.pooling.steps, 1):
            layer = self._modules.get(module_folder(number, module))
            match module:
                case PoolingModule():
                    pooled_mask = mask
                    if not module.include_prompt and prompt_tokens:
                        pooled_mask = mask.clone()
                        pooled_mask[:, :prompt_tokens] = 0
                    parts = [_pool(values[TOKENS], pooled_mask, mode) for mode in module.modes]
                    values[SENTENCE_VECTOR] = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
                case SpladePoolingModule():
                    values[SENTENCE_VECTOR] = splade(values[TOKENS], mask, module)
                case LexicalPoolingModule():
                    assert ids is not None, "lexical weights need the ids of tokens"
                    values[SENTENCE_VECTOR] = lexical_weights(
                        values[TOKENS], mask, ids, module.vocab_size, skipped
                    )
                case MaskModule():
                    mask = _mask_skipped(module, mask, ids, task, skipped)
                case NormalizeModule(module_input_name=input_name, module_output_name=name):
                    if input_name in values:
                        values[name] = F.normalize(values[input_name], dim=-1)
                case DenseModule(module_input_name=input_name, module_output_name=name):
                    assert layer is not None, "Dense has a module"
                    values[name] = layer(values[input_name])
                case LayerNormModule() | DropoutModule():
                    assert layer is not None, "it has a module"
                    values[SENTENCE_VECTOR] = layer(values[SENTENCE_VECTOR])
        return {**values, "attention_mask": mask}


@torch.no_grad()
def load_modules(modules: SentenceModules, weights: "ModuleWeights") -> list[str]:
    """Load ``Checkpoint.module_weights``; return the names of parameters that keep their values."""
    unchanged_names = []
    for name, parameter in modules.named_parameters():
        folder, _, tensor_name = name.partition(".")
        array = weights.get(folder, {}).get(tensor_name)
        if array is None or tuple(array.shape) != tuple(parameter.shape):
            unchanged_names.append(name)
        else:
            parameter.copy_(torch.from_numpy(array.copy()))
    return unchanged_names


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Return embeddings of modules without weights, before any truncation: (rows, dimensions).

    Args:
        hidden: (rows, tokens, hidden).
        mask: (rows, tokens), 1 for the tokens to pool, which are adjacent.
        pooling: the modules.
    """
    return SentenceModules(pooling)(hidden, mask)[SENTENCE_VECTOR]  # type: ignore[no-any-return]


def _pool(hidden: Tensor, mask: Tensor, mode: str) -> Tensor:
    rows = torch.arange(hidden.shape[0], device=hidden.device)
    first_position = mask.int().argmax(1)
    if mode == "cls":
        return hidden[rows, first_position]
    if mode == "lasttoken":
        return hidden[rows, first_position + mask.sum(1) - 1]
    if mode == "max":
        return hidden.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(1)
    weights = mask.to(hidden.dtype)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, mask.shape[1] + 1, device=mask.device)
    divisor = weights.sum(1, keepdim=True)
    if mode == "mean_sqrt_len_tokens":
        divisor = divisor.sqrt()
    weights = weights / divisor
    return (weights[:, :, None] * hidden).sum(1)


def splade(logits: Tensor, mask: Tensor, module: SpladePoolingModule) -> Tensor:
    """Return the weights of the words, (rows, vocabulary), from (rows, tokens, vocabulary)."""
    word_weights = (logits * mask[:, :, None].to(logits.dtype)).relu().log1p()
    if module.activation_function == "log1p_relu":
        word_weights = word_weights.log1p()
    if module.pooling_strategy == "max":
        return word_weights.amax(1)
    return word_weights.sum(1)


def lexical_weights(
    weights: Tensor, mask: Tensor, ids: Tensor, vocab_size: int, skipped: Tensor | None
) -> Tensor:
    """Return the weights of the tokens of the vocabulary, (rows, vocabulary).

    Args:
        weights: the weights of the tokens of texts, (rows, tokens, 1), not negative.
        mask: (rows, tokens), 1 for tokens, and 0 for padding.
        ids: (rows, tokens).
        vocab_size: number of tokens of the vocabulary.
        skipped: ids of the tokens that have no weight.
    """
    is_weighted = mask != 0
    if skipped is not None:
        is_weighted = is_weighted & ~torch.isin(ids, skipped)
    token_weights = weights[..., 0].masked_fill(~is_weighted, 0)
    result = weights.new_zeros(len(ids), vocab_size)
    return result.scatter_reduce(1, ids, token_weights, "amax")


def _mask_skipped(
    module: MaskModule, mask: Tensor, ids: Tensor | None, task: str, skipped: Tensor | None
) -> Tensor:
    """Return the mask of the tokens that late interaction compares, (rows, tokens)."""
    if module.skips_first:
        first_position = mask.int().argmax(1, keepdim=True)
        mask = mask.scatter(1, first_position, 0)
    if ids is None:
        return mask
    if task in module.skiplist_tasks and skipped is not None and len(skipped):
        mask = mask * ~torch.isin(ids, skipped)
    if task != "query" and module.keep_only_token_ids:
        compared_ids = torch.tensor(module.keep_only_token_ids, device=ids.device)
        mask = mask * torch.isin(ids, compared_ids)
    return mask
