"""ModernBERT in the formats of other runtimes."""

from typing import Any

from zoo.families.runtimes import (
    RuntimeHeader,
    RuntimeModel,
    gguf_sizes,
    layered,
    runtime_weights,
)
from zoo_modernbert.config import ModernBertConfig
from zoo_modernbert.weights import weights

GATES = ("gelu", "silu")  # activation functions of feed-forward networks with a gate
POOLINGS = {"mean": 1, "cls": 2}  # of a classifier, by their numbers in GGUF


def ctranslate2(config: ModernBertConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has no attention that is limited to a window in some layers"


def gguf(config: ModernBertConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if config.activation not in GATES:
        return f"its activation function is {' or '.join(GATES)}, not {config.activation}"
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type}"
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        "token_embd_norm.weight": "embeddings.norm.weight",
        **layered(
            "blk.{i}.",
            {
                "attn_qkv.weight": "attention.qkv.weight",
                "attn_output.weight": "attention.out.weight",
                "ffn_norm.weight": "ffn_norm.weight",
                "ffn_up.weight": "ffn.up.weight",
                "ffn_down.weight": "ffn.down.weight",
            },
        ),
        # the first block has no norm before its attention
        **{
            f"blk.{i}.attn_norm.weight": f"layers.{i}.attention_norm.weight"
            for i in range(1, config.num_layers)
        },
        "output_norm.weight": "final_norm.weight",
    }
    settings: dict[str, Any] = {
        **gguf_sizes(config),
        "vocab_size": config.vocab_size,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "attention.causal": False,
        "attention.sliding_window": config.local_attention,
        "attention.sliding_window_pattern": config.global_attn_every_n_layers,
        "rope.freq_base": config.global_rope_theta,
        "rope.freq_base_swa": config.local_rope_theta,
        "rope.scaling.type": "none",
        "hidden_activation": config.activation,
    }
    read_only = ""
    if head == "sequence-classification":
        if config.classifier_activation != "gelu":
            return f"its classifiers have gelu, not {config.classifier_activation}"
        names |= {
            "cls.weight": "head.dense.weight",
            "cls.norm.weight": "head.norm.weight",
            "cls.output.{p}": "head.out.{p}",
        }
        settings["classifier.pooling_type"] = POOLINGS[config.classifier_pooling]
        if config.classifier_pooling != "mean":
            pooling = config.classifier_pooling
            read_only = f"its classifiers pool by mean, not {pooling}"
    elif head != "none":
        return "it returns the embedding of a text or the scores of classes, and no other head"
    return RuntimeModel(
        "modern-bert",
        settings,
        runtime_weights(names, weights(config, head), {"i": config.num_layers}),
        tokenizer={"pre": "modern-bert"},
        read_only=read_only,
    )


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model."""
    if header.architecture != "modern-bert":
        return None
    classifies = "cls.output.weight" in header.shapes
    pooling = header.count("classifier.pooling_type", POOLINGS["mean"])
    return {
        "model_type": "modernbert",
        "architectures": [
            "ModernBertForSequenceClassification" if classifies else "ModernBertModel"
        ],
        **(header.labels() if classifies else {}),
        **header.common_keys(),
        "norm_eps": header.number("attention.layer_norm_epsilon"),
        "hidden_activation": header.text("hidden_activation", "gelu"),
        "local_attention": header.count("attention.sliding_window"),
        "global_attn_every_n_layers": header.count("attention.sliding_window_pattern", 3),
        "global_rope_theta": header.number("rope.freq_base", 160_000.0),
        "local_rope_theta": header.number("rope.freq_base_swa", 10_000.0),
        "classifier_pooling": "cls" if pooling == POOLINGS["cls"] else "mean",
        "pad_token_id": header.token("padding"),
    }
