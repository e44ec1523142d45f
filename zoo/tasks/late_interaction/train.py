"""Training of late interaction: vectors of tokens that MaxSim compares, as ColBERT learns them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import torch
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.finetuning.embeddings.options import EmbeddingOptions
from zoo.finetuning.embeddings.representation import IDS, MASK, Representation, column_name
from zoo.finetuning.embeddings.task import embedding_task
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.task import TaskContext
from zoo.nn.dtypes import at_least_float32
from zoo.overrides import override
from zoo.sentence_models.colbert_files import is_of_pylate
from zoo.sentence_models.modules import (
    TOKENS,
    AnyModule,
    DenseModule,
    MaskModule,
    NormalizeModule,
)
from zoo.sentence_models.pooling import Pooling, QueryExpansion
from zoo.sentence_models.sentence_transformers_files import SETTINGS
from zoo.tasks.retrieval.vectors import TokenVectors
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

MULTI_VECTOR = "MultiVectorEncoder"
MAX_COMPARED = 1 << 24  # Similarities of tokens that are held at once.
QUERY_TOKENS = "query_tokens"  # Number of tokens of each query before its expansion.
EXPANSION = "query_expansion"
# Settings that training takes from a checkpoint.
CHECKPOINT_SETTINGS = ("query_length", "document_length", EXPANSION)
ROLES = ("query", "document")  # Texts of the first column, and of the other ones.


class LateOptions(EmbeddingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of late interaction; ``None`` takes the checkpoint's setting, if it has one."""

    dimension: int = 128  # Dimensions of the vectors of tokens, for a model that has none.
    query_length: int | None = None  # Tokens that queries are truncated to.
    document_length: int | None = None  # Tokens that documents are truncated to.
    # Mask tokens after queries, up to a length, which are compared as well; a ``null`` that is
    # given turns off the checkpoint's.
    query_expansion: QueryExpansion | None = None
    # Tokens of documents that are not compared, such as punctuation, in place of the checkpoint's.
    skiplist_words: tuple[str, ...] | None = None
    # File -> its keys that mark the layout of PyLate, in which such a model is written again.
    extra: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dimension", "query_length", "document_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, not positive")
        if self.matryoshka is not None:
            raise ValueError("vectors of tokens are not cut: no matryoshka")
        if self.query_expansion is None:
            return
        longest = self.query_length
        length = self.query_expansion.length
        if length < 1 or (longest is not None and longest < length):
            raise ValueError(
                f"query_expansion has the length {length}, and query_length is {longest}"
            )


