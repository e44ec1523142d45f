"""Prompts and prefixes in the layout of peft: ``prompt_embeddings``, and the head."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.adapted_models.targets import AdaptableModel
from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.adapters.peft.layout import TASK_TYPES
from zoo.adapters.prefix import PrefixTuning
from zoo.adapters.prompt import PromptTuning
from zoo.errors import UsageError, VerificationError
from zoo.io.limits import MAX_ADAPTER_SIZE
from zoo.io.sizes import check_size
from zoo.nn.adapters.prefix import PrefixEncoder, prefix_layers
from zoo.nn.adapters.prompt import token_embeddings

PROMPTS = "prompt_embeddings"
# Tensors of the head begin with it; peft does not change the names of the base's modules.
PREFIX = "base_model."
PROMPT_TUNING = "PROMPT_TUNING"
PREFIX_TUNING = "PREFIX_TUNING"
# P-tuning stores the embeddings that its network computed.
TYPES = (PROMPT_TUNING, "P_TUNING", PREFIX_TUNING)
SEQ_TO_SEQ = TASK_TYPES["seq2seq-lm"]
BACKBONE = TASK_TYPES["none"]
READ_KEYS = frozenset(
    (
        "num_virtual_tokens",
        "token_dim",
        "num_transformer_submodules",
        "num_attention_heads",
        "num_layers",
    )
)
# Keys about the initial values, and about networks that computed the values.
IGNORED_KEYS = frozenset(
    (
        "prompt_tuning_init",
        "prompt_tuning_init_text",
        "tokenizer_name_or_path",
        "tokenizer_kwargs",
        "init_weights",
        "prefix_projection",
        "encoder_hidden_size",
        "encoder_reparameterization_type",
        "encoder_num_layers",
        "encoder_dropout",
    )
)


def is_prompt(settings: Mapping[str, Any]) -> bool:
    """Return whether peft's configuration describes a prompt or a prefix."""
    return settings.get("peft_type") in TYPES


