"""Evaluation of generated texts on tables of sources and targets."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.data.readers.text_forms import TextForm, form_of, glue_tables
from zoo.data.readers.text_to_text import TextToText, read_text_to_text, split_name
from zoo.evaluation.base import Evaluation, Result
from zoo.evaluation.generated_labels import NO_LABEL, GeneratedLabels, number_of
from zoo.evaluation.metrics import bootstrap_samples
from zoo.inference.likelihood import Seq2SeqLikelihood
from zoo.inference.processing.records import TextExample
from zoo.inference.scoring import ScoredRow, TextScore
from zoo.inference.tasks.checks import require_head
from zoo.inference.tasks.seq2seq import Seq2Seq as Generation
from zoo.io.limits import MAX_NEW_TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tokenizers import Encoded


class Seq2Seq(Evaluation):
    """Exact match of generated texts, and the loss of the targets; of GLUE, also its metrics.

    ``exact_match`` is the fraction of samples whose generated text equals the target, white space
    at the ends aside; ``loss`` the mean negative log-likelihood of the targets' tokens in nats, the
    end-of-sequence token included, and ``accuracy`` that of single tokens after those of the target
    before them. Intervals are over samples.

    Args:
        *args: see ``Evaluation``.
        text: column of the source.
        label: column of the target.
        pair: column of the second text of a source, or ``None``.
        prefix: text before each source, also by name of the data set; see ``form_of``.
        pair_prefix: text before the second text of a source, also by name of the data set.
        max_new_tokens: largest number of tokens to generate; by default those of the longest
            target.
        num_beams: number of beams.
        seed: seed of the intervals.
        **options: see ``Evaluation``.
    """

    name: ClassVar[str] = "seq2seq"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        label: str = "label",
        pair: str | None = None,
        prefix: str | dict[str, str] | None = None,
        pair_prefix: str | dict[str, str] | None = None,
        max_new_tokens: int | None = None,
        num_beams: int = 1,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns, self.seed = Columns(text, label, pair), seed
        self.prefix, self.pair_prefix = prefix, pair_prefix
        self.max_new_tokens, self.num_beams = max_new_tokens, num_beams
        self.scorer = Seq2SeqLikelihood(self.checkpoint, self.session)

    @classmethod
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        """See ``Evaluation``."""
        require_head(checkpoint, Generation.name)

    @classmethod
    def split_names(
        cls, data: Sequence[Path], options: Mapping[str, Any]
    ) -> tuple[list[Path], dict[str, Any]]:
        """See ``Evaluation``: the files of ``glue/NAME=DIR``, and texts before sources."""
        named = [split_name(path) for path in glue_tables([str(path) for path in data], "dev")]
        columns = Columns(options.get("text", "text"), pair=options.get("pair"))
        prefixes = {name: form_of(name, columns).prefix for name, _ in named if name}
        return [Path(file) for _, file in named], {"prefix": prefixes} if prefixes else {}

    def form(self, name: str) -> TextForm:
        """Return the form of a data set, which is that of fine-tuning."""
        return form_of(name, self.columns, self.prefix, self.pair_prefix)

    def evaluate(self, files: Sequence[Path]) -> Result:
        """See ``Evaluation``."""
        import numpy as np

        paths = glue_tables([str(file) for file in files], "dev")
        samples = read_text_to_text(paths, self.form)[: self.limit]
        targets = self.scorer.tokenizer.encode([s.target for s in samples], max_tokens=None)
        scores = self._scores(samples, targets)
        texts = self._generated(samples, max(len(target.ids) for target in targets))
        exact = np.array([t == s.target.strip() for t, s in zip(texts, samples, strict=True)])
        names = {sample.dataset for sample in samples}
        form = self.form(names.pop()) if len(names) == 1 else TextForm(self.columns)
        labels = generated_labels(form, samples, texts)
        table = np.array([(-score.log_prob, score.correct, score.tokens) for score in scores])

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            loss, correct, tokens = table[rows].sum(0).tolist()
            return {
                "exact_match": float(exact[rows].mean()),
                **labels.metrics(form, rows),
                "loss": loss / tokens,
                "accuracy": correct / tokens,
            }

        values = metrics(np.arange(len(samples)))
        intervals = bootstrap_samples(metrics, len(samples), self.seed)
        return Result({**values, "samples": len(samples)}, {"intervals": intervals})

    def _generated(self, samples: Sequence[TextToText], longest: int) -> list[str]:
        """Return the text that is generated for each sample, without white space at its ends."""
        task = Generation(
            self.checkpoint,
            self.session,
            self.scorer.tokenizer,
            max_new_tokens=self.max_new_tokens or min(longest, MAX_NEW_TOKENS),
            num_beams=self.num_beams,
        )
        records = (TextExample(s.source, location=s.location) for s in samples)
        return [added["generated"].strip() for _, added in task.stream(records)]

    def _scores(
        self, samples: Sequence[TextToText], targets: "Sequence[Encoded]"
    ) -> list[TextScore]:
        sources = self.scorer.tokenizer.encode(
            [s.source for s in samples], max_tokens=self.scorer.max_tokens, offsets=False
        )
        return self.scorer.score_rows(self._rows(sources, targets), len(samples))

    def _rows(
        self, sources: "Sequence[Encoded]", targets: "Sequence[Encoded]"
    ) -> Iterator[ScoredRow]:
        import numpy as np

        config: Any = self.checkpoint.config
        for text, (source, target) in enumerate(zip(sources, targets, strict=True)):
            labels = np.array(target.ids, np.int64)
            ids = np.concatenate([[config.decoder_start_token_id], labels[:-1]])
            yield ScoredRow(ids, (), np.arange(len(ids)), labels, text, source.ids)


def generated_labels(
    form: TextForm, samples: Sequence[TextToText], texts: Sequence[str]
) -> GeneratedLabels:
    """Return the labels of samples of one data set, and those that texts are."""
    import numpy as np

    numbers = {word: number for number, word in enumerate(form.words.values())}
    words, predicted = (
        np.array([numbers.get(text, NO_LABEL) for text in column])
        for column in ([sample.target.strip() for sample in samples], texts)
    )
    actual = np.array([sample.number for sample in samples])
    return GeneratedLabels(words, predicted, actual, np.array(list(map(number_of, texts))))
