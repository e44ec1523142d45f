"""Parts of models whose blocks attend to all tokens or to a window, in turn.

Warner et al. 2024, arXiv:2412.13663, section 2.1: queries and keys are rotated by their positions,
with another base in local attention; norms precede attention and feed-forward network, but for the
first block's attention, whose input is normalized already; feed-forward networks have a gate; and
neither linear maps nor norms have biases.
"""

from functools import partial
from typing import Any

from torch import nn

from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.heads import NormedHead
from zoo.nn.layers.init import init_weights
from zoo.nn.positions import Rotary, make_rotary
from zoo.nn.transformer import AttentionDropoutBlock, GatedFeedForward

_RESIDUAL_OUTPUTS = ("attention.out", "ffn.down")  # Linear maps of a block to the residual path.


def make_alternating_backbone(config: Any, *, causal: bool = False) -> dict[str, Any]:
    """Return the arguments of an ``Encoder``.

    Args:
        config: a ``zoo.families.alternating.AlternatingConfig``.
        causal: whether a token attends to earlier tokens only.
    """
    make_norm = partial(nn.LayerNorm, config.hidden_size, eps=config.layer_norm_eps, bias=False)
    blocks = make_blocks(
        config,
        AttentionDropoutBlock,
        attention=lambda _: make_self_attention(config, causal=causal, bias=False),
        ffn_type=partial(GatedFeedForward, dropout=config.dropout),
        dropout=config.attention_dropout,
        bias=False,
    )
    blocks[0].attention_norm = nn.Identity()
    embeddings = make_embeddings(config, positions=False)
    embeddings.norm = make_norm()
    pattern = AttentionPattern(
        config.local_layers,
        config.reach,
        causal=causal,
        rotary=Rotary(config.head_size, config.local_rope_theta),
    )
    return {
        "embeddings": embeddings,
        "layers": blocks,
        "final_norm": make_norm(),
        "rotary": make_rotary(config, config.head_size, config.global_rope_theta),
        "pattern": pattern,
    }


def init_residual_outputs(model: Encoder, config: Any) -> None:
    """Initialize what is added to the residual path as transformers does.

    It begins smaller by the number of such sums, and so does the first linear map of a head. The
    last map of a classifier follows from the width.
    """
    std = config.initializer_range * (2 * config.num_layers) ** -0.5
    for layer in model.layers:
        for name in _RESIDUAL_OUTPUTS:
            init_weights(layer.get_submodule(name), std=std)
    if model.head is None:
        return
    init_weights(model.head.get_submodule("dense"), std=std)
    if isinstance(model.head, NormedHead):
        init_weights(model.head.out, std=config.hidden_size**-0.5)
