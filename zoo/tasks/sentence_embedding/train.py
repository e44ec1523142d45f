"""Sentence embeddings, trained on pairs, triplets or scored pairs of texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.data.packing import EpochShuffle
from zoo.data.readers.labelled import label_name, label_number
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.evaluation.data_warnings import warn_of_equal_numbers
from zoo.finetuning.base import LABELS, FineTuning
from zoo.finetuning.labels import label_index, order_labels
from zoo.finetuning.pooling import SentenceModules, load_modules
from zoo.finetuning.rows import TokenizedRows, TokenizedTexts, tokenize
from zoo.inference.processing.pooling import count_prompt_tokens
from zoo.inference.processing.similarity import compare_pairs, pairwise_similarity, similarity_rows
from zoo.metrics.classification import accuracy
from zoo.metrics.ranks import correlations, rank_differences
from zoo.metrics.retrieval import NAMES, retrieval_scores, triplet_accuracy
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.base import LossOutput, Outputs, TrainedModel
from zoo.objectives.options import Options
from zoo.overrides import override
from zoo.tasks.sentence_embedding.data import TextGroup, read_text_groups, review_group
from zoo.tasks.sentence_embedding.losses import (
    cosent,
    cosine_error,
    cut,
    margin_divergence,
    margin_error,
    margins,
    multiple_negatives,
    pair_features,
    triplet,
)
from zoo.tasks.sentence_embedding.order import NoDuplicatesOrder, text_numbers
from zoo.tasks.sentence_embedding.rows import (
    class_row,
    embedding_mistake,
    margin_row,
    retrieval_row,
    scored_row,
)
from zoo.tasks.sentence_embedding.train_options import (
    MARGIN_MSE,
    SCORED,
    TAUGHT,
    UNSCORED,
    EmbeddingOptions,
    Loss,
    check_columns,
    stored_options,
)
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.pooling import Pooling, SimilarityFunction
from zoo.tokenizers.sentence_modules import SENTENCE_VECTOR
from zoo.training.config.finetune import FineTuneConfig, TableConfig
from zoo.training.distributed.gather import gather_rows, process_count

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Prediction
    from zoo.families.base import Family
    from zoo.families.config import Config
    from zoo.training.state.pretrained import PretrainedInit

IN_BATCH = ("multiple-negatives", "cosent")
IDS, MASK, TEXTS = "input_ids", "attention_mask", "texts"
EMBED = "embed"  # task of the head
FULL = "float32"


class SentenceEncoder(nn.Module):
    """A backbone, its modules, and the classifier of ``softmax``, which the final model lacks."""

    def __init__(
        self,
        backbone: nn.Module,
        head: str,
        modules: SentenceModules,
        classifier: nn.Linear | None,
    ) -> None:
        super().__init__()
        self.backbone, self.head, self.classifier = backbone, head, classifier
        self.sentence_modules = modules


class SentenceEmbedding(FineTuning):
    """Similarity of pooled vectors, by one of ``embedding_losses``."""

    # multiple-negatives: anchors, their texts and hard negatives; the other texts of the
    # micro-batch are negatives as well. No text is in a batch twice, as far as the data allows.
    # cosent: pairs with scores, whose order within the micro-batch counts
    # cosine: pairs with scores from -1 to 1, the squared error of the cosine similarity
    # triplet: anchors, their texts, and one negative each
    # softmax: pairs with classes; the classifier is dropped after training
    # margin-mse: anchors, their texts and negatives, with the scores that a teacher, such as a
    # cross-encoder, gives them, or their margins; the squared error of margins of dot products
    # kl-div: the same, and the divergence from the teacher's probabilities of these texts

    # The model's prompts precede the texts, as in ``zoo eval``: in ``multiple-negatives``,
    # ``triplet`` and a teacher's, the query prompt the anchors and the document prompt the other
    # texts; in pairs with scores or classes, the default prompt both.

    name: ClassVar[str] = "sentence-embedding"
    head: ClassVar[str] = "none"
    options_type: ClassVar[type[Options]] = EmbeddingOptions

    def __init__(self, *args: Any) -> None:
        self.classes: tuple[str, ...] = ()
        # number of a column, whether its rows have labels -> tokens of its prompt, not pooled
        self.prompt_tokens: dict[tuple[int, bool], int] = {}
        self.dtype = FULL  # of the computation of the last embeddings
        super().__init__(*args)
        # next to an adapter, a pooler that the base lacks is new, and no loss reads it
        self.uses_all_parameters = self.run.adapter is None
        check_columns(self.kind, self.run.data)
        largest = max(self.options.matryoshka or (0,))
        if largest > self.width:
            raise UsageError(
                f"matryoshka is {largest}, and embeddings have {self.width} dimensions",
                f"give numbers up to {self.width}",
            )

    @property
    def width(self) -> int:
        """Number of dimensions of an embedding."""
        pooling = self.pooling
        return pooling.features(pooling.input_width(self.config))[SENTENCE_VECTOR].width

    @classmethod
    @override
    def head_in(cls, family: "Family") -> str:
        """Return the family's head that embeds texts."""
        able = [name for name, head in family.heads().items() if EMBED in head.tasks]
        if not able:
            raise UsageError(f"no head of the family {family.name} embeds texts")
        return cls.head if cls.head in able else able[0]

    @classmethod
    @override
    def resolve(cls, run: FineTuneConfig, init: "PretrainedInit | None") -> FineTuneConfig:
        """Take pooling, prompts and similarity from the checkpoint where they are not set."""
        checkpoints = {} if init is None else init.checkpoints
        stored = checkpoints["model"].model.pooling if "model" in checkpoints else None
        defaults = stored_options(stored)
        settings = {name: value for name, value in run.task_args.items() if value is not None}
        return msgspec.structs.replace(run, task_args={**defaults, **settings})

    @property
    def kind(self) -> Loss:
        """The loss."""
        default: Loss = "multiple-negatives" if self.run.data.label is None else "cosent"
        loss: Loss | None = self.options.loss
        return loss or default

    @property
    @override
    def loss_in_batch(self) -> bool:
        return self.kind in IN_BATCH or self.run.data.eval_score is not None

    def loss_of(self, batch: "Mapping[str, Tensor]") -> Loss:
        """Return the loss of a batch; an evaluation on scores has ``cosent``."""
        return "cosent" if self.kind in UNSCORED and LABELS in batch else self.kind

    def is_scored(self, *, labelled: bool) -> bool:
        """Return whether rows are pairs with scores or classes, or anchors and their texts."""
        return labelled and self.kind not in TAUGHT

    @property
    def pooling(self) -> Pooling:
        """Settings of the final model."""
        pooling: Pooling = self.options.settings(self.run.max_seq_len)
        return pooling

    @property
    def similarity(self) -> SimilarityFunction:
        """Similarity of embeddings in evaluations."""
        return self.pooling.similarity_fn_name

    def prompt(self, number: int, *, scored: bool) -> str:
        """Return the prompt of a column of texts; column 0 has the anchors."""
        if scored:
            return self.pooling.prompt()
        return self.pooling.document_prompt() if number else self.pooling.query_prompt()

    def limit(self, number: int) -> int:
        """Return the number of tokens that texts of a column are truncated to."""
        return self.run.max_seq_len

    @property
    def columns(self) -> int:
        """Number of texts in a row."""
        return 2 + len(self.run.data.negatives)

    @property
    @override
    def default_metric(self) -> str:  # type: ignore[override]
        return self.metric_names[0]

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        if self.kind in (*SCORED, *TAUGHT) or self.run.data.eval_score is not None:
            return ("spearman", "pearson")
        return ("mrr", "accuracy") if self.kind == "multiple-negatives" else ("accuracy",)

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return self.classes

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.pair is None:
            raise UsageError(
                f"{cls.name} compares two texts", "name the column of the second with --pair"
            )
        columns = [data.text, data.pair, *data.negatives]
        return list(read_text_groups(paths, columns, data.label, problems))

    @classmethod
    @override
    def read_eval(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        if data.eval_score is None or data.pair is None:
            return cls.read(paths, data, problems)
        return list(read_text_groups(paths, [data.text, data.pair], data.eval_score, problems))

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return review_group(sample)

    @override
    def usable(self, samples: Sequence[Any], problems: RowProblems) -> list[Any]:
        # the first call, on the training data, fixes the classes of ``softmax``
        if samples[0].label is None:
            return list(samples)
        if self.kind == "softmax" and not self.classes:
            samples = list(problems.valid(samples, lambda s: label_name(s.label, s.location)))
            self.classes = self._classes(samples)
        return super().usable(samples, problems)

    @classmethod
    @override
    def texts(cls, sample: Any) -> list[str]:
        return list(sample.texts)

    @override
    def target(self, sample: Any) -> Any:
        """Return the score, float32, the index of the class, or margins, (negatives,)."""
        if self.kind in TAUGHT:
            values = sample.label if isinstance(sample.label, list) else [sample.label]
            numbers = np.array(
                [label_number(value, sample.location) for value in values], np.float32
            )
            negatives = len(sample.texts) - 2
            if len(numbers) == negatives + 1:  # scores of the text and of the negatives
                return np.asarray(numbers[0] - numbers[1:])
            if len(numbers) != negatives:
                raise RowError(
                    f"{sample.location} has {len(numbers)} scores, and {negatives} negatives",
                    "give a score of the text and of each negative, or a margin for each negative",
                )
            return numbers
        if self.kind == "softmax":
            name = label_name(sample.label, sample.location)
            return label_index(name, {n: k for k, n in enumerate(self.classes)}, sample.location)
        score = label_number(sample.label, sample.location)
        if self.options.score_range is not None:
            low, high = self.options.score_range
            score = (score - low) / (high - low)
        if self.kind == "cosine" and not -1 <= score <= 1:
            raise RowError(
                f"{sample.location}: the score {sample.label} is not a cosine similarity",
                "--set task_args.score_range=[LOWEST,HIGHEST] maps scores to 0 to 1",
            )
        return np.float32(score)

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        # the first call, on the training data, fixes the classes of ``softmax``
        if self.kind == "softmax" and not self.classes:
            self.classes = self._classes(samples)
        scored = self.is_scored(labelled=samples[0].label is not None)
        columns = [
            self._tokenize(
                [s.texts[k] for s in samples],
                tokenizer,
                k,
                scored=scored,
                locations=[sample.location for sample in samples],
            )
            for k in range(len(samples[0].texts))
        ]
        values: dict[str, NDArray[Any]] = {TEXTS: text_numbers(samples)}
        if samples[0].label is not None:
            values[LABELS] = np.array([self.target(sample) for sample in samples])
        values_per_row = len(self.run.data.negatives) if self.kind == MARGIN_MSE else 1
        return TokenizedRows(
            columns[0].starts,
            columns[0].arrays,
            values,
            {self.name: np.full(len(samples), values_per_row)},
            sum(texts.truncated for texts in columns),
            others=tuple(columns[1:]),
        )

    def _tokenize(
        self,
        texts: Sequence[str],
        tokenizer: TextTokenizer,
        number: int,
        *,
        scored: bool,
        locations: Sequence[str],
    ) -> TokenizedTexts:
        """Tokenize a column of texts after its prompt."""
        if self.options.lowercase:
            tokenizer = tokenizer.lowercased
        prompt, longest = self.prompt(number, scored=scored), self.limit(number)
        excluded = 0
        if prompt and not self.pooling.pools_prompt:
            excluded = count_prompt_tokens(tokenizer, prompt, longest)
        self.prompt_tokens[number, scored] = excluded
        tokenized = tokenize(
            [prompt + text for text in texts],
            tokenizer,
            (column(IDS, number),),
            longest,
            locations=locations,
        )
        short = np.diff(tokenized.starts) <= excluded
        if short.any():
            raise UsageError(
                f"{locations[int(short.argmax())]} has no tokens after the prompt",
                "leave the row out",
            )
        return tokenized

    def _classes(self, samples: Sequence[TextGroup]) -> tuple[str, ...]:
        present = {label_name(sample.label, sample.location) for sample in samples}
        return order_labels(present, self.run.data.labels, 2)

    @override
    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        """Warn of prompts in the data, equal scores and texts, and dimensions without a loss."""
        dims = self.options.matryoshka
        untrained = dims is not None and self.width not in dims
        equal = [
            *([f"matryoshka lacks {self.width}, all dimensions of embeddings"] * untrained),
            *self._repeated_prompts(train),
            *self._equal_scores(train, training=True),
            *self._equal_scores(evaluation, training=False),
        ]
        order = self.train_order(rows)
        count = order.duplicates(0) if isinstance(order, NoDuplicatesOrder) else 0
        if not count:
            return equal
        return [
            *equal,
            f"{count:,} of {order.num_rows:,} samples share a text with another one of their "
            "batch, which then counts as a negative; a lower batch_size, or fewer such samples, "
            "avoids that",
        ]

    def _repeated_prompts(self, samples: Sequence[TextGroup]) -> list[str]:
        """Return a warning for texts that already begin with the prompt that precedes them."""
        scored = self.is_scored(labelled=samples[0].label is not None)
        prompts = [self.prompt(k, scored=scored) for k in range(len(samples[0].texts))]
        count = sum(
            bool(prompt) and text.startswith(prompt)
            for sample in samples
            for prompt, text in zip(prompts, sample.texts, strict=True)
        )
        if not count:
            return []
        return [
            f"{count:,} texts begin with the model's prompt, which precedes every text anyway; "
            "remove it from the data"
        ]

    def _equal_scores(self, samples: Sequence[TextGroup], *, training: bool) -> list[str]:
        if self.kind in ("softmax", *TAUGHT) or samples[0].label is None:
            return []
        scores = (label_number(s.label, s.location) for s in samples)
        return warn_of_equal_numbers(scores, training=training)

    @override
    def train_order(self, rows: TokenizedRows) -> EpochShuffle:
        if self.kind != "multiple-negatives":
            return super().train_order(rows)
        size = self.run.batch_size
        if len(rows) < size:
            raise UsageError(
                f"{len(rows)} samples to train on are less than a batch of {size}",
                "--set batch_size=N, or more data",
            )
        return NoDuplicatesOrder(rows.values[TEXTS], size, self.run.seed)

    @override
    def masks(self) -> dict[str, str | None]:
        return {column(IDS, k): column(MASK, k) for k in range(self.columns)}

    @override
    def padding(self) -> dict[str, int]:
        return dict.fromkeys(self.masks(), self.pad_id)

    @override
    def model(self, family: "Family", config: "Config") -> nn.Module:
        # no token vector depends on a pooler, which is frozen
        head = self.head_in(family)
        backbone = family.model(config, head)
        for name, parameter in backbone.named_parameters():
            if name.startswith("pooler."):
                parameter.requires_grad_(False)
        classifier = nn.Linear(3 * self.width, len(self.classes)) if self.classes else None
        return SentenceEncoder(backbone, head, SentenceModules(self.pooling), classifier)

    @override
    def load_checkpoint(self, model: nn.Module, checkpoint: "Checkpoint") -> list[str]:
        """Load the weights of the checkpoint's modules; those that it lacks are new."""
        module: Any = model
        stored = checkpoint.module_weights() if checkpoint.model.pooling else {}
        return load_modules(module.sentence_modules, stored)

    @override
    def models_to_save(self, model: nn.Module) -> dict[str, TrainedModel]:
        module: Any = model
        trained = TrainedModel(
            module.backbone,
            self.config,
            module.head,
            self.pooling,
            modules=module.sentence_modules,
        )
        return {"model": trained}

    @override
    def forward(self, model: nn.Module, batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the embeddings of all texts, (columns, rows, hidden)."""
        # With classes, also their logits at each number of dimensions, (dims, rows, classes).
        module: Any = model
        self.note_dtype(batch)
        present = [k for k in range(self.columns) if column(IDS, k) in batch]
        vectors = torch.stack([self._embed_column(module, batch, k) for k in present])
        logits = {self.name: vectors}
        if module.classifier is not None:
            # zeros in place of the other dimensions select the weights of the first ones
            parts = [cut(vectors, dim) for dim, _ in self.options.cuts]
            pairs = [F.pad(part, (0, self.width - part.shape[-1])) for part in parts]
            features = torch.stack([pair_features(pair[0], pair[1]) for pair in pairs])
            logits["classes"] = at_least_float32(module.classifier(features))
        return Outputs(logits)

    def note_dtype(self, batch: "Mapping[str, Tensor]") -> None:
        """Set ``dtype`` to the dtype of the computation on the device of a batch."""
        device = batch[column(IDS, 0)].device.type
        lower = torch.is_autocast_enabled(device)
        self.dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if lower else FULL

    def join(self, parts: "list[Tensor]") -> "Tensor":
        """Return the embeddings of mini-batches as one tensor."""
        return torch.cat(parts)

    def _embed_column(self, module: Any, batch: "Mapping[str, Tensor]", number: int) -> "Tensor":
        """Return the embeddings of a column, (rows, hidden), in mini-batches if they are set."""
        # The backward pass computes the activations of a mini-batch again, with the same dropout,
        # once the gradients of all embeddings are known.
        size, rows = self.options.mini_batch_size, len(batch[column(IDS, number)])
        if size is None or size >= rows:
            return self._embed(module, batch, number)
        parts = []
        for start in range(0, rows, size):
            part = {name: tensor[start : start + size] for name, tensor in batch.items()}
            if (mask := part.get(column(MASK, number))) is not None:
                longest = int(mask.sum(1).max())
                for name in (column(IDS, number), column(MASK, number)):
                    part[name] = part[name][:, :longest]
            parts.append(checkpoint(self._embed, module, part, number, use_reentrant=False))
        return self.join(parts)

    def _embed(self, module: Any, batch: "Mapping[str, Tensor]", number: int) -> "Tensor":
        ids = batch[column(IDS, number)]
        mask = batch.get(column(MASK, number))
        inputs = {self.inputs[0]: ids}
        if mask is not None and MASK in self.inputs:
            inputs[MASK] = mask
        hidden = at_least_float32(module.backbone(**inputs)[self.pooling.output])
        pooled = torch.ones_like(ids) if mask is None else mask
        excluded = self.prompt_tokens.get((number, self.is_scored(labelled=LABELS in batch)), 0)
        features = module.sentence_modules(hidden, pooled, prompt_tokens=excluded)
        return features[SENTENCE_VECTOR]  # type: ignore[no-any-return]

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss; in float32, whatever the precision of the run is."""
        # In training, samples are compared across all processes that share the micro-batch.
        vectors: Tensor = outputs.logits[self.name]
        with torch.autocast(vectors.device.type, enabled=False):
            losses = [
                weight * self._sum(cut(vectors, dim), outputs, batch, index)
                for index, (dim, weight) in enumerate(self.options.cuts)
            ]
            total = torch.stack(losses).sum()
            return LossOutput(
                {self.name: total}, predictions=self._predictions(vectors, outputs, batch)
            )

    def _sum(
        self, vectors: "Tensor", outputs: Outputs, batch: "Mapping[str, Tensor]", index: int
    ) -> "Tensor":
        """Return the loss of embeddings at the number of dimensions of an index."""
        match self.loss_of(batch):
            case "multiple-negatives":
                texts, first = self._compared(vectors[1:].transpose(0, 1))
                columns = list(texts.transpose(0, 1))
                return multiple_negatives(vectors[0], columns, self.options.scale, first).sum()
            case "triplet":
                return triplet(vectors[0], vectors[1], vectors[2], self.options.margin).sum()
            case "cosine":
                return cosine_error(vectors[0], vectors[1], batch[LABELS]).sum()
            case "cosent":
                (pairs, _), (labels, _) = map(
                    self._compared, (vectors.transpose(0, 1), batch[LABELS])
                )
                loss = cosent(pairs[:, 0], pairs[:, 1], labels, self.options.scale)
                return loss * vectors.shape[1]
            case "margin-mse" | "kl-div":
                found = margins(vectors[0], vectors[1], vectors[2:])
                return self.taught_loss(found, batch[LABELS])
            case "softmax":
                logits = outputs.logits["classes"][index]
                return F.cross_entropy(logits, batch[LABELS], reduction="sum")

    def taught_loss(self, found: "Tensor", wanted: "Tensor") -> "Tensor":
        """Return the loss of margins, (rows, negatives), next to a teacher's."""
        if self.kind == MARGIN_MSE:
            return margin_error(found, wanted).sum()
        return margin_divergence(found, wanted, self.options.temperature).sum()

    def _compared(self, rows: "Tensor") -> "tuple[Tensor, int]":
        """Return the rows of all processes that share a micro-batch, and the index of the first."""
        # An evaluation compares the rows of one process, which are whole micro-batches.
        if not (torch.is_grad_enabled() and self.splits_micro_batches(process_count())):
            return rows, 0
        return gather_rows(rows), torch.distributed.get_rank() * len(rows)

    def _predictions(
        self, vectors: "Tensor", outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        if self.kind == "softmax":
            classes = outputs.logits["classes"][0].detach()  # of most dimensions
            probability, best = classes.softmax(-1).max(-1)
            return {"prediction": best, "label": batch[LABELS], "probability": probability}
        vectors = vectors.detach()[..., : self.pooling.truncate_dim]
        if self.loss_of(batch) == "multiple-negatives":
            return {"anchor": vectors[0], "text": vectors[1], TEXTS: batch[TEXTS]}
        if self.loss_of(batch) == "triplet":
            return {"anchor": vectors[0], "text": vectors[1], "negative": vectors[2]}
        vectors = vectors.double()
        if self.kind in TAUGHT:
            found = margins(vectors[0], vectors[1], vectors[2:])
            return {"similarity": found, "label": batch[LABELS]}
        similarity = pairwise_similarity(vectors[0], vectors[1], self.similarity)
        return {"similarity": similarity, "label": batch[LABELS]}

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """Return the metrics over all texts, whatever the batches were."""
        # Of pairs with scores, the correlations of their similarity; with a teacher, those of
        # the margins; of ``triplet``, the fraction of anchors that are nearer to their text than to
        # the negative, ties being a half; of ``multiple-negatives``, ``mrr`` and ``accuracy`` among
        # all texts of the evaluation, see ``retrieval_scores``.
        if self.metric_names[0] == "spearman":
            return correlations(predictions["similarity"].ravel(), predictions["label"].ravel())
        if self.kind == "softmax":
            return {"accuracy": accuracy(predictions["prediction"], predictions["label"])}
        anchors, texts = predictions["anchor"], predictions["text"]
        if self.kind == "triplet":
            negatives = predictions["negative"]
            compared = compare_pairs(anchors, texts, negatives, self.similarity, self.dtype)
            return {"accuracy": triplet_accuracy(*compared)}
        queries = Queries.of(predictions[TEXTS])
        scores = retrieval_scores(self._compare(queries, predictions), queries.relevant)
        means = dict(zip(NAMES, scores.mean(0).tolist(), strict=True))
        return {name: means[name] for name in self.metric_names}

    def similarity_rows(
        self, anchors: "NDArray[Any]", texts: "NDArray[Any]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        """Yield the similarities of each anchor to all texts, and their error."""
        return similarity_rows(anchors, texts, self.similarity, self.dtype)

    def vectors_of(
        self, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "tuple[NDArray[Any], NDArray[Any]]":
        """Return the embeddings of anchors and of their texts, (rows, hidden) each."""
        return predictions["anchor"], predictions["text"]

    def _compare(
        self, queries: "Queries", predictions: "Mapping[str, NDArray[Any]]"
    ) -> "Iterator[tuple[NDArray[Any], float]]":
        """Yield the similarities of each distinct anchor to the distinct texts."""
        anchors, texts = self.vectors_of(predictions)
        return self.similarity_rows(anchors[queries.anchors], texts[queries.texts])

    @override
    def mistake(self, row: "Prediction") -> float | None:
        return embedding_mistake(row)

    @override
    def reported(
        self,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[Any],
        numbers: Sequence[int],
    ) -> "Iterator[Prediction]":
        found, first = np.unique(numbers, return_index=True)  # processes may share rows
        values = {name: array[first] for name, array in predictions.items()}
        groups: list[TextGroup] = [samples[number] for number in found]
        if "similarity" in values:
            yield from _scored_rows(groups, values["similarity"], values["label"])
        elif "probability" in values:
            labels, columns = self.classes, ("prediction", "label", "probability")
            for group, *row in zip(groups, *(values[name] for name in columns), strict=True):
                yield class_row(group, labels[row[0]], labels[row[1]], float(row[2]))
        elif "negative" in values:
            anchors, texts, negatives = (values[n] for n in ("anchor", "text", "negative"))
            near, far, _ = compare_pairs(anchors, texts, negatives, self.similarity, self.dtype)
            for group, pair in zip(groups, np.stack([near, far], 1), strict=True):
                yield retrieval_row(group.texts[0], [0], group.texts[1:], pair)
        elif "anchor" in values:
            queries = Queries.of(values[TEXTS])
            names = [groups[row].texts[1] for row in queries.texts]
            compared = zip(queries.relevant, self._compare(queries, values), strict=True)
            for row, (own, (similarity, _)) in zip(queries.anchors, compared, strict=True):
                yield retrieval_row(groups[row].texts[0], own, names, similarity)


class Queries(NamedTuple):
    """Distinct anchors and texts of rows; rows of one anchor are a query."""

    anchors: "NDArray[np.int64]"  # a row of each anchor, (anchors,)
    texts: "NDArray[np.int64]"  # a row of each text, (texts,)
    relevant: list[list[int]]  # of each anchor, the indices of its texts

    @classmethod
    def of(cls, numbers: "NDArray[Any]") -> "Queries":
        """Return the queries from the number of each text, equal ones alike, (rows, columns)."""
        _, anchors, queries = np.unique(numbers[:, 0], return_index=True, return_inverse=True)
        _, texts, candidates = np.unique(numbers[:, 1], return_index=True, return_inverse=True)
        relevant: list[set[int]] = [set() for _ in anchors]
        for query, candidate in zip(queries.tolist(), candidates.tolist(), strict=True):
            relevant[query].add(candidate)
        return cls(anchors, texts, [*map(list, relevant)])


def _scored_rows(
    groups: Sequence[TextGroup], found: "NDArray[Any]", labels: "NDArray[Any]"
) -> "Iterator[Prediction]":
    """Yield the row of each pair; of margins, (groups, negatives), one of each negative."""
    differences = rank_differences(found.ravel(), labels.ravel()).reshape(found.shape)
    for group, values, wanted, by in zip(groups, found, labels, differences, strict=True):
        if found.ndim == 1:
            yield scored_row(group, values, by)
            continue
        for negative, *row in zip(group.texts[2:], values, wanted, by, strict=True):
            yield margin_row(group, negative, *map(float, row))


def column(name: str, number: int) -> str:
    """Return the name of a tensor of one of the texts of a row; the first has no number."""
    return f"{name}_{number}" if number else name
