"""Accuracy of prompts: templates, label words, examples, their labels and orders."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from zoo.data.readers.labelled import Sample, label_texts, sort_labels
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.overrides import override
from zoo.tasks.prompt import SCORINGS
from zoo.tasks.prompt.answers import answer_key
from zoo.tasks.prompt.demonstrations import Demonstrations
from zoo.tasks.prompt.predict import Prompting
from zoo.tasks.prompt.shot_labels import ShotLabels, read_shot_labels
from zoo.tasks.prompt.shots import Shot, draw_orders, read_orders, read_shots, select_shots
from zoo.tasks.prompt.template import RATIONALE, PromptTemplate, read_label_words
from zoo.tasks.prompt.template_file import NamedTemplate, read_named_templates
from zoo.tasks.prompt.varied import MAX_SETTINGS, Factor, VariedEvaluation, several

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference.task import Task


class PromptEvaluation(VariedEvaluation):
    """Accuracy of the labels of a prompt, or of generated answers; see ``Prompting``.

    Templates, label words, examples, their labels and their order are crossed. Zhao et al. 2021
    (arXiv:2102.09690, section 3) and Lu et al. 2022 (arXiv:2104.08786) show how much each matters.

    If a model generates, there are no label words, and a template has a rationale or ``answer`` is
    given, then labels are answers of any kind: a generated answer is right if it is the same as
    one of them, see ``answer_key``.
    """

    name: ClassVar[str] = "prompt"

    def __init__(
        self,
        *args: Any,
        template: str | Sequence[str] = (),
        templates: str | Path | None = None,
        label_words: str | Sequence[str] = (),
        shots: int | None = None,
        shots_from: str | None = None,
        seeds: int = 1,
        orders: str | int = 1,
        shot_labels: str | Sequence[str] = (),
        wrong_labels: float | Sequence[float] = (),
        rationale: str | None = None,
        max_seq_len: int | None = None,
        scoring: str | None = None,
        separator: str | None = None,
        calibrate: bool = False,
        content_free: Sequence[str] = (),
        samples: int | None = None,
        answer: str | None = None,
        answer_prompt: str | None = None,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        # What each prompt gets as it is.
        self.prompt_options: dict[str, Any] = {
            "scoring": scoring or SCORINGS[0],
            "separator": separator,
            "calibrate": calibrate,
            "content_free": content_free,
            "samples": samples,
            "vote": samples is not None,
            "answer": answer,
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
        }
        self.is_sampled = samples is not None
        self.max_tokens = max_seq_len
        self.named_templates = _named_templates(template, templates)
        self.templates = [named.template.source for named in self.named_templates]
        self.generates_rationale = [
            named.template.first_generated_slot == RATIONALE for named in self.named_templates
        ]
        self.words, self.template_words = _label_words(
            several(label_words), self.named_templates, templates
        )
        has_rationale = any(RATIONALE in named.template.slots for named in self.named_templates)
        self.rationale = (rationale or RATIONALE) if has_rationale else None
        if answer_prompt is not None:
            _require_rationale(self.generates_rationale)
        self.answer_prompt = answer_prompt
        # Whether labels are answers of any kind, and not classes.
        self.has_answers = (
            scoring == "generate"
            and not self.label_words()
            and (has_rationale or answer is not None)
        )
        shot_label_sources = read_shot_labels(several(shot_labels), several(wrong_labels), shots)
        if self.has_answers:
            _require_no_drawn_labels(shot_label_sources)
        selections, selection_orders = self._select(shots, shots_from, seeds, read_orders(orders))
        self.demonstrations = Demonstrations(
            selections, selection_orders, shot_label_sources, self.seed
        )
        self._shot_texts = self.demonstrations.texts()
        # Locations of samples whose text is also an example: a set that keeps its order.
        self._shown_samples: dict[str, None] = {}

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        Prompting.require_head(checkpoint)

    def _select(
        self,
        shots: int | None,
        source: str | None,
        seeds: int,
        number_of_orders: int | Literal["all"],
    ) -> tuple[list[list[Shot]], list[list[tuple[int, ...]]]]:
        """Return the selections of examples, and the orders of each."""
        if shots is None or source is None:
            if shots is not None or source is not None:
                raise UsageError("--shots and --shots-from belong together", "give both or neither")
            if number_of_orders != 1 or (seeds > 1 and not self.is_sampled):
                raise UsageError("--seeds and --orders are for examples", "give --shots N")
            return [[]] * seeds, [[()]] * seeds
        rows = read_shots(source, self.columns, rationale=self.rationale, answers=self.has_answers)
        selections = []
        selection_orders = []
        for number in range(seeds):
            seed = self.seed + number
            selections.append(select_shots(rows, shots, seed, source))
            selection_orders.append(draw_orders(shots, number_of_orders, seed, MAX_SETTINGS))
        return selections, selection_orders

    @override
    def label_words(self) -> Sequence[Mapping[str, str]]:
        return self.template_words or self.words

    def words_of(self, template: int, words: int) -> Mapping[str, str]:
        """Return label -> word for a template, and the number of a choice of words."""
        if self.has_answers:
            return {}
        if self.template_words:
            return self.template_words[template]
        return self.words[words]

    @override
    def factors(self, labels: Sequence[str]) -> list[Factor]:
        self._warn_of_shown_samples()
        if self.has_answers or self.template_words:
            words = Factor("label words", ("",))
        else:
            words = self.word_factor(self._require_choice(labels))
        names = tuple(named.name for named in self.named_templates)
        return [Factor("template", names), words, *self.demonstrations.factors()]

    def _require_choice(self, labels: Sequence[str]) -> list[str]:
        """Return the labels of the data and of the examples, of which a likelihood needs two."""
        all_labels = list(labels)
        for selection in self.demonstrations.selections:
            all_labels += [shot.label for shot in selection if shot.label not in labels]
        if len(all_labels) > len(labels):
            all_labels = list(sort_labels(all_labels))
        is_generated = self.prompt_options["scoring"] == "generate"
        if len(all_labels) == 1 and not self.words and not is_generated:
            raise UsageError(
                f"all samples have the label {labels[0]!r}, and a choice needs two labels",
                "name all labels with --label-words",
            )
        return all_labels

    def _warn_of_shown_samples(self) -> None:
        """Warn of samples that are also examples, which show their labels."""
        if self._shown_samples:
            location = next(iter(self._shown_samples))
            count = len(self._shown_samples)
            texts = "1 text is both an example and a sample"
            if count > 1:
                texts = f"{count:,} texts are both examples and samples"
            self.warn([f"{texts}, such as {location}: its label can be copied from the example"])

    @override
    def prompt_key(self, levels: Sequence[int]) -> Hashable:
        template, words, labels, selection, order = levels
        label_words = self.words_of(template, words)
        shots = self.demonstrations.examples(label_words, labels, selection, order)
        examples = tuple((shot.text, shot.pair, shot.label, shot.rationale) for shot in shots)
        return template, words, examples, selection if self.is_sampled else 0

    @override
    def task_of(self, levels: Sequence[int]) -> "Task":
        template, words, labels, selection, order = levels
        label_words = self.words_of(template, words)
        return Prompting(
            self.checkpoint,
            self.session,
            template=self.templates[template],
            label_words=label_words,
            examples=self.demonstrations.examples(label_words, labels, selection, order),
            seed=self.seed + selection,
            max_tokens=self.max_tokens,
            # Templates that generate no chain of thought are answered by one prompt.
            answer_prompt=self.answer_prompt if self.generates_rationale[template] else None,
            **self.prompt_options,
        )

    @override
    def check_sample(self, sample: Sample) -> Sample:
        if (sample.text, sample.pair) in self._shot_texts:
            self._shown_samples[sample.location] = None
        if self.has_answers:
            self.targets_of(sample)
            return sample
        return super().check_sample(sample)

    @override
    def targets_of(self, sample: Sample) -> tuple[str, ...]:
        if not self.has_answers:
            return super().targets_of(sample)
        return label_texts(sample.label, sample.location, "answer")

    @override
    def is_correct(self, prediction: str | None, targets: Sequence[str]) -> bool:
        if not self.has_answers:
            return super().is_correct(prediction, targets)
        key = answer_key(prediction or "")
        return bool(key) and key in [answer_key(target) for target in targets]

    @override
    def reviewed(self, sample: Sample) -> Reviewed:
        if not self.has_answers:
            return super().reviewed(sample)
        return Reviewed(sample.texts, self.targets_of(sample))

    @override
    def prediction_of(self, added: Mapping[str, Any]) -> str | None:
        answer: str | None = added["answer" if self.has_answers else "label"]
        return answer


def _named_templates(
    template: str | Sequence[str], templates: str | Path | None
) -> list[NamedTemplate]:
    """Return the templates that options name, or those of a file."""
    if templates is not None:
        if template:
            raise UsageError("--template and --templates exclude each other", "leave one out")
        return read_named_templates(Path(templates))
    named_templates = []
    for value in several(template):
        parsed = PromptTemplate.read(value)
        named_templates.append(NamedTemplate(parsed.source, parsed, None))
    if not named_templates:
        raise UsageError("there is no template", "give --template FILE|TEXT, or --templates FILE")
    return named_templates


def _label_words(
    choices: Sequence[str], named_templates: Sequence[NamedTemplate], file: str | Path | None
) -> tuple[list[dict[str, str]], list[Mapping[str, str]]]:
    """Return the choices of label words, or the words of each template of a file that has them."""
    words = [read_label_words(value) for value in choices]
    template_words: list[Mapping[str, str]] = []
    for named in named_templates:
        if named.words is not None:
            template_words.append(named.words)
    if words and template_words:
        raise UsageError(
            f"{file} has label words, and --label-words too", "leave out --label-words"
        )
    return words, template_words


def _require_rationale(generates_rationale: Sequence[bool]) -> None:
    """Check that there is a chain of thought, which a second prompt could follow."""
    if not any(generates_rationale):
        raise UsageError(
            "--answer-prompt is for a chain of thought, which no template generates",
            "give a template with the slot {rationale}",
        )


def _require_no_drawn_labels(sources: Sequence[ShotLabels]) -> None:
    """Check that labels are not drawn from those of a task, which answers do not have."""
    for labels in sources:
        if labels.source in ("random", "wrong"):
            raise UsageError(
                f"answers of any kind have no set from which {labels.name} labels are drawn",
                "give --label-words, or --shot-labels permuted",
            )
