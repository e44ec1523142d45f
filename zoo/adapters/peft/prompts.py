"""Prompts and prefixes in the layout of peft: ``prompt_embeddings``, and the head."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
PREFIX = "base_model."  # of names of the head; peft does not change the modules of the base
PROMPT = "PROMPT_TUNING"
PREFIX_TUNING = "PREFIX_TUNING"
# P-tuning stores the embeddings that its network computed
TYPES = (PROMPT, "P_TUNING", PREFIX_TUNING)
SEQ_TO_SEQ = TASK_TYPES["seq2seq-lm"]
BACKBONE = TASK_TYPES["none"]
READ = frozenset(
    (
        "num_virtual_tokens",
        "token_dim",
        "num_transformer_submodules",
        "num_attention_heads",
        "num_layers",
    )
)
# what values began with, and networks that computed them
UNREAD = frozenset(
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
    """Return whether peft's configuration is of a prompt or a prefix."""
    return settings.get("peft_type") in TYPES


# writing


def prompts_config(method: VirtualTokens, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration."""
    _require_applied(method, adaptable)
    if isinstance(method, PromptTuning):
        # peft only reads the width of a prompt
        kind = PROMPT
        modules = 1
        layers = 1
        heads = 1
        table: Any = token_embeddings(adaptable.model)
        width = table.embedding_dim
    else:
        if isinstance(method, PrefixTuning) and not method.shift_positions:
            raise UsageError(
                "in peft, the positions of a text follow the prefix, and this adapter has "
                "shift_positions false",
                "`zoo run` applies it with --adapter",
            )
        kind = PREFIX_TUNING
        modules = 1
        layers, heads, size = _sizes(adaptable)
        width = heads * size
        if _has_decoder(adaptable):
            modules = 2
            layers = 2 * layers
    return {
        "peft_type": kind,
        "num_virtual_tokens": method.num_virtual_tokens,
        "token_dim": width,
        "num_transformer_submodules": modules,
        "num_attention_heads": heads,
        "num_layers": layers,
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
        applies = task is not None  # without a type, peft calls the model without the prompt
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
    layers, heads, size = _sizes(adaptable)
    first = tensors.get("transform.0.bias")
    inner = None if first is None else len(first)
    prefix = PrefixEncoder(method.num_virtual_tokens, layers, heads, size, inner)
    prefix.load_state_dict(dict(tensors))
    flat = prefix.flat().detach()
    if not _has_decoder(adaptable):
        return flat
    # peft gives each layer four keys and values, the last two for its cross-attention, which does
    # not read them
    by_layer = flat.unflatten(-1, (layers, 1, -1))  # type: ignore[no-untyped-call]
    return torch.cat([by_layer, torch.zeros_like(by_layer)], 2).flatten(1)


# reading


def prompts_from_hub(
    source: Path, settings: Mapping[str, Any], adaptable: AdaptableModel, prompts: Tensor
) -> tuple[VirtualTokens, dict[str, Tensor]]:
    """Return the method of peft's configuration, and its tensors by our names."""
    stated = settings.get("num_virtual_tokens")
    rows = len(prompts)
    count = check_size(
        source,
        "num_virtual_tokens",
        stated,
        MAX_ADAPTER_SIZE,
        least=1,
        room=rows,
        hint="correct it",
    )
    modules = settings.get("num_transformer_submodules") or 1
    if modules not in (1, 2):
        raise VerificationError(
            f"{source}: num_transformer_submodules is {modules!r:.100}, not 1 or 2", "correct it"
        )
    if settings["peft_type"] == PREFIX_TUNING:
        prefix = PrefixTuning(num_virtual_tokens=count).resolved(adaptable)
        owner = prefix_owner(adaptable)
        values = _prefix_values(source, settings, adaptable, prompts, modules)
        return prefix, {f"{owner}adapter.embedding": values}
    prompt = PromptTuning(num_virtual_tokens=count, init="random").resolved(adaptable)
    # of an encoder-decoder peft stores as many for the decoder, and does not read them
    first = prompts[:count] if rows == count * modules else prompts
    return prompt, {"embeddings.tokens.adapter.prompt": first.clone()}


def _prefix_values(
    source: Path,
    settings: Mapping[str, Any],
    adaptable: AdaptableModel,
    prompts: Tensor,
    modules: int,
) -> Tensor:
    layers, heads, size = _sizes(adaptable)
    num_layers = settings.get("num_layers")
    if modules == 1:
        fits = num_layers == layers
    else:
        fits = isinstance(num_layers, int) and num_layers >= layers
    if not fits or prompts.shape[-1] != 2 * int(num_layers or 0) * heads * size:
        raise VerificationError(
            f"{source}: the prefix has {num_layers} layers of width {settings.get('token_dim')}, "
            f"and the model {layers} of {heads * size}",
            "give another base, or another --head",
        )
    if settings.get("num_attention_heads") != heads:
        raise VerificationError(
            f"{source}: num_attention_heads is {settings.get('num_attention_heads')}, not {heads}",
            "give another base",
        )
    if modules == 1:
        return prompts
    # see ``prompts_to_hub``; if there are fewer, those of all layers are repeated
    by_layer = prompts.unflatten(-1, (num_layers, -1))  # type: ignore[no-untyped-call]
    order = torch.arange(layers) * 2 % int(num_layers or 1)
    return by_layer[:, order].flatten(1)  # type: ignore[no-any-return]


def prefix_owner(adaptable: AdaptableModel) -> str:
    """Return the module that has the prefix, with a point if it is not the model."""
    layers = prefix_layers(adaptable.model)
    assert layers is not None, "resolved checks it"
    stack, _ = layers
    return stack.owner


def _sizes(adaptable: AdaptableModel) -> tuple[int, int, int]:
    """Return numbers of layers and of heads of keys, and the width of a head."""
    layers = prefix_layers(adaptable.model)
    if layers is None:
        raise UsageError(f"models of {adaptable.family.name} take no prefix")
    _, attentions = layers
    return len(attentions), attentions[0].head_counts[1], attentions[0].heads[1]
