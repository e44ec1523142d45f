"""Base class of sequence-to-sequence objectives: a source and a target for each text."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.document_stream import Documents
from zoo.data.packing import BudgetFactory, ConcatenatedDocuments, pack_documents
from zoo.objectives.base import Batch, Example, ExampleDataset, LossOutput, Objective, Outputs
from zoo.objectives.examples.packing import PackedRow, pack, without_special_tokens
from zoo.objectives.examples.seq2seq_packing import plan_decoder_length
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.losses.predictions import cross_entropy_sum, predict_at, value_rows
from zoo.objectives.options import Options
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.data.corpus import Split

SEQ2SEQ_LM = "seq2seq-lm"  # the loss term
RowSizes = tuple[BudgetFactory, int]  # Factory of row budgets, and tokens per decoder row.


class Seq2SeqOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of sequence-to-sequence objectives."""

    # Concatenate the documents in random order before they are cut into texts, so that a text may
    # go on in an unrelated document, without a mark between them, as the released code does
    # (``reduce_concat_tokens`` in preprocessors.py). Otherwise, each text is of one document, and
    # texts that share a row do not attend to each other.
    concat_documents: bool = True


class Seq2SeqObjective(Objective):
    """Base class of objectives that make a source and a target of each segment of text."""

    # By default, the documents are concatenated and cut into texts, one for each row. Without that,
    # or where the sentinels of a text do not last for a whole row, several texts share an encoder
    # row, and the same texts a decoder row, in the same order: ``document_ids`` and
    # ``decoder_document_ids`` number them from 1, so that each target only attends to its own
    # source. Each source and each target has the special tokens that the tokenizer adds to a text,
    # such as an end-of-text token (role ``eos``) after it, even if the document continues in
    # another row, as in the released code of Raffel et al. 2020 (arXiv:1910.10683). The decoder's
    # input is the target shifted right, after ``decoder_start_token_id``, and every token of the
    # target is predicted.
    #
    # ``SentenceObjective`` is the base class of objectives that make them of the sentences of a
    # text.

    head: ClassVar[str] = SEQ2SEQ_LM
    options_type: ClassVar[type[Options]] = Seq2SeqOptions

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        """Loss term -> weight; one term of the same name for all of them."""
        return {SEQ2SEQ_LM: 1.0}

    @property
    @override
    def label_tensors(self) -> Mapping[str, str]:
        return {SEQ2SEQ_LM: "labels"}

    @abstractmethod
    def plan_rows(self, documents: Documents) -> RowSizes:
        """Return the factory of row budgets, and the number of tokens per decoder row.

        The budget guarantees that sources and targets fit into their rows, with the special tokens
        of each.
        """

    @abstractmethod
    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        """Return source and target, (n,) each, of each text, without special tokens."""

    @cached_property
    def special_tokens(self) -> tuple[Ids, Ids]:
        """The special tokens before and after each source and target, (n,) each.

        They are the tokenizer's if these end a text, or else one that ends it.
        """
        end = self.vocabulary.special_token_id("eos")
        prefix, suffix = self.vocabulary.single_template.special_tokens
        if suffix[-1:] != (end,):
            prefix = ()
            suffix = (end,)
        return np.array(prefix, dtype=np.int64), np.array(suffix, dtype=np.int64)

    @override
    def dataset(self, split: "Split", seed: int) -> ExampleDataset:
        return self.pack(split, seed)

    @override
    def block_dataset(
        self, split: "Split", seed: int, example_rows: ExampleDataset
    ) -> ExampleDataset:
        assert isinstance(example_rows, Seq2SeqDataset), "they are rows of ``dataset``"
        return self.pack(split, seed, example_rows.row_plan)

    def pack(self, split: "Split", seed: int, row_plan: RowSizes | None = None) -> ExampleDataset:
        """Pack a split into rows, of the sizes that ``plan_rows`` returns for it or for another."""
        documents: Any = split
        if self.options.concat_documents:
            documents = ConcatenatedDocuments(split, seed)
        return self.dataset_type(self, documents, seed, row_plan)

    @property
    def dataset_type(self) -> "type[Seq2SeqDataset]":
        """Class of the rows of a split."""
        return Seq2SeqDataset

    @override
    def max_values(self, batch: Batch) -> dict[str, int]:
        length = batch.tensors["decoder_input_ids"].shape[1]
        return dict.fromkeys(("labels", "label_positions"), length)

    @override
    def forward(self, model: "nn.Module", batch: "Mapping[str, Tensor]") -> Outputs:
        module: Any = model
        hidden = module.hidden(
            batch["input_ids"],
            None,
            batch["decoder_input_ids"],
            document_ids=batch["document_ids"],
            decoder_document_ids=batch["decoder_document_ids"],
        )
        return self.predict_tokens(module, hidden, batch)

    def predict_tokens(
        self, model: Any, hidden: "tuple[Tensor, Tensor]", batch: "Mapping[str, Tensor]"
    ) -> Outputs:
        """Return the logits of each loss term from the hidden states of source and target."""
        return Outputs({SEQ2SEQ_LM: predict_at(model, hidden[1], batch["label_positions"])})

    @override
    def scored_rows(self, batch: "Mapping[str, Tensor]", term: str) -> "Tensor | None":
        rows = value_rows(batch, "label_positions", "decoder_input_ids")
        return None if rows is None else rows.indices

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        rows = value_rows(batch, "label_positions", "decoder_input_ids")
        return cross_entropy_sum(outputs.logits[SEQ2SEQ_LM], batch["labels"], SEQ2SEQ_LM, rows)


