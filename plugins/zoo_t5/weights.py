"""T5's tensors: the Hub's names and ours."""

from zoo.weights import Concat, Drop, Rule, Tied, WeightMap
from zoo_t5.config import T5Config

_TOKENS = "shared.weight"
_RELATIVE = "relative_attention_bias.weight"


def weights(config: T5Config, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels, vocabulary = config.hidden_size, len(config.labels), config.vocab_size
    match head:
        case "none":
            return _both(config)
        case "encoder":
            return _encoder(config)
        case "seq2seq-lm" if config.output_table:
            table = Rule("lm_head.weight", "head.weight", (vocabulary, width), optional=_OWN)
            return _both(config).plus(table)
        case "seq2seq-lm":
            return _both(config).plus(ties=[Tied("lm_head.weight", to=_TOKENS)])
        case "sequence-classification":
            return _both(config, "transformer.").plus(
                Rule("classification_head.dense.{p}", "head.dense.{p}", (width, width)),
                Rule("classification_head.out_proj.{p}", "head.out.{p}", (labels, width)),
            )
        case "token-classification":
            classifier = Rule("classifier.{p}", "head.{p}", (labels, width))
            return _encoder(config, "transformer.").plus(classifier)
        case "question-answering":
            return _both(config).plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    raise ValueError(f"T5 has no head {head!r}")


_OWN = "output_table"  # a file that the Hub's library wrote may say tied and hold a table


def _encoder(config: T5Config, prefix: str = "") -> WeightMap:
    """Return the rules for the encoder; some of the Hub's classes put a prefix in front."""
    table, width = prefix + _TOKENS, config.hidden_size
    return WeightMap(
        rules=[
            Rule(table, "embeddings.tokens.weight", (config.vocab_size, width)),
            *_stack(config, prefix + "encoder.", ""),
        ],
        ties=[Tied(f"{prefix}encoder.embed_tokens.weight", to=table)],
        prefix=prefix,
        counts={"i": config.num_layers, "j": config.decoder_layers},
    )


def _both(config: T5Config, prefix: str = "") -> WeightMap:
    theirs = prefix + "decoder."
    unused = Drop(
        f"{theirs}block.0.layer.1.EncDecAttention.{_RELATIVE}",
        "attention to the source has no positions; the first release stored a table it never read",
    )
    return _encoder(config, prefix).plus(
        *_stack(config, theirs, "decoder."),
        drops=[unused],
        ties=[Tied(f"{theirs}embed_tokens.weight", to=prefix + _TOKENS)],
    )


def _stack(config: T5Config, theirs: str, ours: str) -> list[Rule]:
    """Return the rules for the blocks of the encoder, or of the decoder, which have a part more."""
    width, inner, decoder = config.hidden_size, config.inner_size, bool(ours)
    number = "{j}" if decoder else "{i}"
    hub, block = f"{theirs}block.{number}.layer.", f"{ours}layers.{number}."
    first = f"{theirs}block.0.layer.0.SelfAttention.{_RELATIVE}"
    rules = [
        Rule(first, ours + "positions.weight", (config.num_buckets, config.num_heads)),
        _joined(hub + "0.SelfAttention.", "qkv", block + "attention.qkv", (3 * inner, width)),
        Rule(hub + "0.SelfAttention.o.weight", block + "attention.out.weight", (width, inner)),
        Rule(hub + "0.layer_norm.weight", block + "attention_norm.weight", (width,)),
    ]
    if decoder:
        rules += [
            Rule(hub + "1.EncDecAttention.q.weight", block + "cross.q.weight", (inner, width)),
            _joined(hub + "1.EncDecAttention.", "kv", block + "cross.kv", (2 * inner, width)),
            Rule(hub + "1.EncDecAttention.o.weight", block + "cross.out.weight", (width, inner)),
            Rule(hub + "1.layer_norm.weight", block + "cross_norm.weight", (width,)),
        ]
    return [
        *rules,
        *_feed_forward(config, f"{hub}{1 + decoder}.", block),
        Rule(f"{theirs}final_layer_norm.weight", f"{ours}final_norm.weight", (width,)),
    ]


def _feed_forward(config: T5Config, hub: str, block: str) -> list[Rule]:
    width, inner = config.hidden_size, config.intermediate_size
    dense = hub + "DenseReluDense."
    if config.gated:
        up = _joined(dense, ("wi_0", "wi_1"), block + "ffn.up", (2 * inner, width))
    else:
        up = Rule(dense + "wi.weight", block + "ffn.up.weight", (inner, width))
    return [
        up,
        Rule(dense + "wo.weight", block + "ffn.down.weight", (width, inner)),
        Rule(hub + "layer_norm.weight", block + "ffn_norm.weight", (width,)),
    ]


def _joined(theirs: str, parts: str | tuple[str, ...], ours: str, shape: tuple[int, int]) -> Rule:
    """Return the rule for matrices that are kept as one, so that one product does for all."""
    names = tuple(f"{theirs}{part}.weight" for part in parts)
    return Rule(names, ours + ".weight", shape, Concat(len(names)))
