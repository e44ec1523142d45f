"""DistilBERT's configuration, and what the keys of its Hub configuration mean."""

from typing import ClassVar

from zoo.families.config import ConfigMap, same_names
from zoo.families.encoder import FIXED, EncoderConfig


class DistilBertConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a DistilBERT; the defaults are those of ``base``, and of the Hub.

    Attributes:
        num_layers: encoder blocks.
        question_dropout: probability of dropping an element before the head that finds answers,
            in training.
        classifier_dropout: the same in the heads for whole texts.
    """

    layer_norm_eps: ClassVar[float] = 1e-12  # the same in every norm of every release
    num_layers: int = 6
    question_dropout: float = 0.1
    classifier_dropout: float = 0.2


CONFIG_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "activation", "dropout", "attention_dropout"),
        **same_names("initializer_range", "pad_token_id"),
        "dim": "hidden_size",
        "n_layers": "num_layers",
        "n_heads": "num_heads",
        "hidden_dim": "intermediate_size",
        "max_position_embeddings": "max_positions",
        "qa_dropout": "question_dropout",
        "seq_classif_dropout": "classifier_dropout",
        "tie_word_embeddings": "tie_embeddings",
    },
    fixed=FIXED,
    ignored={
        "sinusoidal_pos_embds": "how fresh positions are drawn; a checkpoint stores them",
        "tie_weights_": "read by no implementation; tie_word_embeddings says it",
    },
)


# all released ones are half a base model
SIZES = {
    "tiny": DistilBertConfig.sized(2, 128, vocab_size=1000, max_positions=64),
    "base": DistilBertConfig(),
    "base-cased": DistilBertConfig(vocab_size=28996),
    "base-multilingual-cased": DistilBertConfig(vocab_size=119547),
    "base-german-cased": DistilBertConfig(vocab_size=31102),
}
