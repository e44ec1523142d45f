"""T5 and mT5 in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS
from zoo.families.runtimes import QKV, RuntimeHeader, RuntimeModel, layered, runtime_weights
from zoo.families.seq2seq_runtimes import CT2_LOGITS_ONLY, OURS, ct2_cross_attention
from zoo.weights import Concat
from zoo_t5.config import T5Config
from zoo_t5.weights import weights

_TOKENS = "embeddings.tokens.weight"
# The feed-forward networks that llama.cpp computes.
FEED_FORWARD = ("relu", "gated-gelu")
TIED = "its encoder and decoder have weights of their own"
SINGLE_STACK = "it has no stack that reads source and target as one text"
MAX_DISTANCE = 128  # From this distance on, llama.cpp's relative positions share a bucket.


def ctranslate2(config: T5Config, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head not in ("seq2seq-lm", "encoder"):
        return CT2_LOGITS_ONLY
    if config.single_stack is not None:
        return SINGLE_STACK
    if config.tie_encoder_decoder and head != "encoder":
        return TIED
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    if not config.shares_positions:
        return "the blocks of its stacks share one table of relative positions"
    model = weights(config, head)
    settings = {
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.layer_norm_eps,
        "rms_norm": True,
        "ffn_glu": config.gated,
        "relative_attention_bias": True,
        "relative_attention_max_distance": config.max_distance,
        "queries_scale": 1.0,  # scores are not divided
    }
    names: dict[Any, Any] = {
        "encoder/embeddings_0/weight": _TOKENS,
        **_ct2_stack(config, "encoder", "{i}"),
    }
    copies = _copies("encoder", config.num_layers)
    if head == "encoder":
        settings |= {"num_layers": config.num_layers, "num_heads": config.num_heads}
        counts = {"i": config.num_layers}
        return RuntimeModel("encoder", settings, runtime_weights(names, model, counts), copies)
    names |= _ct2_stack(config, "decoder", "{j}")
    names |= ct2_cross_attention("decoder/layer_{j}/", "weight")
    names["decoder/layer_{j}/attention/layer_norm/gamma"] = "decoder.layers.{j}.cross_norm.weight"
    copies |= _copies("decoder", config.decoder_layers)
    copies["decoder/embeddings/weight"] = _TOKENS
    if config.output_table:
        names["decoder/projection/weight"] = "head.weight"
    else:
        copies["decoder/projection/weight"] = _TOKENS
    settings |= {
        "num_layers": (config.num_layers, config.decoder_layers),
        "num_heads": (config.num_heads, config.num_heads),
        "scale_outputs": config.hidden_size**-0.5 if config.scale_outputs else None,
    }
    counts = {"i": config.num_layers, "j": config.decoder_layers}
    return RuntimeModel("encoder-decoder", settings, runtime_weights(names, model, counts), copies)


def _ct2_stack(config: T5Config, stack: str, number: str) -> dict[Any, Any]:
    """Return the names of the blocks of a stack, without cross-attention."""
    up: dict[Any, Any] = {"ffn/linear_0/weight": "ffn.up.weight"}
    if config.gated:
        both = "ffn/linear_0/weight", "ffn/linear_0_noact/weight"
        up = {both: ("ffn.up.weight", Concat(2))}
    ours = OURS[stack]
    return {
        **layered(
            f"{stack}/layer_{number}/",
            {
                "self_attention/linear_0/weight": "attention.qkv.weight",
                "self_attention/linear_1/weight": "attention.out.weight",
                "self_attention/layer_norm/gamma": "attention_norm.weight",
                **up,
                "ffn/linear_1/weight": "ffn.down.weight",
                "ffn/layer_norm/gamma": "ffn_norm.weight",
            },
            f"{ours}layers.{number}.",
        ),
        f"{_bias(stack, 0)}": f"{ours}positions.weight",
        f"{stack}/layer_norm/gamma": f"{ours}final_norm.weight",
    }


def _copies(stack: str, layers: int) -> dict[str, str]:
    """Return the tables of position biases after the first block, which shares its table."""
    table = f"{OURS[stack]}positions.weight"
    return {_bias(stack, number): table for number in range(1, layers)}


def _bias(stack: str, number: int) -> str:
    return f"{stack}/layer_{number}/self_attention/relative_attention_bias"


def gguf(config: T5Config, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head not in ("encoder", "seq2seq-lm"):
        return "it has the encoder, and the language model of encoder and decoder"
    if config.single_stack is not None:
        return SINGLE_STACK
    if config.tie_encoder_decoder and head != "encoder":
        return TIED
    if config.feed_forward not in FEED_FORWARD:
        return f"its feed-forward networks are {' or '.join(FEED_FORWARD)}"
    if config.max_distance != MAX_DISTANCE:
        return f"its relative positions reach {MAX_DISTANCE} tokens, not {config.max_distance}"
    has_decoder = head == "seq2seq-lm"
    settings: dict[str, Any] = {
        "context_length": 512,  # The length of training rows; relative positions are unlimited.
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_layers,
        "attention.head_count": config.num_heads,
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "attention.layer_norm_rms_epsilon": config.layer_norm_eps,
        "attention.relative_buckets_count": config.num_buckets,
    }
    names: dict[Any, Any] = {
        "token_embd.weight": _TOKENS,
        **_gguf_stack(config, "enc.", "", "{i}"),
    }
    counts = {"i": config.num_layers}
    if not has_decoder:
        settings["attention.causal"] = False
        return RuntimeModel(
            "t5encoder", settings, runtime_weights(names, weights(config, head), counts)
        )
    settings["decoder_block_count"] = config.decoder_layers
    settings["decoder_start_token_id"] = config.decoder_start_token_id
    names |= _gguf_stack(config, "dec.", "decoder.", "{j}")
    counts["j"] = config.decoder_layers
    copies: dict[str, str] = {}
    if config.output_table:
        names["output.weight"] = "head.weight"
    elif not config.scale_outputs:
        # A table of its own says that hidden states are not scaled before it.
        copies["output.weight"] = _TOKENS
    problem = ""
    if config.scale_outputs:
        problem = "it does not scale hidden states before tied output embeddings"
    return RuntimeModel(
        "t5",
        settings,
        runtime_weights(names, weights(config, head), counts),
        copies=copies,
        read_only=problem,
    )


def _gguf_stack(config: T5Config, theirs: str, ours: str, number: str) -> dict[Any, Any]:
    """Return the names of the blocks of encoder or decoder."""
    cross: dict[Any, Any] = {
        "cross_attn_q.weight": "cross.q.weight",
        ("cross_attn_k.weight", "cross_attn_v.weight"): ("cross.kv.weight", Concat(2)),
        "cross_attn_o.weight": "cross.out.weight",
        "cross_attn_norm.weight": "cross_norm.weight",
    }
    gated: dict[Any, Any] = {("ffn_gate.weight", "ffn_up.weight"): ("ffn.up.weight", Concat(2))}
    block = {
        ("attn_q.weight", "attn_k.weight", "attn_v.weight"): ("attention.qkv.weight", QKV),
        "attn_o.weight": "attention.out.weight",
        "attn_norm.weight": "attention_norm.weight",
        **(cross if ours else {}),
        **(gated if config.gated else {"ffn_up.weight": "ffn.up.weight"}),
        "ffn_down.weight": "ffn.down.weight",
        "ffn_norm.weight": "ffn_norm.weight",
    }
    table = {f"{theirs}blk.0.attn_rel_b.weight": f"{ours}positions.weight"}
    if not config.shares_positions:
        block["attn_rel_b.weight"] = "positions.weight"
        table = {}
    return {
        **table,
        **layered(f"{theirs}blk.{number}.", block, f"{ours}layers.{number}."),
        f"{theirs}output_norm.weight": f"{ours}final_norm.weight",
    }


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a T5, also of an mT5, which only differs by names, or of a UMT5."""
    if header.architecture not in ("t5", "t5encoder"):
        return None
    both = header.architecture == "t5"
    layers = header.count("block_count")
    # Blocks that share a table of positions have it in the first one; with one block, it is both.
    is_umt5 = layers > 1 and "enc.blk.1.attn_rel_b.weight" in header.shapes
    prefix = "UMT5" if is_umt5 else "T5"
    return {
        "model_type": prefix.lower(),
        "architectures": [f"{prefix}ForConditionalGeneration" if both else f"{prefix}EncoderModel"],
        "vocab_size": header.rows("token_embd.weight"),
        "d_model": header.count("embedding_length"),
        "d_kv": header.count("attention.key_length"),
        "d_ff": header.count("feed_forward_length"),
        "num_layers": layers,
        "num_decoder_layers": header.count("decoder_block_count", layers),
        "num_heads": header.count("attention.head_count"),
        "relative_attention_num_buckets": header.count("attention.relative_buckets_count", 32),
        "layer_norm_epsilon": header.number("attention.layer_norm_rms_epsilon"),
        "feed_forward_proj": (
            "gated-gelu" if "enc.blk.0.ffn_gate.weight" in header.shapes else "relu"
        ),
        "pad_token_id": header.token("padding", 0),
        "eos_token_id": header.token("eos", 1),
        "decoder_start_token_id": header.count("decoder_start_token_id", 0),
        "tie_word_embeddings": both and "output.weight" not in header.shapes,
    }