@dataclass(frozen=True)
class TokenRepresentation(Representation):
    """A vector for each token, compared by MaxSim.

    MaxSim is the sum over the tokens of the query of the largest cosine to a token of the text
    (Khattab and Zaharia 2020, arXiv:2004.12832). A model without a projection gets one, a linear
    map to ``dimension`` numbers of unit length. The losses are those of ``MultiVectorEncoder`` of
    sentence-transformers. After its dimensions, a vector has 1 if its token is compared, or 0.
    """

    is_dense: ClassVar[bool] = False

    @override
    def resolve_settings(self, settings: FineTuneConfig, pooling: Pooling | None) -> FineTuneConfig:
        """Take modules and prompts from a model of late interaction, and none from others."""
        if pooling is None or pooling.model_type != MULTI_VECTOR:
            return settings
        requested = settings.task_args
        resolved = super().resolve_settings(settings, pooling)
        options: dict[str, Any] = {}
        for name in CHECKPOINT_SETTINGS:
            value = msgspec.to_builtins(getattr(pooling, name))
            if value is not None:
                options[name] = value
        if EXPANSION in requested and requested[EXPANSION] is None:
            # It is turned off, as in the libraries.
            expansion = options.pop(EXPANSION, None)
            if expansion is not None and expansion["strategy"] == "fixed":
                options.setdefault("query_length", expansion["length"])  # Queries keep theirs.
        if is_of_pylate(pooling):
            options["extra"] = {SETTINGS: pooling.extra[SETTINGS]}
        return msgspec.structs.replace(resolved, task_args={**options, **resolved.task_args})

    @override
    def require_valid(self, context: TaskContext) -> None:
        expansion = context.options.query_expansion
        if expansion is None:
            return
        longest = self._limit(context, expansion.length)
        if expansion.length > longest:
            raise UsageError(
                f"queries are expanded to {expansion.length} tokens, and the model reads {longest}",
                "lower the length in task_args.query_expansion",
            )
        if self.reads_unattended(context) and MASK not in context.input_names:
            raise UsageError(
                "the model has no attention mask, and attends to the expansion of queries",
                "set attend in task_args.query_expansion",
            )

    @override
    def pooling(self, context: TaskContext) -> Pooling:
        options: LateOptions = context.options
        width = int(getattr(context.config, "hidden_size", 0))
        projection = DenseModule(
            in_features=width,
            out_features=options.dimension,
            bias=False,
            activation_function="identity",
            module_input_name=TOKENS,
            module_output_name=TOKENS,
        )
        scaled = NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS)
        similarity = options.similarity_fn_name
        if similarity not in ("maxsim", "meanmaxsim"):
            similarity = "maxsim"
        return msgspec.structs.replace(
            options.settings(context.max_tokens),
            modules=masked_modules(options, options.modules or (projection, scaled)),
            model_type=MULTI_VECTOR,
            similarity_fn_name=similarity,
            query_length=options.query_length,
            document_length=options.document_length,
            query_expansion=options.query_expansion,
            extra=options.extra,
        )

    @override
    def width(self, context: TaskContext) -> int:
        pooling = self.pooling(context)
        return pooling.features(pooling.input_width(context.config))[TOKENS].width

    @override
    def reads_unattended(self, context: TaskContext) -> bool:
        expansion = context.options.query_expansion
        return expansion is not None and not expansion.attend

    @override
    def max_tokens(self, context: TaskContext, column: int) -> int:
        # As in the libraries, a length of queries or documents takes the place of max_seq_len.
        role = ROLES[min(column, 1)]
        return self._limit(context, self.pooling(context).limit(role) or context.max_tokens)

    def _limit(self, context: TaskContext, length: int) -> int:
        """Return a number of tokens, or the model's limit if it is lower."""
        return min(length, context.family.max_seq_len(context.config) or length)

    def _padded_length(self, context: TaskContext, column: int) -> int:
        """Return the largest number of tokens of a column, with an expansion."""
        length = self.max_tokens(context, column)
        expansion: QueryExpansion | None = context.options.query_expansion
        if column or expansion is None:
            return length
        return max(length, expansion.length)

    @override
    def extend_rows(self, context: TaskContext, rows: TokenizedRows) -> TokenizedRows:
        expansion = context.options.query_expansion
        if expansion is None:
            return rows
        return expand_queries(rows, expansion.token_id(context.tokenizer), expansion.length)

    @override
    def stack(self, context: TaskContext, columns: "list[Tensor]", *, is_split: bool) -> "Tensor":
        """Return the vectors of all tokens; all texts are padded to the longest one."""
        longest = max(column.shape[1] for column in columns)
        if is_split:  # All processes need the same length, whatever texts they have.
            longest = max(self._padded_length(context, number) for number in range(len(columns)))
        return torch.stack([pad_tokens(column, longest) for column in columns])

    @override
    def join(self, parts: "list[Tensor]") -> "Tensor":
        longest = max(part.shape[1] for part in parts)
        return torch.cat([pad_tokens(part, longest) for part in parts])

    @override
    def embed(
        self,
        context: TaskContext,
        model: Any,
        batch: "Mapping[str, Tensor]",
        column: int,
        prompt_tokens: int,
    ) -> "Tensor":
        """Return the vectors of tokens, and after them whether they are compared, as 1 or 0."""
        ids = batch[column_name(IDS, column)]
        mask = batch.get(column_name(MASK, column))
        inputs = {context.input_names[0]: ids}
        if column == 0 and self.reads_unattended(context):
            positions = torch.arange(ids.shape[1], device=ids.device)
            inputs[MASK] = (positions < batch[QUERY_TOKENS][:, None]).to(ids.dtype)
        elif mask is not None and MASK in context.input_names:
            inputs[MASK] = mask
        hidden = at_least_float32(model.backbone(**inputs)["last_hidden_state"])
        skipped_tokens = uncompared_tokens(context.tokenizer, self.pooling(context))
        features = model.sentence_modules(
            hidden,
            torch.ones_like(ids) if mask is None else mask,
            ids=ids,
            task=ROLES[min(column, 1)],
            skipped=torch.tensor(skipped_tokens, device=ids.device),
        )
        is_compared = features[MASK][..., None].to(hidden.dtype)
        return torch.cat([features[TOKENS], is_compared], -1)

    def _takes_mean(self, context: TaskContext) -> bool:
        return self.pooling(context).similarity_fn_name == "meanmaxsim"

    @override
    def score_matrix(
        self,
        context: TaskContext,
        anchors: "Tensor",
        columns: "Sequence[Tensor]",
        scale: float,
    ) -> "Tensor":
        mean = self._takes_mean(context)
        scores = [max_sim_matrix(anchors, texts, mean=mean) for texts in columns]
        return scale * torch.cat(scores, 1)

    @override
    def margins(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        mean = self._takes_mean(context)
        scores = [max_sim(vectors[0], texts, mean=mean) for texts in vectors[1:]]
        return scores[0][:, None] - torch.stack(scores[1:], 1)

    @override
    def metric_similarity(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        return max_sim(vectors[0], vectors[1], mean=self._takes_mean(context)).double()

    @override
    def metric_margins(self, context: TaskContext, vectors: "Tensor") -> "Tensor":
        return self.margins(context, vectors).double()

    @override
    def retrieval_vectors(self, context: TaskContext, vectors: "Tensor") -> "dict[str, Tensor]":
        if torch.is_grad_enabled():
            return {}
        return {
            "anchor": pad_tokens(vectors[0], self._padded_length(context, 0)),
            "text": pad_tokens(vectors[1], self._padded_length(context, 1)),
        }

    @override
    def similarity_rows(
        self, context: TaskContext, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        with TokenVectors(self.pooling(context).similarity_fn_name) as index:
            for text in texts:
                index.add(compared_tokens(text))
            queries = map(compared_tokens, anchors)
            yield from index.score_rows(queries, context.compute_dtype)


def uncompared_tokens(tokenizer: TextTokenizer, pooling: Pooling) -> list[int]:
    """Return the tokens that are not compared, such as punctuation."""
    if not any(isinstance(module, MaskModule) for module in pooling.modules):
        return []
    return pooling.skipped_tokens(tokenizer)


def masked_modules(options: LateOptions, modules: tuple[AnyModule, ...]) -> tuple[AnyModule, ...]:
    """Return modules with the skiplist of the options, and a mask wherever one is needed."""
    words = options.skiplist_words
    if not any(isinstance(module, MaskModule) for module in modules):
        if words is None and options.query_expansion is None:
            return modules
        modules = (*modules, MaskModule())
    if words is None:
        return modules
    masked = list[AnyModule]()
    for module in modules:
        if isinstance(module, MaskModule):
            module = msgspec.structs.replace(module, skiplist_words=words)
        masked.append(module)
    return tuple(masked)


def compared_tokens(vectors: "NDArray[Any]") -> "NDArray[Any]":
    """Return the vectors of the tokens that are compared, (tokens, dimensions), of one text."""
    return vectors[vectors[:, -1] > 0, :-1]


def expand_queries(rows: "TokenizedRows", token: int, length: int) -> "TokenizedRows":
    """Return rows whose queries have a token after them, up to a length, and their own lengths."""
    lengths = np.diff(rows.starts)
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, length))])
    row_numbers = np.repeat(np.arange(len(lengths)), lengths)  # The row of each token.
    shifts = starts[:-1] - rows.starts[:-1]
    positions = np.arange(rows.starts[-1]) + shifts[row_numbers]
    arrays = {}
    for name, array in rows.arrays.items():
        arrays[name] = np.full((int(starts[-1]), *array.shape[1:]), token, array.dtype)
        arrays[name][positions] = array
    values = {**rows.values, QUERY_TOKENS: lengths}
    return replace(rows, starts=starts, arrays=arrays, values=values)


