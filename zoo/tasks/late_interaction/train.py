"""Late interaction: vectors of tokens that MaxSim compares, as ColBERT learns them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import torch
from torch.nn import functional as F

from zoo.errors import UsageError
from zoo.finetuning.base import LABELS
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.plugins import get_family
from zoo.tasks.retrieval.vectors import TokenVectors
from zoo.tasks.sentence_embedding.train import (
    IDS,
    MASK,
    TEXTS,
    SentenceEmbedding,
    column,
)
from zoo.tasks.sentence_embedding.train_options import TAUGHT, EmbeddingOptions
from zoo.tokenizers.colbert_files import is_of_pylate
from zoo.tokenizers.pooling import Pooling, QueryExpansion
from zoo.tokenizers.sentence_files import SETTINGS
from zoo.tokenizers.sentence_modules import (
    TOKENS,
    AnyModule,
    DenseModule,
    MaskModule,
    NormalizeModule,
)
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.distributed.gather import process_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from zoo.finetuning.rows import TokenizedRows
    from zoo.tokenizers import TextTokenizer
    from zoo.training.state.pretrained import PretrainedInit

MULTI_VECTOR = "MultiVectorEncoder"
LOSSES = ("multiple-negatives", *TAUGHT)
COMPARED = 1 << 24  # similarities of tokens that are held at once
OWN_TOKENS = "query_tokens"  # number of tokens of each query before its expansion
EXPANSION = "query_expansion"
KEPT = ("query_length", "document_length", EXPANSION)  # settings of a checkpoint
ROLES = ("query", "document")  # of the first column, and of the others


class LateOptions(EmbeddingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``LateInteraction``; ``None`` takes the checkpoint's setting, if it has one."""

    scale: float = 1.0  # factor of the similarities in ``multiple-negatives``
    dimension: int = 128  # of the vectors of tokens, for a model that has none
    query_length: int | None = None  # tokens that queries are truncated to
    document_length: int | None = None  # tokens that documents are truncated to
    # mask tokens after queries, up to a length, which are compared as well; a ``null`` that is
    # given turns off the checkpoint's
    query_expansion: QueryExpansion | None = None
    # tokens of documents that are not compared, such as punctuation, in place of the checkpoint's
    skiplist_words: tuple[str, ...] | None = None
    # file -> its keys that mark the layout of PyLate, in which such a model is written again
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
        longest, length = self.query_length, self.query_expansion.length
        if length < 1 or (longest is not None and longest < length):
            raise ValueError(
                f"query_expansion has the length {length}, and query_length is {longest}"
            )


