"""Weight rules of encoder-decoders, with a family's Hub names as data.

The names are fairseq's, from which the Hub's classes have them. ``{i}`` is a block of the
encoder, ``{j}`` of the decoder.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.weights.constants import sinusoidal_positions
from zoo.weights.encoder_rules import (
    FAIRSEQ_NAMES,
    BlockNames,
    block_rules,
    module_rule,
    weight_rule,
)
from zoo.weights.head_rules import lm_head_rules
from zoo.weights.ops import Concat
from zoo.weights.rules import Constant, Ignore, Rule, TiedAlias, WeightMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX = "model."
CROSS_NAMES = BlockNames(
    query="encoder_attn.q_proj",
    key="encoder_attn.k_proj",
    value="encoder_attn.v_proj",
    out="encoder_attn.out_proj",
    attention_norm="encoder_attn_layer_norm",
)


def cross_attention_rules(
    config: Any,
    source: str,
    target: str = "decoder.layers.{j}.",
    names: BlockNames = CROSS_NAMES,
    *,
    bias: bool = True,
) -> list[Rule]:
    """Return the rules for the cross-attention of a ``PostNormDecoderBlock``."""
    width = config.hidden_size
    rule = module_rule if bias else weight_rule
    parameter = "{p}" if bias else "weight"
    keys_and_values = tuple(f"{source}{part}.{parameter}" for part in (names.key, names.value))
    return [
        rule(source + names.query, f"{target}cross.q", width, width),
        Rule(keys_and_values, f"{target}cross.kv.{parameter}", (2 * width, width), Concat(2)),
        rule(source + names.out, f"{target}cross.out", width, width),
        module_rule(source + names.attention_norm, f"{target}cross_norm", width),
    ]


def seq2seq_rules(
    config: Any,
    *,
    position_offset: int = 0,
    decoder_positions: int | None = None,
    positions: Sequence[Constant] | None = None,
    embedding_norm: bool = True,
    final_norm: bool = False,
    shared_table: bool = True,
    prefix: str = PREFIX,
    final_norm_name: str = "layer_norm",
    blocks: Sequence[Rule] | None = None,
) -> WeightMap:
    """Return the rules for the embeddings and blocks of encoder and decoder.

    Args:
        config: a ``Seq2SeqConfig``.
        position_offset: number of rows of the tables of positions before the first position.
        decoder_positions: number of positions of the decoder; ``None`` for the encoder's.
        positions: the tables of positions where they are not learned; see ``position_constants``.
        embedding_norm: whether norms follow the embeddings.
        final_norm: whether norms follow the last blocks.
        shared_table: see ``token_rules``.
        prefix: prefix of the backbone's tensors in models with a head.
        final_norm_name: Hub name of the norm after the last block, within its stack.
        blocks: rules of the blocks of both stacks; ``None`` for the most common names.
    """
    width = config.hidden_size
    encoder_rows = config.max_positions + position_offset
    decoder_rows = encoder_rows
    if decoder_positions is not None:
        decoder_rows = decoder_positions + position_offset
    rules, ties = token_rules(config, prefix, shared_table=shared_table)
    stacks = (("encoder", "", encoder_rows), ("decoder", "decoder.", decoder_rows))
    for stack, target, rows in stacks:
        source = f"{prefix}{stack}."
        if positions is None:
            table = f"{source}embed_positions.weight"
            rules.append(Rule(table, f"{target}embeddings.positions.weight", (rows, width)))
        if embedding_norm:
            norm = f"{target}embeddings.norm"
            rules.append(module_rule(f"{source}layernorm_embedding", norm, width))
        if final_norm:
            rules.append(module_rule(f"{source}{final_norm_name}", f"{target}final_norm", width))
    if blocks is None:
        decoder = f"{prefix}decoder.layers.{{j}}."
        inner = config.decoder_ffn_dim
        blocks = [
            *block_rules(config, FAIRSEQ_NAMES, f"{prefix}encoder.layers.{{i}}."),
            *block_rules(config, FAIRSEQ_NAMES, decoder, "decoder.layers.{j}.", inner=inner),
            *cross_attention_rules(config, decoder),
        ]
    return WeightMap(
        rules=[*rules, *blocks],
        drops=[
            Ignore(f"{prefix}{stack}.version", "a version of fairseq")
            for stack in ("encoder", "decoder")
        ],
        ties=ties,
        constants=positions or (),
        prefix=prefix,
        counts={"i": config.num_layers, "j": config.decoder_layers},
    )


def language_model_rules(
    backbone: WeightMap,
    config: Any,
    *,
    tokens: str = f"{PREFIX}shared.weight",
    bias: str = "final_logits_bias",
) -> WeightMap:
    """Return the rules of a backbone with a ``Seq2SeqLM``.

    Args:
        backbone: see ``seq2seq_rules``.
        config: a ``Seq2SeqConfig``.
        tokens: Hub name of the embeddings that are also the output embeddings if they are tied.
        bias: Hub name of the bias of the logits; empty for none. See ``lm_head_rules``.
    """
    return lm_head_rules(backbone, config, tokens, tied=config.tie_embeddings, bias=bias)


def token_rules(
    config: Any, prefix: str = PREFIX, *, shared_table: bool = True
) -> tuple[list[Rule], list[TiedAlias]]:
    """Return the rules of the token embeddings, and their aliases.

    Args:
        config: a ``Seq2SeqConfig``.
        prefix: see ``seq2seq_rules``.
        shared_table: whether the Hub's class has a table for encoder and decoder; ``False`` for
            two vocabularies.
    """
    # Without ``tie_embeddings``, encoder and decoder have a table each. The Hub's class has a third
    # one, ``shared``, which it does not use; a file may store only this one.
    shared, encoder, decoder = (
        f"{prefix}{name}.weight"
        for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    )
    shape = (config.vocab_size, config.hidden_size)
    own = "embeddings.tokens.weight"
    if not shared_table:
        return [Rule(encoder, own, shape), Rule(decoder, f"decoder.{own}", shape)], []
    if config.tie_embeddings:
        ties = [TiedAlias(table, to=shared) for table in (encoder, decoder)]
        return [Rule(shared, own, shape)], ties
    rules = [
        Rule(encoder, own, shape, fallback=shared),
        Rule(decoder, f"decoder.{own}", shape, fallback=shared),
    ]
    return rules, [TiedAlias(shared, to=encoder, unused=True)]


def sinusoid_table(config: Any) -> "Callable[[], NDArray[np.float32]]":
    """Return a function that returns sinusoidal positions, (rows, hidden), float32.

    Args:
        config: a ``Seq2SeqConfig``.
    """
    return partial(sinusoidal_positions, config.max_positions, config.hidden_size)


def position_constants(config: Any, prefix: str = PREFIX) -> list[Constant]:
    """Return the rules of sinusoidal positions, which files store.

    Args:
        config: a ``Seq2SeqConfig``.
        prefix: see ``seq2seq_rules``.
    """
    return [
        Constant(
            f"{prefix}{stack}.embed_positions.weight",
            (config.max_positions, config.hidden_size),
            sinusoid_table(config),
            "sinusoidal positions",
            tolerance=1e-6,
        )
        for stack in ("encoder", "decoder")
    ]
