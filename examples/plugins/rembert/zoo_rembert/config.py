"""RemBERT's configuration and the keys of its Hub configuration."""

from typing import Literal

from zoo.families.config import ConfigMap
from zoo.families.encoder import FIXED, KEYS, EncoderConfig


class RemBertConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a RemBERT, with the values of the released model, which are the Hub's.

    Attributes:
        embedding_size: width of the input embeddings.
        output_embedding_size: width of the output embeddings.
        type_vocab_size: number of segment types.
        classifier_dropout: dropout probability before a classifier.
        layer_norm_eps: epsilon of the layer norms.
        tie_embeddings: never, as input and output embeddings differ in their widths.
        pooler: whether the bare backbone has a pooler.
    """

    vocab_size: int = 250300
    hidden_size: int = 1152
    num_layers: int = 32
    num_heads: int = 18
    intermediate_size: int = 4608
    embedding_size: int = 256
    output_embedding_size: int = 1664
    type_vocab_size: int = 2
    dropout: float = 0.0
    attention_dropout: float = 0.0
    classifier_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    tie_embeddings: Literal[False] = False
    pooler: bool = True


CONFIG_MAP = ConfigMap(
    keys={
        **{hub: ours for hub, ours in KEYS.items() if hub != "tie_word_embeddings"},
        "input_embedding_size": "embedding_size",
        "output_embedding_size": "output_embedding_size",
        "classifier_dropout_prob": "classifier_dropout",
    },
    fixed={
        **FIXED,
        "tie_word_embeddings": (False,),
    },
)

RELEASED = RemBertConfig()
TINY = RemBertConfig(
    vocab_size=1000,
    hidden_size=128,
    num_layers=2,
    num_heads=2,
    intermediate_size=512,
    embedding_size=48,
    output_embedding_size=160,
)
SIZES = {"tiny": TINY, "released": RELEASED}