class LateInteraction(SentenceEmbedding):
    """MaxSim of the vectors of a query's tokens and a text's."""

    # The sum over the tokens of the query of the largest cosine to a token of the text (Khattab and
    # Zaharia 2020, arXiv:2004.12832). A model without a projection gets one, a linear map to
    # ``dimension`` numbers of unit length. The losses are those of
    # ``MultiVectorEncoder`` of sentence-transformers.

    name: ClassVar[str] = "late-interaction"
    options_type: ClassVar[type[Options]] = LateOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.skipped: list[int] = []  # tokens that are not compared
        if self.kind not in LOSSES:
            raise UsageError(f"{self.name} has no loss {self.kind}", f"it has {', '.join(LOSSES)}")
        expansion = self.options.query_expansion
        if expansion is not None and expansion.length > self.longest(expansion.length):
            raise UsageError(
                f"queries are expanded to {expansion.length} tokens, and the model reads "
                f"{self.longest(expansion.length)}",
                "lower the length in task_args.query_expansion",
            )
        if self.reads_unattended and MASK not in self.inputs:
            raise UsageError(
                "the model has no attention mask, and attends to the expansion of queries",
                "set attend in task_args.query_expansion",
            )

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Take modules and prompts from a model of late interaction, and none from others."""
        checkpoints = {} if init is None else init.checkpoints
        stored = checkpoints["model"].model.pooling if "model" in checkpoints else None
        if stored is None or stored.model_type != MULTI_VECTOR:
            return run
        given = run.task_args
        run = super().resolve(run, init)
        kept = {name: msgspec.to_builtins(getattr(stored, name)) for name in KEPT}
        settings = {name: value for name, value in kept.items() if value is not None}
        if EXPANSION in given and given[EXPANSION] is None:  # turned off, as in the libraries
            off = settings.pop(EXPANSION, None)
            if off is not None and off["strategy"] == "fixed":  # queries keep their length
                settings.setdefault("query_length", off["length"])
        if is_of_pylate(stored):
            settings["extra"] = {SETTINGS: stored.extra[SETTINGS]}
        return msgspec.structs.replace(run, task_args={**settings, **run.task_args})

    @property
    @override
    def pooling(self) -> Pooling:
        options, width = self.options, int(getattr(self.config, "hidden_size", 0))
        settings: Pooling = options.settings(self.run.max_seq_len)
        projection = DenseModule(
            in_features=width,
            out_features=options.dimension,
            bias=False,
            activation_function="identity",
            module_input_name=TOKENS,
            module_output_name=TOKENS,
        )
        scaled = NormalizeModule(module_input_name=TOKENS, module_output_name=TOKENS)
        function = options.similarity_fn_name
        return msgspec.structs.replace(
            settings,
            modules=self._masked(options.modules or (projection, scaled)),
            model_type=MULTI_VECTOR,
            similarity_fn_name=function if function in ("maxsim", "meanmaxsim") else "maxsim",
            query_length=options.query_length,
            document_length=options.document_length,
            query_expansion=options.query_expansion,
            extra=options.extra,
        )

    def _masked(self, modules: tuple[AnyModule, ...]) -> tuple[AnyModule, ...]:
        """Return modules with the skiplist of the options, and a mask wherever one is needed."""
        words = self.options.skiplist_words
        if not any(isinstance(module, MaskModule) for module in modules):
            if words is None and self.options.query_expansion is None:
                return modules
            modules = (*modules, MaskModule())
        if words is None:
            return modules
        return tuple(
            msgspec.structs.replace(module, skiplist_words=words)
            if isinstance(module, MaskModule)
            else module
            for module in modules
        )

    @property
    @override
    def width(self) -> int:
        pooling = self.pooling
        return pooling.features(pooling.input_width(self.config))[TOKENS].width

    @property
    @override
    def reads_unattended(self) -> bool:
        expansion = self.options.query_expansion
        return expansion is not None and not expansion.attend

    @override
    def limit(self, number: int) -> int:
        # as in the libraries, a length of queries or documents takes the place of max_seq_len
        return self.longest(self.pooling.limit(ROLES[min(number, 1)]) or self.run.max_seq_len)

    def padded(self, number: int) -> int:
        """Return the largest number of tokens of a column, with an expansion."""
        expansion = None if number else self.options.query_expansion
        return max(self.limit(number), 0 if expansion is None else expansion.length)

    def longest(self, length: int) -> int:
        """Return a number of tokens, or the model's limit if it is lower."""
        return min(length, get_family(self.run.family).max_seq_len(self.config) or length)

    @override
    def rows(self, samples: "Sequence[Any]", tokenizer: "TextTokenizer") -> "TokenizedRows":
        self.skipped = self.pooling.skipped_tokens(tokenizer)
        rows, expansion = super().rows(samples, tokenizer), self.options.query_expansion
        if expansion is None:
            return rows
        return expand_queries(rows, expansion.token_id(tokenizer), expansion.length)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the vectors of all tokens, (columns, rows, tokens, dimensions), and their mask."""
        # All texts are padded to the longest one.
        self.note_dtype(batch)
        present = [k for k in range(self.columns) if column(IDS, k) in batch]
        parts = [self._embed_column(model, batch, k) for k in present]
        longest = max(part.shape[1] for part in parts)
        if self.splits_micro_batches(process_count()):
            longest = max(map(self.padded, present))  # the same in all processes
        joined = torch.stack([pad_tokens(part, longest) for part in parts])
        return Outputs({self.name: joined})

    @override
    def join(self, parts: "list[Tensor]") -> "Tensor":
        longest = max(part.shape[1] for part in parts)
        return torch.cat([pad_tokens(part, longest) for part in parts])

    @override
    def _embed(self, module: Any, batch: "Mapping[str, Tensor]", number: int) -> "Tensor":
        """Return the vectors of tokens, and after them whether they are compared, as 1 or 0."""
        ids, mask = batch[column(IDS, number)], batch.get(column(MASK, number))
        inputs = {self.inputs[0]: ids}
        if not number and self.reads_unattended:
            places = torch.arange(ids.shape[1], device=ids.device)
            inputs[MASK] = (places < batch[OWN_TOKENS][:, None]).to(ids.dtype)
        elif mask is not None and MASK in self.inputs:
            inputs[MASK] = mask
        hidden = at_least_float32(module.backbone(**inputs)["last_hidden_state"])
        features = module.sentence_modules(
            hidden,
            torch.ones_like(ids) if mask is None else mask,
            ids=ids,
            task=ROLES[min(number, 1)],
            skipped=torch.tensor(self.skipped, device=ids.device),
        )
        compared = features[MASK][..., None].to(hidden.dtype)
        return torch.cat([features[TOKENS], compared], -1)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        vectors: Tensor = outputs.logits[self.name]
        with torch.autocast(vectors.device.type, enabled=False):
            queries, mean = vectors[0], self.similarity == "meanmaxsim"
            if LABELS in batch:
                scores = [max_sim(queries, texts, mean=mean) for texts in vectors[1:]]
                found = scores[0][:, None] - torch.stack(scores[1:], 1)
                total = self.taught_loss(found, batch[LABELS])
                predictions = {"similarity": found.detach().double(), "label": batch[LABELS]}
            else:
                texts, first = self._compared(vectors[1:].transpose(0, 1))
                columns = [
                    max_sim_matrix(queries, part, mean=mean) for part in texts.transpose(0, 1)
                ]
                labels = torch.arange(first, first + len(queries), device=vectors.device)
                matrix = self.options.scale * torch.cat(columns, 1)
                total = F.cross_entropy(matrix, labels, reduction="sum")
                predictions = self._predictions(vectors, outputs, batch)
            return LossOutput({self.name: total}, predictions=predictions)

    @override
    def _predictions(
        self, vectors: "Tensor", outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        if torch.is_grad_enabled():
            return {}
        padded = [pad_tokens(part.detach(), self.padded(k)) for k, part in enumerate(vectors[:2])]
        return {"anchor": padded[0], "text": padded[1], TEXTS: batch[TEXTS]}

    @override
    def similarity_rows(
        self, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        with TokenVectors(self.similarity) as stored:
            for text in texts:
                stored.add(compared_tokens(text))
            yield from stored.score_rows(map(compared_tokens, anchors), self.dtype)


def compared_tokens(vectors: "NDArray[Any]") -> "NDArray[Any]":
    """Return the vectors of the tokens that are compared, (tokens, dimensions), of one text."""
    return vectors[vectors[:, -1] > 0, :-1]


def expand_queries(rows: "TokenizedRows", token: int, length: int) -> "TokenizedRows":
    """Return rows whose queries have a token after them, up to a length, and their own lengths."""
    own = np.diff(rows.starts)
    starts = np.concatenate([[0], np.cumsum(np.maximum(own, length))])
    numbers = np.repeat(np.arange(len(own)), own)  # of the row of each token
    places = np.arange(rows.starts[-1]) + (starts[:-1] - rows.starts[:-1])[numbers]
    arrays = {}
    for name, array in rows.arrays.items():
        arrays[name] = np.full((int(starts[-1]), *array.shape[1:]), token, array.dtype)
        arrays[name][places] = array
    return replace(rows, starts=starts, arrays=arrays, values={**rows.values, OWN_TOKENS: own})


def pad_tokens(vectors: "Tensor", length: int) -> "Tensor":
    """Return vectors with zeros for more tokens, or fewer of them, (rows, length, dimensions)."""
    return F.pad(vectors, (0, 0, 0, length - vectors.shape[1]))


def max_sim_matrix(queries: "Tensor", texts: "Tensor", *, mean: bool = False) -> "Tensor":
    """Return the MaxSim of all queries and texts, (queries, texts)."""
    # Both are (n, tokens, dimensions); the last one tells which tokens count.
    size = max(1, COMPARED // max(1, texts.shape[0] * texts.shape[1] * queries.shape[1]))
    absent = texts[..., -1] == 0
    parts = []
    for part in torch.split(queries, size):
        scores = torch.einsum("qid,tjd->qtij", part[..., :-1], texts[..., :-1])
        scores = scores.masked_fill(absent[None, :, None], torch.finfo(scores.dtype).min)
        parts.append(_summed(scores.amax(-1), part[:, None, :, -1], mean=mean))
    return torch.cat(parts)


def max_sim(queries: "Tensor", texts: "Tensor", *, mean: bool = False) -> "Tensor":
    """Return the MaxSim of each query and its text, (rows,); see ``max_sim_matrix``."""
    scores = torch.einsum("rid,rjd->rij", queries[..., :-1], texts[..., :-1])
    scores = scores.masked_fill(texts[:, None, :, -1] == 0, torch.finfo(scores.dtype).min)
    return _summed(scores.amax(-1), queries[..., -1], mean=mean)


def _summed(best: "Tensor", real: "Tensor", *, mean: bool) -> "Tensor":
    """Return the sum over the tokens of a query, or their mean."""
    total = (best * real).sum(-1)
    return total / real.sum(-1).clamp(min=1) if mean else total
