"""Answers that a model generates, and votes over several of them."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.answers import (
    AnswerFinder,
    AnswerPattern,
    Conclusion,
    FirstLine,
    answer_key,
)
from zoo.tasks.prompt.template import find_label

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.generation.task import GenerationTask
    from zoo.tokenizers import TextTokenizer

TEMPERATURE = 0.7  # temperature of self-consistency, arXiv:2203.11171, section 3.1


class AnswerGenerator:
    """Generates answers to prompts.

    Args:
        task: the task that generates texts.
        words: label -> the word with which an answer begins; empty for answers of any kind.
        finder: finds the answer in a text.
        vote: whether the most frequent answer of several texts is the result.
        stop: text at which a generated text ends, such as what separates examples; empty for none.
    """

    def __init__(
        self,
        task: "GenerationTask",
        words: Mapping[str, str],
        finder: AnswerFinder,
        *,
        vote: bool = False,
        stop: str = "",
    ) -> None:
        self.task = task
        self.words = words
        self.finder = finder
        self.vote = vote
        self.stop = stop
        self.key = "label" if words else "answer"

    def results(self, records: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Yield the result of each prompt."""
        texts_of_prompts = []
        for _, generated in self.task.stream(records):
            sequences = generated.get("sequences") or [generated]
            texts_of_prompts.append([sequence["generated"] for sequence in sequences])
        # All texts are searched at once, since a search may take a process.
        all_answers = iter(self.find([text for texts in texts_of_prompts for text in texts]))
        for texts in texts_of_prompts:
            answers = list(itertools.islice(all_answers, len(texts)))
            if self.vote:
                yield self._vote(texts, answers)
                continue
            result: dict[str, Any] = {self.key: answers[0], "generated": texts[0]}
            if len(texts) > 1:
                result["samples"] = answers
            yield result

    def _vote(self, texts: Sequence[str], answers: Sequence[str | None]) -> dict[str, Any]:
        """Return the most frequent answer, the first of several, with its first text.

        Answers are counted together if their keys are equal; the first stands for all.
        """
        votes: dict[str, int] = {}
        first_answers: dict[str, str] = {}  # Key -> the first answer with it.
        for answer in answers:
            if answer is not None:
                key = answer if self.words else answer_key(answer)
                first_answer = first_answers.setdefault(key, answer)
                votes[first_answer] = votes.get(first_answer, 0) + 1
        # ``sorted`` and ``max`` keep the order of equal ones.
        ranking = sorted(votes, key=lambda answer: -votes[answer])
        best = ranking[0] if ranking else None
        text = texts[answers.index(best)]
        return {
            self.key: best,
            "generated": text,
            "votes": {answer: votes[answer] for answer in ranking},
        }

    def find(self, texts: Sequence[str]) -> list[str | None]:
        """Return the answer in each generated text, or ``None``; with words, their labels."""
        if self.stop:
            texts = [text.partition(self.stop)[0] for text in texts]
        answers = self.finder.find(texts)
        if not self.words:
            return answers
        labels = []
        for answer in answers:
            labels.append(None if answer is None else find_label(self.words, answer))
        return labels


def answer_finder(pattern: str | None, *, has_rationale: bool) -> AnswerFinder:
    """Return what finds answers: a pattern, or else the conclusion of a rationale, or a line."""
    if pattern is not None:
        return AnswerPattern(pattern)
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
