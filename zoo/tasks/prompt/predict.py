"""Prompts: label words scored by likelihood, or generated answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns
from zoo.errors import UsageError
from zoo.inference.processing.records import RecordKeys, TextExample
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.task import EncodedExample, Task
from zoo.overrides import override
from zoo.tasks.prompt import CONTENT_FREE, SCORINGS, SEPARATOR
from zoo.tasks.prompt.answers import AnswerPattern
from zoo.tasks.prompt.choose import LabelChooser
from zoo.tasks.prompt.fit import FittedTexts, PromptFitter
from zoo.tasks.prompt.generate import (
    AnswerExtraction,
    AnswerGenerator,
    answer_finder,
    extraction_task,
    generation_task,
)
from zoo.tasks.prompt.scoring import WORD_SCORERS, word_scorer
from zoo.tasks.prompt.shots import Shot, demonstrations, read_shots, select_shots
from zoo.tasks.prompt.template import PAIR, RATIONALE, PromptTemplate, read_label_words

if TYPE_CHECKING:
    from zoo.inference.generation.task import GenerationTask

GENERATION = ("max_new_tokens", "temperature", "top_k")  # settings of generation


class Prompting(Task):
    """Labels or answers by a prompt.

    With a likelihood as ``scoring``, results have the keys ``label``, ``score`` (its probability),
    ``scores`` of all labels and ``log_probs`` of their words. With ``generate``, they have
    ``generated`` and ``answer``, or ``label`` with label words; with several samples also
    ``samples``, the answer of each, or after a vote ``votes``, how often each was given. With an
    ``answer_prompt``, ``generated`` is the chain of thought, and ``conclusion`` what the model
    generates after the second prompt, in which the answer is found.
    """

    name: ClassVar[str] = "prompt"
    equivalents: ClassVar[tuple[str, ...]] = tuple(WORD_SCORERS)
    output_keys: ClassVar[tuple[str, ...]] = (
        "label",
        "score",
        "scores",
        "log_probs",
        "answer",
        "generated",
        "conclusion",
        "samples",
        "votes",
    )
    pairs: ClassVar[bool] = True
    keys: ClassVar[RecordKeys] = RecordKeys()
    chunk_size = 256

    @classmethod
    @override
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        label = options.pop("label", None) or Columns.label
        options["shot_columns"] = Columns(text or Columns.text, label, pair)
        options["rationale"] = options.get("rationale") or RATIONALE
        return super().columns(options, text, pair)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        options = dict(options)
        count = options.pop("shots")
        source = options.pop("shots_from")
        columns: Columns = options.pop("shot_columns")
        rationale: str = options.pop("rationale")
        if options["template"] is None:
            raise UsageError("there is no template", "give --template FILE|TEXT")
        template = PromptTemplate.read(options["template"])
        if options["label_words"]:
            options["label_words"] = read_label_words(options["label_words"])
        options["examples"] = chosen_shots(
            count,
            source,
            columns,
            options["seed"],
            rationale=rationale if RATIONALE in template.slots else None,
            answers=options["scoring"] == "generate" and not options["label_words"],
        )
        # The options are checked here, because the weights are slow to load.
        require_options(template, options)
        return records, {**options, "template": template.source}

    def __init__(
        self,
        *args: Any,
        template: str,
        label_words: str | Mapping[str, str] | None = None,
        scoring: str = "likelihood",
        examples: Sequence[Shot | tuple[str, str] | tuple[str, str, str]] = (),
        separator: str | None = None,
        calibrate: bool = False,
        content_free: Sequence[str] = (),
        samples: int | None = None,
        vote: bool | None = None,
        answer: str | None = None,
        answer_prompt: str | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        settings = {key: options.pop(key, None) for key in GENERATION}
        self.template = PromptTemplate.parse(template)
        if isinstance(label_words, str):
            label_words = read_label_words(label_words)
        self.words: Mapping[str, str] = label_words or {}
        require_options(
            self.template,
            {
                "scoring": scoring,
                "label_words": self.words,
                "examples": examples,
                "calibrate": calibrate,
                "content_free": content_free,
                "samples": samples,
                "vote": vote,
                "answer": answer,
                "answer_prompt": answer_prompt,
                **settings,
            },
        )
        shots = _shots(examples)
        super().__init__(*args, **options)
        if separator is None:
            separator = SEPARATOR
        examples_text = demonstrations(self.template, shots, self.words, separator)
        self.generator = None
        self.chooser = None
        if scoring == "generate":
            task = generation_task(
                self.checkpoint,
                self.session,
                self.tokenizer,
                settings,
                samples=samples,
                seed=seed,
            )
            # A model may go on with a further example, whose answer is not the text's.
            is_separated = examples_text.count(separator) == len(shots)
            stop = separator if shots and is_separated else ""
            self.generator = self._answer_generator(task, answer, answer_prompt, vote, stop)
            limits = [self.max_tokens, self.generator.max_prompt_tokens()]
            self.max_tokens = min((limit for limit in limits if limit is not None), default=None)
            prompt_words = [""]
        else:
            is_normalized = scoring == "normalized"
            self.chooser = self._label_chooser(is_normalized, options.get("max_batch_tokens"))
            prompt_words = list(self.words.values())
        self.fitter = PromptFitter(
            self.template, examples_text, prompt_words, self.tokenizer, self.max_tokens
        )
        if calibrate:
            self._calibrate(content_free or (CONTENT_FREE,))

    def _answer_generator(
        self,
        task: "GenerationTask",
        pattern: str | None,
        answer_prompt: str | None,
        vote: bool | None,
        stop: str,
    ) -> AnswerGenerator:
        """Return what generates answers, by one prompt or by two."""
        extraction = None
        if answer_prompt is not None:
            extraction = AnswerExtraction(
                extraction_task(self.checkpoint, self.session, self.tokenizer, task), answer_prompt
            )
        finder = answer_finder(
            pattern,
            has_rationale=RATIONALE in self.template.slots,
            is_extracted=extraction is not None,
        )
        return AnswerGenerator(
            task, self.words, finder, vote=bool(vote), stop=stop, extraction=extraction
        )

    def _label_chooser(self, is_normalized: bool, max_batch_tokens: int | None) -> LabelChooser:
        """Return what scores the words of the labels."""
        scorer_class = word_scorer(self.checkpoint)
        scorer = scorer_class(self.checkpoint, self.session, self.tokenizer, self.template)
        if max_batch_tokens:
            scorer.scorer.max_batch_tokens = max_batch_tokens
        scorer.scorer.batch_size = self.batch_size
        return LabelChooser(scorer, self.words, normalized=is_normalized)

    def _calibrate(self, texts: Sequence[str]) -> None:
        """Calibrate by texts without content."""
        assert self.chooser is not None, "calibration is for likelihoods"
        has_pair = PAIR in self.template.slots
        records = []
        for text in texts:
            pair = text if has_pair else None
            records.append(TextExample(text, pair, location=f"--content-free {text!r}"))
        fitted_texts = self.fitter.fit(records)
        self.chooser.calibrate([self.fitter.prompts(fitted) for fitted in fitted_texts])

    @override
    def validate(self, record: TextExample) -> None:
        super().validate(record)
        if (record.pair is not None) != (PAIR in self.template.slots):
            if record.pair is None:
                raise UsageError(
                    f"{record.location} has no second text for the slot {{text_pair}}",
                    "name its column with --pair, or leave the slot out",
                )
            raise UsageError(
                f"{record.location} is a pair, and the template has no slot {{text_pair}}",
                "give the template a slot for each text",
            )

    @override
    def tokenize(self, records: list[TextExample], first_row: int) -> list[EncodedExample]:
        items = list[EncodedExample]()
        for record, texts in zip(records, self.fitter.fit(records), strict=True):
            items.append(EncodedExample(record, texts, first_row + len(items)))
        return items

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        if not items:
            return
        texts = [item.encoded for item in items if isinstance(item.encoded, FittedTexts)]
        if self.chooser is not None:
            prompts = [self.fitter.prompts(text) for text in texts]
            choices = self.chooser.results(
                prompts, on_batch=lambda part: self.report_progress(int(part * len(items)))
            )
            results = iter(choices)
        else:
            assert self.generator is not None, "one of both is made"
            records = []
            for text, item in zip(texts, items, strict=True):
                prompt = self.fitter.fill(text.text, text.pair, "")
                question = prompt.before(self.template.first_generated_slot).rstrip(" ")
                records.append(TextExample(question, location=item.record.location))
            self.generator.task.on_progress = self._report_generated()
            results = self.generator.results(records)
        yield from zip(items, results, strict=True)

    def _report_generated(self) -> Callable[[int], None]:
        """Return a function that reports how many more answers of a chunk are generated."""
        count = 0

        def report(added: int) -> None:
            nonlocal count
            count += added
            self.report_progress(count)

        return report


def _shots(examples: Sequence[Shot | tuple[str, str] | tuple[str, str, str]]) -> list[Shot]:
    """Return examples of Python's interface, which may be tuples, as shots."""
    shots = []
    for number, example in enumerate(examples, 1):
        if not isinstance(example, Shot):
            text, label, *rationales = example
            rationale = rationales[0] if rationales else None
            example = Shot(text, None, label, f"example {number}", rationale)
        shots.append(example)
    return shots