def prompts_config(method: VirtualTokens, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration."""
    _require_applied(method, adaptable)
    if isinstance(method, PromptTuning):
        # peft only reads the width of a prompt.
        table: Any = token_embeddings(adaptable.model)
        return {
            "peft_type": PROMPT_TUNING,
            "num_virtual_tokens": method.num_virtual_tokens,
            "token_dim": table.embedding_dim,
            "num_transformer_submodules": 1,
            "num_attention_heads": 1,
            "num_layers": 1,
        }
    if isinstance(method, PrefixTuning) and not method.shift_positions:
        raise UsageError(
            "in peft, the positions of a text follow the prefix, and this adapter has "
            "shift_positions false",
            "`zoo run` applies it with --adapter",
        )
    sizes = _attention_sizes(adaptable)
    stacks = 2 if _has_decoder(adaptable) else 1
    return {
        "peft_type": PREFIX_TUNING,
        "num_virtual_tokens": method.num_virtual_tokens,
        "token_dim": sizes.width,
        "num_transformer_submodules": stacks,
        "num_attention_heads": sizes.heads,
        "num_layers": stacks * sizes.layers,
    }


def _require_applied(method: VirtualTokens, adaptable: AdaptableModel) -> None:
    """Check that peft applies prompts or prefixes to the class of a model."""
    task = TASK_TYPES.get(adaptable.head)
    is_prefix = isinstance(method, PrefixTuning)
    if _has_decoder(adaptable):
        # Its classes with other heads compute the decoder's inputs from token ids, which they do
        # not get with a prompt, and a prefix would also be read by the encoder.
        applies = task == SEQ_TO_SEQ or (task == BACKBONE and not is_prefix)
    elif is_prefix:
        model_type = adaptable.family.model_type(adaptable.config)
        applies = task is not None and model_type in adaptable.targets.prefix_model_types
    else:
        # Without a type, peft calls the model without the prompt.
        applies = task is not None
    if not applies:
        raise UsageError(
            f"peft has no {method.name} of a model of {adaptable.family.name} with the head "
            f"{adaptable.head}",
            "`zoo run` applies it with --adapter",
        )


def _has_decoder(adaptable: AdaptableModel) -> bool:
    """Return whether a model has a decoder after an encoder."""
    layers = prefix_layers(adaptable.model)
    return layers is not None and layers[0].owner != ""


def prompts_to_hub(
    method: VirtualTokens, adaptable: AdaptableModel, tensors: Mapping[str, Tensor]
) -> Tensor:
    """Return ``prompt_embeddings``, of an adapter's tensors by the last parts of their names."""
    if isinstance(method, PromptTuning):
        return tensors["prompt"]
    sizes = _attention_sizes(adaptable)
    hidden_size = None
    if "transform.0.bias" in tensors:  # The prefix has a network.
        hidden_size = len(tensors["transform.0.bias"])
    prefix = PrefixEncoder(
        method.num_virtual_tokens, sizes.layers, sizes.heads, sizes.head_size, hidden_size
    )
    prefix.load_state_dict(dict(tensors))
    flat = prefix.flat().detach()
    if not _has_decoder(adaptable):
        return flat
    # peft gives each layer four keys and values, the last two for its cross-attention, which does
    # not read them.
    by_layer = flat.unflatten(-1, (sizes.layers, 1, -1))  # type: ignore[no-untyped-call]
    return torch.cat([by_layer, torch.zeros_like(by_layer)], 2).flatten(1)


def prompts_from_hub(
    source: Path, settings: Mapping[str, Any], adaptable: AdaptableModel, prompts: Tensor
) -> tuple[VirtualTokens, dict[str, Tensor]]:
    """Return the method of peft's configuration, and its tensors by our names."""
    row_count = len(prompts)
    token_count = check_size(
        source,
        "num_virtual_tokens",
        settings.get("num_virtual_tokens"),
        MAX_ADAPTER_SIZE,
        least=1,
        room=row_count,
        hint="correct it",
    )
    stacks = settings.get("num_transformer_submodules") or 1
    if stacks not in (1, 2):
        raise VerificationError(
            f"{source}: num_transformer_submodules is {stacks!r:.100}, not 1 or 2", "correct it"
        )
    if settings["peft_type"] == PREFIX_TUNING:
        prefix = PrefixTuning(num_virtual_tokens=token_count).resolved(adaptable)
        owner = prefix_owner(adaptable)
        values = _prefix_values(source, settings, adaptable, prompts, stacks)
        return prefix, {f"{owner}adapter.embedding": values}
    prompt = PromptTuning(num_virtual_tokens=token_count, init="random").resolved(adaptable)
    embeddings = prompts
    if row_count == token_count * stacks:
        # In a model with a decoder, peft stores as many rows for it, and does not read them.
        embeddings = prompts[:token_count]
    return prompt, {"embeddings.tokens.adapter.prompt": embeddings.clone()}


def _prefix_values(
    source: Path,
    settings: Mapping[str, Any],
    adaptable: AdaptableModel,
    prompts: Tensor,
    stacks: int,
) -> Tensor:
    """Return the keys and values of a prefix, (tokens, layers x 2 x width).

    Args:
        source: file with the configuration, for errors.
        settings: the configuration.
        adaptable: what adapters of the base may change.
        prompts: ``prompt_embeddings``.
        stacks: 2 for a model with an encoder and a decoder, 1 for others.
    """
    sizes = _attention_sizes(adaptable)
    num_layers = settings.get("num_layers")
    if stacks == 1:
        has_all_layers = num_layers == sizes.layers
    else:
        has_all_layers = isinstance(num_layers, int) and num_layers >= sizes.layers
    if not has_all_layers or prompts.shape[-1] != 2 * int(num_layers or 0) * sizes.width:
        raise VerificationError(
            f"{source}: the prefix has {num_layers} layers of width {settings.get('token_dim')}, "
            f"and the model {sizes.layers} of {sizes.width}",
            "give another base, or another --head",
        )
    if settings.get("num_attention_heads") != sizes.heads:
        raise VerificationError(
            f"{source}: num_attention_heads is {settings.get('num_attention_heads')}, not "
            f"{sizes.heads}",
            "give another base",
        )
    if stacks == 1:
        return prompts
    # Each layer has four keys and values, as in ``prompts_to_hub``. If there are fewer, those of
    # all layers are repeated.
    by_layer = prompts.unflatten(-1, (num_layers, -1))  # type: ignore[no-untyped-call]
    order = torch.arange(sizes.layers) * 2 % int(num_layers or 1)
    return by_layer[:, order].flatten(1)  # type: ignore[no-any-return]


def prefix_owner(adaptable: AdaptableModel) -> str:
    """Return the module that has the prefix, with a point if it is not the model."""
    layers = prefix_layers(adaptable.model)
    assert layers is not None, "resolved checks it"
    stack, _ = layers
    return stack.owner


class _AttentionSizes(NamedTuple):
    """Sizes of the keys and values of a model."""

    layers: int
    heads: int  # Number of heads of keys.
    head_size: int

    @property
    def width(self) -> int:
        """Width of the keys of a layer."""
        return self.heads * self.head_size


def _attention_sizes(adaptable: AdaptableModel) -> _AttentionSizes:
    """Return the sizes of the keys and values that a prefix has."""
    layers = prefix_layers(adaptable.model)
    if layers is None:
        raise UsageError(f"models of {adaptable.family.name} take no prefix")
    _, attentions = layers
    attention = attentions[0]
    return _AttentionSizes(len(attentions), attention.head_counts[1], attention.heads[1])
