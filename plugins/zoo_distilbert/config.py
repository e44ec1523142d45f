"""DistilBERT's configuration and the keys of its Hub configuration."""

from typing import ClassVar

from zoo.families.config import ConfigMap, same_names
from zoo.families.encoder import FIXED, EncoderConfig


class DistilBertConfig(EncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a DistilBERT; with the defaults of ``base`` and of the Hub."""

    layer_norm_eps: ClassVar[float] = 1e-12  # the same in every norm of every release
    num_layers: int = 6  # number of blocks
    question_dropout: float = 0.1  # dropout probability before the question-answering head
    # dropout probability in the heads for sequence classification and multiple choice
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
        "sinusoidal_pos_embds": "the initialization of positions; a checkpoint stores them",
        "tie_weights_": "no implementation reads it; tie_word_embeddings counts",
    },
)


# all released models have half of the blocks of a base model
SIZES = {
    "tiny": DistilBertConfig.sized(2, 128, vocab_size=1000, max_positions=64),
    "base": DistilBertConfig(),
    "base-cased": DistilBertConfig(vocab_size=28996),
    "base-multilingual-cased": DistilBertConfig(vocab_size=119547),
    "base-german-cased": DistilBertConfig(vocab_size=31102),
}
