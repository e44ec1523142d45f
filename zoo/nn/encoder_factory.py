"""The factory that builds text encoders from a configuration: embeddings, blocks and heads.

A family subclasses ``ModelFactory`` and overrides the parts that differ from the most common ones.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import nn

from zoo.nn.encoder import Classifier, Encoder, MaskedLM, MultipleChoice, QuestionAnswering
from zoo.nn.heads import (
    DenseHead,
    EmbeddingPooler,
    FirstTokenPooler,
    LinearHead,
    MLMHead,
    Pooler,
)
from zoo.nn.layers.init import init_weights
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.nn.transformer import Embeddings, FeedForward, PostNormBlock, SelfAttention
from zoo.overrides import override


def make_embeddings(
    config: Any,
    embeddings_type: type[Embeddings] = Embeddings,
    *,
    project: bool = False,
    positions: bool = True,
    norm: bool = True,
    **changes: Any,
) -> Any:
    """Return the input embeddings of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        embeddings_type: the class to build.
        project: map the embeddings to the width of the blocks even if it is the same.
        positions: whether there are position embeddings.
        norm: whether the sum is normalized.
        **changes: further arguments of ``embeddings_type``.
    """
    width = getattr(config, "embedding_size", config.hidden_size)
    arguments = {
        "vocab_size": config.vocab_size,
        "max_positions": config.max_positions if positions else 0,
        "type_vocab_size": getattr(config, "type_vocab_size", 0),
        "hidden_size": width,
        "layer_norm_eps": config.layer_norm_eps if norm else None,
        "dropout": getattr(config, "embedding_dropout", config.dropout),
        "project_to": config.hidden_size if project or width != config.hidden_size else None,
        "scale": width**0.5 if getattr(config, "scale_embedding", False) else 1.0,
    }
    return embeddings_type(**{**arguments, **changes})


def make_self_attention(config: Any, **changes: Any) -> SelfAttention:
    """Return the self-attention of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        **changes: further arguments of ``SelfAttention``.
    """
    arguments = {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "dropout": config.attention_dropout,
        "num_kv_heads": getattr(config, "num_kv_heads", None),
    }
    return SelfAttention(**{**arguments, **changes})


def make_blocks(
    config: Any,
    block_type: Callable[..., PostNormBlock] = PostNormBlock,
    *,
    attention: Callable[[int], nn.Module] | None = None,
    count: int | None = None,
    **changes: Any,
) -> list[PostNormBlock]:
    """Return the blocks of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        block_type: the class to build.
        attention: maps the index of a block to its attention; ``None`` for ``SelfAttention``.
        count: number of blocks; ``None`` for ``num_layers``.
        **changes: further arguments of ``block_type``.
    """
    block_args = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "act": getattr(config, "activation", None),
        "layer_norm_eps": config.layer_norm_eps,
        "dropout": config.dropout,
        **changes,
    }
    if activation_dropout := getattr(config, "activation_dropout", 0.0):
        ffn_type = block_args.get("ffn_type", FeedForward)
        block_args["ffn_type"] = functools.partial(ffn_type, dropout=activation_dropout)
    return [
        block_type(attention(index) if attention else make_self_attention(config), **block_args)
        for index in range(config.num_layers if count is None else count)
    ]


def make_mlm_head(config: Any, act: str | None = None, *, dense_bias: bool = True) -> MLMHead:
    """Return the masked-language-modelling head of a configuration.

    Args:
        config: an ``EncoderConfig``.
        act: name of the activation function; ``None`` for the blocks'.
        dense_bias: see ``MLMHead``.
    """
    return MLMHead(
        hidden_size=config.hidden_size,
        embedding_size=getattr(config, "embedding_size", None),
        vocab_size=config.vocab_size,
        act=act or config.activation,
        layer_norm_eps=config.layer_norm_eps,
        tied=config.tie_embeddings,
        dense_bias=dense_bias,
    )


PoolerAndHead = tuple[nn.Module | None, nn.Module | None]


class ModelFactory:
    """Builds the models of a family. A family overrides what differs from the most common parts.

    Args:
        config: an ``EncoderConfig``.

    Attributes:
        config: the same.
        width: width of the blocks.
        dropout: dropout probability before classifiers: ``classifier_dropout`` of the
            configuration if it is set, else ``dropout``.
        model_classes: name of each head -> the class of its model. A family with a backbone class
            of its own names classes that combine both.
        task_heads: heads that only fine-tuning trains. Their weights are drawn without truncation,
            as in transformers, unlike released code: a smaller head learns slower at first, which
            runs of a hundred steps do not make up for.
        mixing_heads: heads that read a mix of all layers where the configuration has ``mix``.
    """

    mixing_heads: ClassVar[tuple[str, ...]] = ("sequence-classification", "token-classification")

    task_heads: ClassVar[tuple[str, ...]] = (
        "sequence-classification",
        "token-classification",
        "multiple-choice",
        "question-answering",
    )

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Encoder,
        "masked-lm": MaskedLM,
        "sequence-classification": Classifier,
        "multiple-choice": MultipleChoice,
        "token-classification": Classifier,
        "question-answering": QuestionAnswering,
    }

    def __init__(self, config: Any) -> None:
        self.config = config
        self.width = config.hidden_size
        classifier_dropout = getattr(config, "classifier_dropout", None)
        self.dropout = config.dropout if classifier_dropout is None else classifier_dropout

    def build(self, head: str) -> Encoder:
        """Return a model with randomly initialized weights.

        Raises:
            ValueError: the family has no such head.
        """
        if head not in self.model_classes:
            raise ValueError(f"{type(self.config).__name__} has no head {head!r}")
        backbone = self.backbone_args()
        if head in self.mixing_heads and getattr(self.config, "mix", False):
            backbone["mix"] = ScalarMix(self.config.num_layers + 1)
        pooler, head_module = self.pooler_and_head(head)
        sentence_head = getattr(self.config, "sentence_head", None)
        if head == "sequence-classification" and sentence_head is not None:
            pooler = EmbeddingPooler(unit=sentence_head == "unit")
            head_module = LinearHead(self.width, len(self.config.labels), self.dropout)
        model = self.model_classes[head](**backbone, pooler=pooler, head=head_module)
        model.pooling = self.pooling(head)
        init_weights(model, std=self.config.initializer_range)
        if head in self.task_heads and head_module is not None:
            init_weights(head_module, std=self.config.initializer_range, truncated=False)
        return model

    def backbone_args(self) -> dict[str, Any]:
        """Return the arguments of the model's class except pooler and head."""
        return {"embeddings": make_embeddings(self.config), "layers": make_blocks(self.config)}

    def pooler_and_head(self, head: str) -> PoolerAndHead:
        """Return pooler and head of a model. A family with further heads extends this.

        Raises:
            ValueError: the head is unknown.
        """
        labels = len(self.config.labels)
        match head:
            case "none":
                return self.pooler() if getattr(self.config, "pooler", False) else None, None
            case "masked-lm":
                return None, self.masked_lm_head()
            case "sequence-classification":
                return self.sequence_head(labels)
            case "multiple-choice":
                return self.choice_head()
            case "token-classification":
                return None, self.token_head(labels)
            case "question-answering":
                return None, self.span_head()
        raise ValueError(f"{type(self).__name__} builds no head {head!r}")

    def pooling(self, head: str) -> str | None:
        """Return what a head reads in place of the first token; see ``Encoder.pooling``."""
        if head == "sequence-classification":
            return getattr(self.config, "pooling", None)
        return None

    def pooler(self) -> nn.Module:
        """Return the module that pools a row into one vector."""
        return Pooler(self.width)

    def masked_lm_head(self) -> nn.Module:
        """Return the head for masked language modelling."""
        return make_mlm_head(self.config)

    def sequence_head(self, outputs: int) -> PoolerAndHead:
        """Return pooler and head for sequence classification, with ``outputs`` classes."""
        return self.pooler(), LinearHead(self.width, outputs, self.dropout)

    def choice_head(self) -> PoolerAndHead:
        """Return pooler and head for multiple choice: one logit per choice."""
        return self.sequence_head(1)

    def token_head(self, outputs: int) -> nn.Module:
        """Return the head for token classification, with ``outputs`` classes."""
        return LinearHead(self.width, outputs, self.dropout)

    def span_head(self) -> nn.Module:
        """Return the head for extractive question answering: start and end logits."""
        return LinearHead(self.width, 2)

    def mlm_and_pair_head(self, name: str, pair_head: nn.Module) -> PoolerAndHead:
        """Return pooler and head for masked language modelling with classification of pairs.

        Args:
            name: name of ``pair_head`` in the head, ``MLMWithPairHead.pair_head``.
            pair_head: maps the pooler's output, (pairs, hidden), to (pairs, classes).
        """
        head = self.masked_lm_head()
        head.add_module(name, pair_head)
        return self.pooler(), head


class FairseqFactory(ModelFactory):
    """The default models of encoders, with the heads that fairseq has for them.

    A text is classified by the hidden state of its first token, through a linear map, tanh and a
    second linear map. The head of masked language models has GELU, whatever the blocks have.
    """

    @override
    def masked_lm_head(self) -> MLMHead:
        return make_mlm_head(self.config, "gelu")

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        return FirstTokenPooler(), DenseHead(self.width, outputs, act="tanh", **dropout)

    @override
    def choice_head(self) -> PoolerAndHead:
        return self.pooler(), LinearHead(self.width, 1, self.config.dropout)