def chosen_shots(
    count: int | None,
    source: str | None,
    columns: Columns,
    seed: int,
    *,
    rationale: str | None,
    answers: bool,
) -> list[Shot]:
    """Return the examples of a table; see ``read_shots``."""
    if count is None and source is None:
        return []
    if count is None or source is None:
        flag = "--shots-from"
        needed_flag = "--shots N"
        if count:
            flag = "--shots"
            needed_flag = "--shots-from FILE"
        raise UsageError(f"{flag} needs {needed_flag}", f"give {needed_flag}, or neither")
    rows = read_shots(source, columns, rationale=rationale, answers=answers)
    return select_shots(rows, count, seed, source)


def require_options(template: PromptTemplate, options: Mapping[str, Any]) -> None:
    """Check that the options of a prompt belong together."""
    scoring = options["scoring"]
    set_options = {name for name, value in options.items() if value}
    if scoring not in SCORINGS:
        raise UsageError(f"no scoring is called {scoring!r}", f"it is {', '.join(SCORINGS)}")
    if scoring != "generate" or "examples" in set_options:
        template.require_label()
    if scoring == "generate":
        if "calibrate" in set_options:
            raise UsageError("--calibrate is for the likelihood of label words", "leave it out")
        if "answer" in set_options:
            AnswerPattern(options["answer"])
        if "answer_prompt" in set_options and template.first_generated_slot != RATIONALE:
            raise UsageError(
                "--answer-prompt is for a chain of thought, and the template "
                f"{template.source!r:.200} generates none",
                "end it with the slot {rationale}",
            )
    else:
        template.require_no_rationale()
        if "label_words" not in set_options:
            raise UsageError(
                "there are no words to choose from", "give --label-words [LABEL=]WORD,..."
            )
        for name in ("samples", "answer", "answer_prompt", *GENERATION):
            if name in set_options:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} is for --scoring generate", f"leave {flag} out")
    if "vote" in set_options and "samples" not in set_options:
        raise UsageError("--vote needs --samples N", "give the number of texts to sample")
    if "content_free" in set_options and "calibrate" not in set_options:
        raise UsageError("--content-free is for --calibrate", "give --calibrate")
