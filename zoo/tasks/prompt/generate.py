"""Answers that a model generates, and votes over several of them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.answers import (
    AnswerFinder,
    AnswerPattern,
    Conclusion,
    FirstLine,
    FirstSentence,
    answer_key,
)
from zoo.tasks.prompt.fit import PromptFitter
from zoo.tasks.prompt.template import TEXT, PromptTemplate, find_label

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.generation.task import GenerationTask
    from zoo.tokenizers import TextTokenizer

# Tokens after the second prompt, at most: ``max_length_direct`` of the code of arXiv:2205.11916.
ANSWER_TOKENS = 32
TEMPERATURE = 0.7  # temperature of self-consistency, arXiv:2203.11171, section 3.1


class AnswerExtraction:
    """The second prompt after a chain of thought, which asks for the answer.

    Kojima et al. 2022 (arXiv:2205.11916, section 2.1): it has the first prompt, the generated chain
    of thought, and a text such as "Therefore, the answer is". As in the code that they released, a
    space precedes this text; not if it begins with white space itself. A chain of thought that
    leaves no room for the answer is cut at its end.

    Args:
        task: the task that generates the answer, one for each prompt.
        text: the text after the chain of thought.
    """

    def __init__(self, task: "GenerationTask", text: str) -> None:
        self.task = task
        joint = "" if text[:1].isspace() else " "
        self.template = PromptTemplate(text, (("", TEXT), (joint + text, None)))

    def generate(self, prompts: Iterable[tuple[TextExample, str]]) -> list[str]:
        """Return what the model generates after each prompt and chain of thought."""
        records = []
        for record, rationale in prompts:
            prompt = record.text
            # The continuation of a decoder begins with the white space after its prompt.
            if self.task.side == "right" and not rationale[:1].isspace():
                prompt += " "
            fitter = PromptFitter(
                self.template, prompt, [""], self.task.tokenizer, self.task.max_tokens
            )
            (fitted_text,) = fitter.fit([TextExample(rationale, location=record.location)])
            second_prompt = fitter.fill(fitted_text.text, None, "").text.rstrip(" ")
            records.append(TextExample(second_prompt, location=record.location))
        return [generated["generated"] for _, generated in self.task.stream(records)]

    def token_count(self) -> int:
        """Return the number of tokens of the text."""
        literals = "".join(literal for literal, _ in self.template.parts)
        (encoded,) = self.task.tokenizer.encode([literals], max_tokens=None)
        return encoded.n


class AnswerGenerator:
    """Generates answers to prompts.

    Args:
        task: the task that generates texts.
        words: label -> the word with which an answer begins; empty for answers of any kind.
        finder: finds the answer in a text.
        vote: whether the most frequent answer of several texts is the result.
        stop: text at which a generated text ends, such as what separates examples; empty for none.
        extraction: the second prompt, whose continuation has the answer; ``None`` if the first
            one's has it.
    """

    def __init__(
        self,
        task: "GenerationTask",
        words: Mapping[str, str],
        finder: AnswerFinder,
        *,
        vote: bool = False,
        stop: str = "",
        extraction: AnswerExtraction | None = None,
    ) -> None:
        self.task = task
        self.words = words
        self.finder = finder
        self.vote = vote
        self.stop = stop
        self.extraction = extraction
        self.key = "label" if words else "answer"

    def max_prompt_tokens(self) -> int | None:
        """Return how long prompts may be; with a second prompt, both have room for their texts."""
        if self.extraction is None or self.extraction.task.max_tokens is None:
            return self.task.max_tokens
        added = self.task.settings.longest + self.extraction.token_count()
        room = self.extraction.task.max_tokens - added
        if room < 1:
            raise UsageError(
                "the chain of thought and the answer leave no room for a prompt",
                "lower --max-new-tokens, or shorten --answer-prompt",
            )
        return room if self.task.max_tokens is None else min(room, self.task.max_tokens)

    def results(self, records: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Yield the result of each prompt."""
        prompts = list(records)
        texts_of_prompts = []
        for _, generated in self.task.stream(prompts):
            sequences = generated.get("sequences") or [generated]
            texts_of_prompts.append([sequence["generated"] for sequence in sequences])
        conclusions_of_prompts = self._conclusions(prompts, texts_of_prompts)
        # All texts are searched at once, since a search may take a process.
        all_answers = iter(self.find([text for texts in conclusions_of_prompts for text in texts]))
        for texts, conclusions in zip(texts_of_prompts, conclusions_of_prompts, strict=True):
            answers = list(itertools.islice(all_answers, len(texts)))
            result: dict[str, Any]
            if self.vote:
                chosen_answer, votes = self._vote(answers)
                place = answers.index(chosen_answer)
                result = {self.key: chosen_answer, "generated": texts[place], "votes": votes}
            else:
                place = 0
                result = {self.key: answers[0], "generated": texts[0]}
                if len(texts) > 1:
                    result["samples"] = answers
            if self.extraction is not None:
                result["conclusion"] = conclusions[place]
            yield result

    def _conclusions(
        self, prompts: Sequence[TextExample], texts_of_prompts: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[str]]:
        """Return the texts that have the answers: those of the second prompts, if there are."""
        if self.extraction is None:
            return texts_of_prompts
        second_prompts = []
        for prompt, texts in zip(prompts, texts_of_prompts, strict=True):
            second_prompts += [(prompt, self._until_stop(text)) for text in texts]
        conclusions = iter(self.extraction.generate(second_prompts))
        return [list(itertools.islice(conclusions, len(texts))) for texts in texts_of_prompts]

    def _until_stop(self, text: str) -> str:
        """Return the part of a generated text before a further example."""
        return text.partition(self.stop)[0] if self.stop else text

    def _vote(self, answers: Sequence[str | None]) -> tuple[str | None, dict[str, int]]:
        """Return the most frequent answer, the first of several, and how often each was given.

        Answers are counted together if their keys are equal; the first stands for all.
        """
        votes: dict[str, int] = {}
        first_answers: dict[str, str] = {}  # Key -> the first answer with it.
        for answer in answers:
            if answer is not None:
                key = answer if self.words else answer_key(answer)
                first_answer = first_answers.setdefault(key, answer)
                votes[first_answer] = votes.get(first_answer, 0) + 1
        # ``sorted`` keeps the order of equal ones.
        ranking = sorted(votes, key=lambda answer: -votes[answer])
        return (ranking[0] if ranking else None), {answer: votes[answer] for answer in ranking}

    def find(self, texts: Sequence[str]) -> list[str | None]:
        """Return the answer in each generated text, or ``None``; with words, their labels."""
        answers = self.finder.find([self._until_stop(text) for text in texts])
        if not self.words:
            return answers
        labels = []
        for answer in answers:
            labels.append(None if answer is None else find_label(self.words, answer))
        return labels


