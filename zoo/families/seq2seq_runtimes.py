"""Names of encoder-decoders in the formats of other runtimes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS, ct2_block, ct2_norm
from zoo.families.runtimes import (
    FirstRow,
    Names,
    RuntimeModel,
    SkipRows,
    layered,
    runtime_weights,
)
from zoo.weights import WeightMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CT2_LOGITS_ONLY = "its translator returns the logits of a language model"
# number of blocks of a stack, as the templates of both have it
BLOCKS = {"encoder": "{i}", "decoder": "{j}"}
OURS = {"encoder": "", "decoder": "decoder."}


def ct2_cross_attention(prefix: str, parameters: str = "{p}") -> Names:
    """Return the names of cross-attention in CTranslate2, without its norm."""
    return layered(
        prefix,
        {
            f"attention/linear_0/{parameters}": f"cross.q.{parameters}",
            f"attention/linear_1/{parameters}": f"cross.kv.{parameters}",
            f"attention/linear_2/{parameters}": f"cross.out.{parameters}",
        },
        "decoder.layers.{j}.",
    )


def seq2seq_ctranslate2(
    config: Any,
    head: str,
    model: WeightMap,
    *,
    pre_norm: bool,
    skipped_positions: int = 0,
    positions: "Callable[[], NDArray[np.float32]] | None" = None,
    decoder_start: bool = True,
) -> RuntimeModel | str:
    """Return a model with a ``Seq2SeqConfig`` as CTranslate2 describes it, or why it cannot.

    Args:
        config: the configuration.
        head: name of the head.
        model: the family's rules.
        pre_norm: whether norms precede the parts of a block.
        skipped_positions: number of rows of the tables of positions before the first position.
        positions: function that returns the table of positions where they are not learned, from
            the first position.
        decoder_start: whether the model has one first token of the decoder; else it is part of
            the target, such as a language.
    """
    if head != "seq2seq-lm":
        return CT2_LOGITS_ONLY
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    targets = {entry.target for entry in model.entries()}
    names: dict[Any, Any] = {}
    constants: dict[str, Any] = {}
    for stack, ours in OURS.items():
        number = BLOCKS[stack]
        embeddings = f"{ours}embeddings"
        names |= ct2_block(f"{stack}/layer_{number}/", f"{ours}layers.{number}.")
        table = f"{stack}/position_encodings/encodings"
        if positions is None:
            names[table] = (f"{embeddings}.positions.weight", SkipRows(skipped_positions))
        else:
            constants[table] = positions
        if f"{embeddings}.norm.weight" in targets:
            names |= ct2_norm(f"{stack}/layernorm_embedding", f"{embeddings}.norm")
        if f"{ours}final_norm.weight" in targets:
            names |= ct2_norm(f"{stack}/layer_norm", f"{ours}final_norm")
    names |= ct2_cross_attention("decoder/layer_{j}/")
    names |= ct2_norm("decoder/layer_{j}/attention/layer_norm", "decoder.layers.{j}.cross_norm")
    tokens = "embeddings.tokens.weight"
    names["encoder/embeddings_0/weight"] = tokens
    copies = {}
    if config.tie_embeddings:
        copies = dict.fromkeys(("decoder/embeddings/weight", "decoder/projection/weight"), tokens)
    else:
        names["decoder/embeddings/weight"] = f"decoder.{tokens}"
        names["decoder/projection/weight"] = "head.weight"
    if config.logits_bias:
        names["decoder/projection/bias"] = ("logits_bias", FirstRow())
    settings = {
        "num_layers": (config.num_layers, config.decoder_layers),
        "num_heads": (config.num_heads, config.decoder_attention_heads),
        "pre_norm": pre_norm,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layernorm_embedding": "embeddings.norm.weight" in targets,
        "layer_norm_epsilon": config.layer_norm_eps,
        "scale_embeddings": config.hidden_size**0.5 if config.scale_embedding else 1.0,
        "decoder_start": decoder_start,
    }
    counts = {"i": config.num_layers, "j": config.decoder_layers}
    return RuntimeModel(
        "encoder-decoder",
        settings,
        runtime_weights(names, model, counts),
        copies=copies,
        constants=constants,
    )
