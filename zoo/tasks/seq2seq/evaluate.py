"""Evaluation of generated texts on tables of sources and targets."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.data.readers.text_io import split_name
from zoo.evaluation.base import TEXTS_AT_ONCE, Evaluation, Prediction, Result
from zoo.evaluation.selected_metrics import add_text_metrics
from zoo.inference.generation.languages import target_settings
from zoo.inference.likelihood import Seq2SeqLikelihood
from zoo.inference.processing.batching import batched
from zoo.inference.processing.records import TextExample
from zoo.inference.scoring import ScoredRow
from zoo.inference.task_checks import require_head
from zoo.io.limits import MAX_NEW_TOKENS
from zoo.metrics import MetricInput
from zoo.metrics.generated_labels import NO_LABEL, GeneratedLabels, number_of
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.likelihood import likelihood_metrics
from zoo.overrides import override
from zoo.plugins.metrics import select_metrics
from zoo.tasks.seq2seq.data import TextToText, iter_text_to_text, review_target
from zoo.tasks.seq2seq.predict import Seq2SeqGeneration
from zoo.tasks.seq2seq.text_forms import TextForm, form_of, glue_tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need


class Seq2SeqEvaluation(Evaluation):
    """Exact match of generated texts and loss of the targets, and for GLUE its metrics.

    ``exact_match`` is the fraction of samples whose generated text equals a target, ignoring white
    space at both ends. ``loss`` is the mean negative log-likelihood in nats of the targets'
    tokens, including the end-of-sequence token, and ``accuracy`` the fraction of them that are
    predicted from the target's earlier tokens. Intervals are over samples.
    """

    name: ClassVar[str] = "seq2seq"
    needs: "ClassVar[tuple[Need, ...]]" = ("generation",)

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        pair: str | None = None,
        prefix: str | dict[str, str] | None = None,
        pair_prefix: str | dict[str, str] | None = None,
        max_new_tokens: int | None = None,  # default: the model's, or the longest target's length
        num_beams: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        metric: Sequence[str] = (),
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = Columns(text, label, pair)
        self.selected_metrics = select_metrics(metric, self.metric_input(), self.name)
        self.seed = seed
        self.prefix = prefix
        self.pair_prefix = pair_prefix
        self.max_new_tokens = max_new_tokens
        self.num_beams = num_beams
        self.scorer = Seq2SeqLikelihood(self.checkpoint, self.session)
        scorer = self.scorer
        self.tgt_lang = tgt_lang
        if tgt_lang is not None:
            scorer.generation |= target_settings(scorer.tokenizer, tgt_lang)
        if src_lang is not None:
            scorer.tokenizer = scorer.tokenizer.in_language(src_lang)
        self._cut_targets = 0

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_head(checkpoint, Seq2SeqGeneration.name)

    @classmethod
    @override
    def metric_input(cls) -> MetricInput | None:
        return "texts"

    @classmethod
    @override
    def split_names(
        cls, data: Sequence[Path], options: Mapping[str, Any]
    ) -> tuple[list[Path], dict[str, Any]]:
        """Return the files, such as the tables of ``glue/NAME=DIR``, and the prefix by name."""
        columns = Columns(options.get("text", "text"), pair=options.get("pair"))
        files = []
        prefixes = {}
        for table in glue_tables([str(path) for path in data], "dev"):
            name, file = split_name(table)
            files.append(Path(file))
            if name:
                prefixes[name] = form_of(name, columns).prefix
        settings: dict[str, Any] = {}
        if prefixes:
            settings["prefix"] = prefixes
        return files, settings

    def form(self, name: str) -> TextForm:
        """Return the form of a data set, as in fine-tuning."""
        return form_of(name, self.columns, self.prefix, self.pair_prefix)

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return the loss of the target, which runs lack, if another text was generated."""
        if row["correct"]:
            return None
        loss: float = row.get("loss", 1.0)
        return loss

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        paths = glue_tables([str(file) for file in files], "dev")
        samples = self.samples(
            lambda problems: iter_text_to_text(paths, self.form, None, problems), review_target
        )
        # This reads all samples, and so finds what cannot be used.
        names = Counter(sample.dataset for sample in samples)
        form = TextForm(self.columns)
        if len(names) == 1:
            form = self.form(next(iter(names)))
        scores = self.scorer.stream_scores(self._rows(samples))
        shown_scores = self.shown(scores, names.total(), "texts")
        score_values = ([-score.log_prob, score.correct, score.tokens] for _, score in shown_scores)
        self._cut_targets = 0
        table = np.fromiter(score_values, np.dtype((np.float64, (3,))))
        if self._cut_targets:
            self.warn(
                [
                    f"{self._cut_targets:,} of {len(table):,} targets are cut to the "
                    f"{self.scorer.decoder_limit} tokens that the decoder takes"
                ]
            )
        exact, labels, texts = self._generated(samples, form, table)

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            tokens = likelihood_metrics(*table[rows].sum(0).tolist())
            return {
                "exact_match": float(exact[rows].mean()),
                **labels.metrics(form.metrics, form.classes, rows),
                "loss": tokens["loss"],
                "accuracy": tokens["accuracy"],
            }

        values = metrics(np.arange(len(table)))
        intervals = bootstrap_samples(metrics, len(table), self.seed)
        result = Result(values, {"intervals": intervals})
        if self.selected_metrics:
            references = [sample.references for sample in samples]
            result = add_text_metrics(result, self.selected_metrics, texts, references, self.seed)
        return replace(result, metrics={**result.metrics, "samples": len(table)})

    def _generated(
        self, samples: Iterable[TextToText], form: TextForm, table: "NDArray[Any]"
    ) -> "tuple[NDArray[np.bool_], GeneratedLabels, list[str]]":
        """Return which generated texts equal targets, the labels that both are, and the texts.

        White space at the ends of a text does not count. The texts are empty unless metrics that
        the user selects need them.

        Args:
            samples: the samples.
            form: their form.
            table: the negative log-likelihood of each target, the number of its correct tokens, and
                of all its tokens, (samples, 3).
        """
        import numpy as np

        limit = self.max_new_tokens or None
        settings = self.checkpoint.model.generation
        if limit is None and "max_new_tokens" not in settings and "max_length" not in settings:
            limit = min(int(table[:, 2].max()), MAX_NEW_TOKENS)
        task = Seq2SeqGeneration(
            self.checkpoint,
            self.session,
            self.scorer.tokenizer,
            max_new_tokens=limit,
            num_beams=self.num_beams,
            tgt_lang=self.tgt_lang,
        )
        numbers = {word: number for number, word in enumerate(form.words.values())}
        texts = list[str]()

        def compare() -> Iterator[tuple[bool, int, int, float, float]]:
            records = (TextExample(s.source, location=s.location) for s in samples)
            results = self.stream(task, records, len(table), "generating")
            generated = (result["generated"].strip() for result in results)
            losses = iter(table[:, 0] / table[:, 2])

            def row(sample: TextToText, text: str) -> Prediction:
                return {
                    "location": sample.location,
                    "text": sample.source,
                    "label": sample.label,
                    "prediction": text,
                    "correct": sample.is_correct(text),
                    "loss": float(next(losses)),
                }

            observed = self.observed(samples, generated, row)
            for sample, text in zip(samples, observed, strict=True):
                target = sample.target.strip()
                target_word = numbers.get(target, NO_LABEL)
                predicted_word = numbers.get(text, NO_LABEL)
                if self.selected_metrics:
                    texts.append(text)
                is_exact = sample.is_correct(text)
                yield is_exact, target_word, predicted_word, sample.number, number_of(text)

        columns = np.fromiter(compare(), "?, i8, i8, f8, f8")
        exact, *labels = (columns[name] for name in columns.dtype.names or ())
        return exact, GeneratedLabels(*labels), texts

    def _rows(self, samples: Iterable[TextToText]) -> Iterator[ScoredRow]:
        """Yield the row of each sample; samples are tokenized in chunks and then dropped."""
        import numpy as np

        scorer = self.scorer
        number = 0
        for chunk in batched(samples, TEXTS_AT_ONCE):
            source_texts = [sample.source for sample in chunk]
            sources = scorer.tokenizer.encode(
                source_texts, max_tokens=scorer.max_tokens, offsets=False
            )
            target_texts = [sample.target for sample in chunk]
            targets = scorer.target_tokenizer.encode(
                target_texts, max_tokens=scorer.decoder_limit, offsets=False
            )
            for source, target in zip(sources, targets, strict=True):
                if target.truncated > 0:
                    self._cut_targets += 1
                labels = np.array(target.ids, np.int64)
                ids = np.concatenate([[scorer.start_id], labels[:-1]])
                yield ScoredRow(ids, (), np.arange(len(ids)), labels, number, source.ids)
                number += 1