def answer_finder(
    pattern: str | None, *, has_rationale: bool, is_extracted: bool = False
) -> AnswerFinder:
    """Return what finds answers in generated texts.

    Args:
        pattern: a regular expression; ``None`` for the default of the template.
        has_rationale: whether the template has a chain of thought.
        is_extracted: whether the texts follow a prompt that asks for the answer.
    """
    if pattern is not None:
        return AnswerPattern(pattern)
    if is_extracted:
        return FirstSentence()
    return Conclusion() if has_rationale else FirstLine()


def generation_task(
    checkpoint: "Checkpoint",
    session: "Session",
    tokenizer: "TextTokenizer",
    settings: Mapping[str, Any],
    *,
    samples: int | None,
    seed: int,
) -> "GenerationTask":
    """Return the task that generates answers; without ``samples``, as many as the settings say."""
    from zoo.tasks.causal_lm.predict import Generate
    from zoo.tasks.seq2seq.predict import Seq2SeqGeneration

    task_class = Seq2SeqGeneration if "seq2seq" in checkpoint.head.tasks else Generate
    options = {name: value for name, value in settings.items() if value is not None}
    if samples is not None:
        options.setdefault("temperature", TEMPERATURE)
        options.update(do_sample=True, num_return_sequences=samples, seed=seed)
    return task_class(checkpoint, session, tokenizer, **options)


def extraction_task(
    checkpoint: "Checkpoint",
    session: "Session",
    tokenizer: "TextTokenizer",
    rationale_task: "GenerationTask",
) -> "GenerationTask":
    """Return the task that generates an answer after a chain of thought: a short one, greedily."""
    longest = min(ANSWER_TOKENS, rationale_task.settings.longest)
    settings = {"max_new_tokens": longest, "do_sample": False, "num_return_sequences": 1}
    return generation_task(checkpoint, session, tokenizer, settings, samples=None, seed=0)
