"""Answers that a model generates, and votes over several of them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.tasks.prompt.template import find_label

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.generation.task import GenerationTask
    from zoo.tokenizers import TextTokenizer

TEMPERATURE = 0.7  # of self-consistency, arXiv:2203.11171, section 3.1


class AnswerGenerator:
    """Generates answers to prompts."""

    # words: label -> its word, with which an answer begins; empty for answers of any kind
    # answer: regular expression whose first group, or whole match, is the answer; the last match in
    # a text counts. ``None`` for the first line.

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
        for _, added in self.task.stream(records):
            sequences = added.get("sequences") or [added]
            texts = [sequence["generated"] for sequence in sequences]
            answers = [self.find(text) for text in texts]
            if not self.vote:
                several = {"samples": answers} if len(texts) > 1 else {}
                yield {self.key: answers[0], "generated": texts[0], **several}
                continue
            votes = Counter(answer for answer in answers if answer is not None)
            best = votes.most_common(1)[0][0] if votes else None  # of equal ones the first
            first = answers.index(best)
            yield {self.key: best, "generated": texts[first], "votes": dict(votes.most_common())}

    def find(self, text: str) -> str | None:
        """Return the answer in a generated text, or ``None``."""
        if self.words:
            return find_label(self.words, text)
        if self.pattern is None:
            return text.strip().partition("\n")[0].strip() or None
        matches = list(self.pattern.finditer(text))
        answer = matches[-1].group(min(self.pattern.groups, 1)) if matches else None
        return (answer or "").strip() or None


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

    kind = Seq2SeqGeneration if "seq2seq" in checkpoint.head.tasks else Generate
    given = {name: value for name, value in settings.items() if value is not None}
    if samples is not None:
        sampling = {"do_sample": True, "num_return_sequences": samples, "seed": seed}
        given = {"temperature": TEMPERATURE, **given, **sampling}
    return kind(checkpoint, session, tokenizer, **given)
