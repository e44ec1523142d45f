"""Answers that a model generates, and votes over several of them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
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
        answer: regular expression whose first group, or full match, is the answer; the last match
            in a text counts. ``None`` for the first line.
        vote: whether the most frequent answer of several texts is the result.
    """

    def __init__(
        self,
        task: "GenerationTask",
        words: Mapping[str, str],
        *,
        answer: str | None = None,
        vote: bool = False,
    ) -> None:
        self.task = task
        self.words = words
        self.vote = vote
        self.pattern: re.Pattern[str] | None = None
        if answer is not None:
            try:
                self.pattern = re.compile(answer, re.DOTALL)
            except re.error as error:
                raise UsageError(
                    f"--answer {answer!r} is not a regular expression: {error}", "correct it"
                ) from None
        self.key = "label" if words else "answer"

    def results(self, records: Iterable[TextExample]) -> Iterator[dict[str, Any]]:
        """Yield the result of each prompt."""
        for _, generated in self.task.stream(records):
            sequences = generated.get("sequences") or [generated]
            texts = [sequence["generated"] for sequence in sequences]
            answers = [self.find(text) for text in texts]
            if self.vote:
                yield self._vote(texts, answers)
                continue
            result: dict[str, Any] = {self.key: answers[0], "generated": texts[0]}
            if len(texts) > 1:
                result["samples"] = answers
            yield result

    def _vote(self, texts: Sequence[str], answers: Sequence[str | None]) -> dict[str, Any]:
        """Return the most frequent answer, the first of several, with its first text."""
        votes = Counter(answer for answer in answers if answer is not None)
        ranking = votes.most_common()
        best = None
        if ranking:
            best, _ = ranking[0]
        text = texts[answers.index(best)]
        return {self.key: best, "generated": text, "votes": dict(ranking)}

    def find(self, text: str) -> str | None:
        """Return the answer in a generated text, or ``None``."""
        if self.words:
            return find_label(self.words, text)
        if self.pattern is None:
            return text.strip().partition("\n")[0].strip() or None
        matches = list(self.pattern.finditer(text))
        if not matches:
            return None
        answer = matches[-1].group(min(self.pattern.groups, 1))
        # A group that takes no part in a match is ``None``.
        if answer is None:
            return None
        return answer.strip() or None


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
