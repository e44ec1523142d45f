"""What families of text encoders share: configuration, heads, names of inputs and outputs.

A text encoder is an embedding, a stack of Transformer blocks in which every token sees all
others, and a head. Its rules for weights are in ``zoo.weights.encoder``, its modules in
``zoo.nn.encoder``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.config import Activation, Config
from zoo.family import Family, Head

if TYPE_CHECKING:
    from zoo.export.spec import OnnxSpec

Axes = tuple[str | int, ...]

_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "embedding_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "max_positions",
    "layer_norm_eps",
    "initializer_range",
)


class EncoderConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape that every text encoder has; the defaults are those of most base models.

    Attributes:
        vocab_size: rows of the token embedding.
        hidden_size: width of every token's vector between blocks.
        num_layers: encoder blocks.
        num_heads: attention heads in each; they share ``hidden_size``.
        intermediate_size: inner width of the feed-forward networks.
        max_positions: rows of the position embedding.
        activation: of the feed-forward networks.
        dropout: probability of dropping an element of a block's output in training.
        attention_dropout: probability of dropping an attention weight in training.
        initializer_range: deviation of fresh weights.
        pad_token_id: the token that fills up short rows, or ``None``.
        tie_embeddings: score masked tokens against the token embeddings.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 512
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        """Refuse a shape that cannot be built.

        Raises:
            ValueError: a field is out of its range, or two contradict each other.
        """
        self.check_ranges(_POSITIVE)
        types = getattr(self, "type_vocab_size", 0)  # 0 where no segments are told apart
        if types < 0:
            raise ValueError(f"type_vocab_size is {types}, which is negative")
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} does not split into num_heads {self.num_heads}"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id {self.pad_token_id} is outside the vocabulary of {self.vocab_size}"
            )


# The keys that most Hub configurations share, and the settings that make a decoder of an encoder.
KEYS: Mapping[str, str] = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "type_vocab_size",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
    "tie_word_embeddings": "tie_embeddings",
}
FIXED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "is_encoder_decoder": (None, False),
    "tie_encoder_decoder": (None, False),
    "cross_attention_hidden_size": (None,),
    "per_layer_config": (None,),
}


def encoder_heads(*names: str, pooler: bool = False) -> dict[str, Head]:
    """Return the heads that every text encoder has.

    Args:
        *names: what the Hub's class names begin with, one for each model type.
        pooler: whether the bare trunk gives a vector for the text, too.
    """

    def head(kind: str, outputs: tuple[str, ...], tasks: tuple[str, ...], summary: str) -> Head:
        return Head(tuple(name + kind for name in names), outputs, tasks, summary)

    vectors = ("last_hidden_state", "pooler_output") if pooler else ("last_hidden_state",)
    what = "a vector for each token, and one for the text" if pooler else "a vector for each token"
    logits, classify = ("logits",), ("classify", "features")
    return {
        "none": head("Model", vectors, ("embed", "features"), what),
        "masked-lm": head(
            "ForMaskedLM", logits, ("fill-mask", "features"), "which token stood there"
        ),
        "sequence-classification": head(
            "ForSequenceClassification",
            logits,
            classify,
            "classes of a text or a pair, or a number",
        ),
        "token-classification": head(
            "ForTokenClassification", logits, classify, "classes of tokens"
        ),
        "question-answering": head(
            "ForQuestionAnswering",
            ("start_logits", "end_logits"),
            ("features",),
            "where the answer starts and ends",
        ),
        "multiple-choice": head("ForMultipleChoice", logits, (), "which of several texts it is"),
    }


class EncoderFamily(Family):
    """A family of text encoders: the names of its inputs and outputs follow from its heads."""

    def inputs(self, config: Any) -> tuple[str, ...]:
        """Name the inputs of the model; here with token types where there are any."""
        types = getattr(config, "type_vocab_size", 0) > 0
        return ("input_ids", "attention_mask", *(["token_type_ids"] if types else []))

    def longest(self, config: Any) -> int:
        """Return how many tokens a text may have; here as many as there are positions."""
        return config.max_positions  # type: ignore[no-any-return]

    def outputs(self, config: Any, head: str) -> dict[str, Axes]:
        """Return the outputs of a head with their axes. A family with more heads adds them."""
        tokens, labels = ("batch", "tokens"), len(config.labels)
        vectors: dict[str, Axes] = {"last_hidden_state": (*tokens, config.hidden_size)}
        if getattr(config, "pooler", False):
            vectors["pooler_output"] = ("batch", config.hidden_size)
        by_head: dict[str, dict[str, Axes]] = {
            "none": vectors,
            "masked-lm": {"logits": (*tokens, config.vocab_size)},
            "sequence-classification": {"logits": ("batch", labels)},
            "token-classification": {"logits": (*tokens, labels)},
            "question-answering": {"start_logits": tokens, "end_logits": tokens},
            "multiple-choice": {"logits": ("batch", "choices")},
        }
        return by_head[head]

    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes."""
        from zoo.export.spec import OnnxSpec

        choices = ("choices",) if head == "multiple-choice" else ()
        return OnnxSpec(
            inputs=dict.fromkeys(self.inputs(config), ("batch", *choices, "tokens")),
            outputs=self.outputs(config, head),
            limits={"tokens": self.longest(config)},
        )