class SentenceObjective(Seq2SeqObjective):
    """Base class of objectives that make a source and a target of the sentences of a text.

    A text is of one document. If it does not fit into a row, its first or last sentence is cut.
    """

    options_type: ClassVar[type[Options]] = Options

    @abstractmethod
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """Return the largest lengths of source and target, without special tokens.

        Both must not decrease with the number of tokens. ``None`` means that the text is too long.
        """

    @abstractmethod
    def source_and_target(
        self, sentences: Sequence[Ids], rng: np.random.Generator
    ) -> tuple[Ids, Ids]:
        """Return source and target of a text, (n,) each, without special tokens.

        Args:
            sentences: the sentences of the text, at least one, (tokens,) each.
            rng: random generator of the row.
        """

    @override
    def plan_rows(self, documents: Documents) -> RowSizes:
        special_count = sum(map(len, self.special_tokens))
        return plan_decoder_length(self.max_lengths, documents, self.length, special_count)

    @override
    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        return [self.source_and_target([text], rng) for text in texts]

    @override
    def pack(self, split: "Split", seed: int, row_plan: RowSizes | None = None) -> ExampleDataset:
        return SentenceDataset(self, split, seed, row_plan)


class Seq2SeqDataset(ExampleDataset):
    """Packed rows of sources and of their targets."""

    def __init__(
        self,
        objective: Seq2SeqObjective,
        documents: Any,
        seed: int,
        row_plan: RowSizes | None = None,
    ) -> None:
        self.objective: Any = objective
        self.documents: Any = documents
        self.start: int = objective.config.decoder_start_token_id  # type: ignore[attr-defined]
        self.row_plan = row_plan or objective.plan_rows(self.documents)
        new_row, self.decoder_length = self.row_plan
        self.layout = pack_documents(
            self.documents, length=objective.length, new_row=new_row, seed=seed
        )

    def __len__(self) -> int:
        return len(self.layout)

    def pairs(self, index: int, rng: np.random.Generator) -> Sequence[tuple[Ids, Ids]]:
        """Return source and target of each text of a row, without special tokens."""
        texts = [self.documents.read(start, end) for start, end in self.layout.row(index)]
        return self.objective.source_target_pairs(texts, rng)  # type: ignore[no-any-return]

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        prefix, suffix = self.objective.special_tokens
        sources = []
        targets = []
        decoder_inputs = []
        for source, target in self.pairs(index, rng):
            sources.append(np.concatenate([prefix, source, suffix]))
            target = np.concatenate([prefix, target, suffix])
            targets.append(target)
            decoder_inputs.append(np.append(self.start, target[:-1]))
        encoder_row = self._pack(sources, self.objective.length)
        decoder_row = self._pack(decoder_inputs, self.decoder_length)
        labels = np.concatenate(targets)
        label_positions = np.flatnonzero(decoder_row.document_ids)
        return Example(
            {
                "input_ids": encoder_row.input_ids,
                "document_ids": encoder_row.document_ids,
                "decoder_input_ids": decoder_row.input_ids,
                "decoder_document_ids": decoder_row.document_ids,
            },
            values={"labels": labels},
            positions={"label_positions": ("decoder_input_ids", label_positions)},
            counts={SEQ2SEQ_LM: len(labels)},
        )

    def _pack(self, texts: list[Ids], length: int) -> PackedRow:
        return pack(
            [without_special_tokens(text) for text in texts],
            length=length,
            pad=self.objective.vocabulary.pad_id,
        )


class SentenceDataset(Seq2SeqDataset):
    """The same with the sentences of each text."""

    def __init__(
        self,
        objective: SentenceObjective,
        split: "Split",
        seed: int,
        row_plan: RowSizes | None = None,
    ) -> None:
        super().__init__(objective, split, seed, row_plan)
        self.starts = np.asarray(split.sentences)

    @override
    def pairs(self, index: int, rng: np.random.Generator) -> Sequence[tuple[Ids, Ids]]:
        pairs = []
        for start, end in self.layout.row(index):
            pairs.append(self.objective.source_and_target(self.sentences(start, end), rng))
        return pairs

    def sentences(self, start: int, end: int) -> list[Ids]:
        """Return the sentences between two offsets of one document, (tokens,) each."""
        first, last = np.searchsorted(self.starts, [start, end], side="right")
        starts = np.unique(self.starts[first:last])  # A sentence may be empty.
        inner_starts = starts[(starts > start) & (starts < end)]
        text = self.documents.read(start, end)
        return np.split(text, inner_starts - start)
