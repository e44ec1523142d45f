"""The configurations of Jina's encoders, and the keys of their Hub configurations."""

from typing import Any, Literal

from zoo.errors import VerificationError
from zoo.families.config import Activation, ConfigMap, same_names
from zoo.families.encoder import KEYS, EncoderConfig

ModelType = Literal["jina_bert", "jina_embeddings_v3"]
PUBLISHED_CODE = "jinaai/jina-bert-implementation"
CLASSES = (
    "JinaBertModel",
    "JinaBertForMaskedLM",
    "JinaBertForSequenceClassification",
    "JinaBertForTokenClassification",
    "JinaBertForQuestionAnswering",
)


class JinaConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of JinaBERT v2 and Jina Embeddings v3.

    The defaults are those of v3 in transformers. Version 2 has no class there, and no defaults: its
    configurations state their settings.
    """

    # ``jina_bert`` has linear position biases and gated feed-forward networks, the other one rotary
    # positions. The Hub calls the first ``bert``.
    model_type: ModelType = "jina_embeddings_v3"
    vocab_size: int = 250002
    hidden_size: int = 1024
    num_layers: int = 24
    num_heads: int = 16
    intermediate_size: int = 4096
    max_positions: int = 8194  # number of tokens of the longest row
    type_vocab_size: int = 1  # number of segment types
    # activation function of the head for masked tokens, and of feed-forward networks without a gate
    activation: Activation = "gelu"
    gate: Literal["gelu", "relu"] = "gelu"  # activation function of the gates of ``jina_bert``
    rope_theta: float = 20_000.0  # base of the rotary frequencies
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms
    # dropout probability before a classifier; ``None`` for ``dropout``
    classifier_dropout: float | None = None
    pad_token_id: int | None = 1
    # whether the bare backbone has a pooler; heads that use one always have it
    pooler: bool = True


_THETA = {"rope_parameters.rope_theta": "rope_theta"}
V3_MAP = ConfigMap(
    keys={**KEYS, **same_names("classifier_dropout", "rope_theta")},
    fixed={
        "position_embedding_type": ("absolute", None),
        "rope_parameters.rope_type": (None, "default"),
    },
    follows={"head_dim": "head_size"},
    aliases=_THETA,
    both=_THETA.keys(),
)
V2_MAP = ConfigMap(
    keys={**KEYS, "classifier_dropout": "classifier_dropout", "feed_forward_type": "gate"},
    values={"feed_forward_type": {"geglu": "gelu", "reglu": "relu"}},
    fixed={"position_embedding_type": ("alibi",)},
    implied={
        "model_type": "jina_bert",
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_layers": 12,
        "num_heads": 12,
        "intermediate_size": 3072,
        "max_positions": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    },
    ignored={
        "auto_map": "names the published code",
        "emb_pooler": "`modules.json` states how tokens are pooled",
        "alibi_starting_size": "the size of a table of the published code",
        "model_max_length": "the tokenizer decides",
    },
)
CONFIG_MAPS = {"jina_bert": V2_MAP, "jina_embeddings_v3": V3_MAP}


def to_own_keys(hub: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of JinaBERT with a model type of its own in place of ``bert``.

    Raises:
        VerificationError: it describes another encoder; the message has the key.
    """
    required = {"position_embedding_type": ("alibi",), "feed_forward_type": ("geglu", "reglu")}
    for key, values in required.items():
        if hub.get(key) not in values:
            raise VerificationError(
                f"{key} = {hub.get(key)!r:.100} is not implemented",
                f"JinaBERT is read with {' or '.join(values)}",
            )
    code = hub.get("auto_map") or {}
    for reference in code.values() if isinstance(code, dict) else [code]:
        repository, separator, _ = str(reference).partition("--")
        if separator and repository != PUBLISHED_CODE:
            raise VerificationError(
                f"auto_map names the code {repository:.100}, which is not implemented",
                f"only models of {PUBLISHED_CODE} are read",
            )
    return {**hub, "model_type": "jina_bert"}


def _v2(layers: int, width: int, **changes: Any) -> JinaConfig:
    """Return a configuration of version 2, with heads of 64."""
    fields: dict[str, Any] = {**V2_MAP.implied, "vocab_size": 30528, "max_positions": 8192}
    return JinaConfig.sized(layers, width, **{**_unsized(fields), **changes})


def _unsized(fields: dict[str, Any]) -> dict[str, Any]:
    sizes = ("hidden_size", "num_layers", "num_heads", "intermediate_size")
    return {name: value for name, value in fields.items() if name not in sizes}


# Günther et al. 2023, arXiv:2310.19923, table 1; Sturua et al. 2024, arXiv:2409.10173.
SIZES = {
    "tiny": _v2(2, 128, vocab_size=1000, max_positions=512),
    "v2-small": _v2(4, 512, attention_dropout=0.0),
    "v2-base": _v2(12, 768, attention_dropout=0.0),
    "v3": JinaConfig(),
}