def pad_tokens(vectors: "Tensor", length: int) -> "Tensor":
    """Return vectors with zeros for more tokens, or fewer of them, (rows, length, dimensions)."""
    return F.pad(vectors, (0, 0, 0, length - vectors.shape[1]))


def max_sim_matrix(queries: "Tensor", texts: "Tensor", *, mean: bool = False) -> "Tensor":
    """Return the MaxSim of all queries and texts, (queries, texts).

    Both are (n, tokens, dimensions); the last one tells which tokens count.
    """
    num_texts, text_tokens, _ = texts.shape
    compared_per_query = max(1, num_texts * text_tokens * queries.shape[1])
    chunk_size = max(1, MAX_COMPARED // compared_per_query)
    is_skipped = texts[..., -1] == 0
    chunk_scores = []
    for chunk in torch.split(queries, chunk_size):
        similarities = torch.einsum("qid,tjd->qtij", chunk[..., :-1], texts[..., :-1])
        lowest = torch.finfo(similarities.dtype).min
        similarities = similarities.masked_fill(is_skipped[None, :, None], lowest)
        chunk_scores.append(_sum_tokens(similarities.amax(-1), chunk[:, None, :, -1], mean=mean))
    return torch.cat(chunk_scores)


def max_sim(queries: "Tensor", texts: "Tensor", *, mean: bool = False) -> "Tensor":
    """Return the MaxSim of each query and its text, (rows,); see ``max_sim_matrix``."""
    similarities = torch.einsum("rid,rjd->rij", queries[..., :-1], texts[..., :-1])
    is_skipped = texts[..., -1] == 0
    lowest = torch.finfo(similarities.dtype).min
    similarities = similarities.masked_fill(is_skipped[:, None], lowest)
    return _sum_tokens(similarities.amax(-1), queries[..., -1], mean=mean)


def _sum_tokens(similarities: "Tensor", is_compared: "Tensor", *, mean: bool) -> "Tensor":
    """Return the sum over the tokens of a query that are compared, or their mean.

    Both are (..., tokens); ``is_compared`` is 1 for tokens that count, and 0 for the other ones.
    """
    total = (similarities * is_compared).sum(-1)
    if not mean:
        return total
    return total / is_compared.sum(-1).clamp(min=1)


LATE_INTERACTION = embedding_task(
    "late-interaction",
    TokenRepresentation(loss_defaults={"scale": 1.0}),
    options_type=LateOptions,
)
