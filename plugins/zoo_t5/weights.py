"""Weight rules of T5: names of the Hub's checkpoints and names of the zoo's modules."""

from zoo.weights import Concat, Ignore, Rule, TiedAlias, WeightMap
from zoo.weights.head_rules import HeadNames, dense_rules, lm_head_rules, with_head, with_mix
from zoo_t5.config import T5Config, require_head

_TOKENS = "shared.weight"
_RELATIVE = "relative_attention_bias.weight"
_TEXT_HEAD = ("classification_head.dense", "classification_head.out_proj")


def weights(config: T5Config, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    # some of the Hub's classes add a prefix to the backbone
    prefix = "transformer." if head.endswith("-classification") else ""
    tied = not config.output_table
    require_head(config, head)
    if head == "causal-lm" or config.single_stack is not None:
        # No class of the Hub. Names are those of the stack of an encoder-decoder whose relative
        # positions count alike.
        stack = _first_stack(
            config, "", "encoder" if config.single_stack == "prefix" else "decoder"
        )
        if head == "none":
            return stack
        return lm_head_rules(stack, config, _TOKENS, tied=tied)
    if head in ("encoder", "token-classification"):
        backbone = _first_stack(config, prefix)
    else:
        backbone = _both(config, prefix)
    if head == "seq2seq-lm":
        # files of the Hub's library may declare tied embeddings and have a table
        return lm_head_rules(backbone, config, _TOKENS, tied=tied, optional="output_table")
    if head == "sequence-classification":  # of what the decoder returns
        mixed = with_mix(backbone, config, stack="decoder.", layers=config.decoder_layers)
        return mixed.plus(*dense_rules(config, *_TEXT_HEAD, len(config.labels)))
    head_with_rules = "none" if head == "encoder" else head
    return with_head(backbone, config, head_with_rules, HeadNames())


def _first_stack(config: T5Config, prefix: str, name: str = "encoder") -> WeightMap:
    """Return the rules of the encoder, or of the only stack, and of the token embeddings."""
    table = prefix + _TOKENS
    width = config.hidden_size
    return WeightMap(
        rules=[
            Rule(table, "embeddings.tokens.weight", (config.vocab_size, width)),
            *_stack(config, f"{prefix}{name}.", ""),
        ],
        ties=[TiedAlias(f"{prefix}{name}.embed_tokens.weight", to=table)],
        prefix=prefix,
        counts={"i": config.num_layers, "j": config.decoder_layers},
    )


def _both(config: T5Config, prefix: str) -> WeightMap:
    decoder = prefix + "decoder."
    unused = Ignore(
        f"{decoder}block.0.layer.1.EncDecAttention.{_RELATIVE}",
        "cross-attention has no positions; the first release stored a table that it never read",
    )
    rules = _stack(config, decoder, "decoder.")
    ties = [TiedAlias(f"{decoder}embed_tokens.weight", to=prefix + _TOKENS)]
    if config.tie_encoder_decoder:
        rules = [rule for rule in rules if ".cross" in rule.target]
        ties += _tied_names(config, prefix)
    return _first_stack(config, prefix).plus(*rules, drops=[unused], ties=ties)


def _tied_names(config: T5Config, prefix: str) -> list[TiedAlias]:
    """Return the names of a decoder's tensors whose values are the encoder's."""
    # Files for the Hub have both, so that programs which do not tie them compute the same.
    up_names = ["wi_0", "wi_1"] if config.gated else ["wi"]
    encoder_names = [f"0.SelfAttention.{name}" for name in "qkvo"] + ["0.layer_norm"]
    encoder_names += [f"1.DenseReluDense.{name}" for name in [*up_names, "wo"]] + ["1.layer_norm"]
    owners = {}
    for name in encoder_names:
        # The decoder's feed-forward network is its third layer.
        decoder_name = f"2{name[1:]}" if name.startswith("1") else name
        owners[f"block.{{j}}.layer.{decoder_name}.weight"] = f"block.{{j}}.layer.{name}.weight"
    block = "0" if config.shares_positions else "{j}"
    table = f"block.{block}.layer.0.SelfAttention.{_RELATIVE}"
    for name in (table, "final_layer_norm.weight"):
        owners[name] = name
    return [
        TiedAlias(f"{prefix}decoder.{name}", to=f"{prefix}encoder.{owner}", unused=True)
        for name, owner in owners.items()
    ]


def _stack(config: T5Config, hub_prefix: str, prefix: str) -> list[Rule]:
    """Return the rules of the blocks of encoder or decoder.

    A decoder after an encoder has cross-attention as well, and a prefix of our names.
    """
    width = config.hidden_size
    heads = config.inner_size
    inner = config.intermediate_size
    follows_encoder = bool(prefix)
    number = "{j}" if follows_encoder else "{i}"
    ffn_layer = "2" if hub_prefix.endswith("decoder.") else "1"

    def rule(part: str, names: str, target: str, *shape: int) -> Rule:
        """Return the rule of one matrix, or of several that are fused into one matrix product."""
        target = f"{prefix}layers.{number}.{target}.weight"
        hub = [f"{hub_prefix}block.{number}.layer.{part}.{name}.weight" for name in names.split()]
        if len(hub) == 1:
            return Rule(hub[0], target, shape)
        return Rule(tuple(hub), target, shape, Concat(len(hub)))

    cross_rules: list[Rule] = []
    if follows_encoder:
        cross_rules = [
            rule("1.EncDecAttention", "q", "cross.q", heads, width),
            rule("1.EncDecAttention", "k v", "cross.kv", 2 * heads, width),
            rule("1.EncDecAttention", "o", "cross.out", width, heads),
            rule("1", "layer_norm", "cross_norm", width),
        ]
    up_names = "wi"
    up_size = inner
    if config.gated:
        up_names = "wi_0 wi_1"
        up_size = 2 * inner
    # Blocks that share a table have it in the first one.
    block = "0"
    owner = prefix
    if not config.shares_positions:
        block = number
        owner = f"{prefix}layers.{number}."
    table = f"{hub_prefix}block.{block}.layer.0.SelfAttention.{_RELATIVE}"
    return [
        Rule(table, f"{owner}positions.weight", (config.num_buckets, config.num_heads)),
        rule("0.SelfAttention", "q k v", "attention.qkv", 3 * heads, width),
        rule("0.SelfAttention", "o", "attention.out", width, heads),
        rule("0", "layer_norm", "attention_norm", width),
        *cross_rules,
        rule(f"{ffn_layer}.DenseReluDense", up_names, "ffn.up", up_size, width),
        rule(f"{ffn_layer}.DenseReluDense", "wo", "ffn.down", width, inner),
        rule(ffn_layer, "layer_norm", "ffn_norm", width),
        Rule(f"{hub_prefix}final_layer_norm.weight", f"{prefix}final_norm.weight", (width,)),
    ]
