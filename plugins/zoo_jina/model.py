"""Jina's encoders of long texts.

JinaBERT v2: Günther et al. 2023, "Jina Embeddings 2: 8192-Token General-Purpose Text Embeddings for
Long Documents", arXiv:2310.19923. BERT with two changes (section 3): no position embeddings, but
scores that fall linearly with the distance, in both directions, and feed-forward networks with a
gate.

Jina Embeddings v3: Sturua et al. 2024, "jina-embeddings-v3: Multilingual Embeddings With Task
LoRA", arXiv:2409.10173. XLM-R whose queries and keys are rotated by their positions.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.encoder import Classifier, Encoder, MaskedLM, QuestionAnswering
from zoo.nn.encoder_factory import FairseqFactory, ModelFactory, make_blocks, make_embeddings
from zoo.nn.heads import Pooler
from zoo.nn.positions import SymmetricLinearBias, make_rotary
from zoo.nn.transformer import CountedEmbeddings, GatedFeedForward, PostNormBlock, select_tokens
from zoo.overrides import override
from zoo_jina.config import JinaConfig
from zoo_jina.task_updates import TaskEmbeddings, TaskPooler, TaskSelection, give_updates


class JinaFeedForward(GatedFeedForward):
    """A feed-forward network with a gate, whose first linear map has no bias."""

    def __init__(self, *, hidden_size: int, intermediate_size: int, **options: Any) -> None:
        super().__init__(hidden_size=hidden_size, intermediate_size=intermediate_size, **options)
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=False)


class JinaBlock(PostNormBlock):
    """A block without dropout on the output of its feed-forward network."""

    @override
    def forward(self, x: Tensor, *attention_args: Any, positions: Tensor | None = None) -> Tensor:
        x, attended = select_tokens(positions, x, self.attention(x, *attention_args))
        x = self.attention_norm(x + self.dropout(attended))
        return self.ffn_norm(x + self.ffn(x))  # type: ignore[no-any-return]


class TaskEncoder(Encoder):
    """The backbone of the first release of version 3, with updates for several tasks.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: JinaConfig, **head_args: Any) -> None:
        selection = TaskSelection(
            tasks=len(config.tasks), rank=config.task_rank, alpha=config.task_alpha
        )
        embeddings = make_embeddings(
            config,
            partial(TaskEmbeddings, selection=selection),  # type: ignore[arg-type]
            positions=False,
            type_vocab_size=1,
        )
        if isinstance(head_args.get("pooler"), Pooler):
            head_args["pooler"] = TaskPooler(config.hidden_size, selection=selection)
        rotary = make_rotary(config, config.head_size, config.rope_theta)
        super().__init__(embeddings, make_blocks(config), rotary=rotary, **head_args)
        self.selection = selection
        give_updates(self.layers, selection)

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run the backbone and the pooler; the type of a token is the number of its task."""
        with self.selection.select(token_type_ids):
            return super().forward(input_ids, attention_mask, token_type_ids)

    @override
    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        with self.selection.select(token_type_ids):
            return super().encode(
                input_ids, attention_mask, token_type_ids, position_ids, document_ids
            )


class TaskLM(MaskedLM, TaskEncoder):
    """Masked language modelling with version 3 and its tasks."""


class TaskClassifier(Classifier, TaskEncoder):
    """Classification of texts and tokens with version 3 and its tasks."""


class TaskQuestionAnswering(QuestionAnswering, TaskEncoder):
    """Extractive question answering with version 3 and its tasks."""


class LinearFactory(ModelFactory):
    """The models of JinaBERT, with BERT's heads."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        blocks = make_blocks(
            config,
            JinaBlock,
            act=config.gate,
            ffn_type=partial(JinaFeedForward, dropout=config.dropout),
        )
        return {
            "embeddings": make_embeddings(config, positions=False),
            "layers": blocks,
            "relative_bias": SymmetricLinearBias(config.num_heads),
        }


class RotaryFactory(FairseqFactory):
    """The models of version 3, with RoBERTa's heads."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        rotary = None
        if config.positions == "absolute":
            padding = config.pad_token_id or 0
            embeddings = make_embeddings(config, CountedEmbeddings, padding=padding)
        else:
            embeddings = make_embeddings(config, positions=False)
            rotary = make_rotary(config, config.head_size, config.rope_theta)
        return {"embeddings": embeddings, "layers": make_blocks(config), "rotary": rotary}


class TaskFactory(RotaryFactory):
    """The models of the first release of version 3, whose tasks have updates of all matrices."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": TaskEncoder,
        "masked-lm": TaskLM,
        "sequence-classification": TaskClassifier,
        "token-classification": TaskClassifier,
        "question-answering": TaskQuestionAnswering,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {"config": self.config}


def build(config: JinaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    factory: type[ModelFactory] = RotaryFactory
    if config.model_type == "jina_bert":
        factory = LinearFactory
    elif config.tasks:
        factory = TaskFactory
    return factory(config).build(head)
