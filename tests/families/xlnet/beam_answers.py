"""Answers of a beam search, computed with transformers' own tokenizer and model.

Windows and masks are those of ``run_qa_beam_search.py`` of transformers' examples; the search for
spans is that of ``utils_qa.py``, but for the index of an end and the sum of probabilities there:
the model returns all starts for the best end, then for the second, and probabilities. As in the
task ``answer``, spans are extended to words, and scores of equal answers are added.
"""

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tasks.question_answering.making import Answers, add, characters


def beam_answers(
    folder: Path, question: str, context: str, *, window: int, stride: int, longest: int
) -> tuple[Answers, float]:
    """Return the answers, the best first, and the lowest logit of no answer of all windows.

    Args:
        folder: directory of the checkpoint.
        question: the question.
        context: its context, which is before the question.
        window: largest number of tokens of a window.
        stride: number of tokens that windows share.
        longest: largest number of tokens of an answer.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind: Any = transformers.XLNetForQuestionAnswering
    model = kind.from_pretrained(folder).eval()
    encoded = tokenizer(
        context,
        question,
        truncation="only_first",
        max_length=window,
        stride=stride,
        return_overflowing_tokens=True,
    )
    answers: Answers = []
    null_logits = []
    for k, ids in enumerate(encoded["input_ids"]):
        of_context = [text == 0 for text in encoded.sequence_ids(k)]
        outside = [
            float(not inside and token != tokenizer.cls_token_id)
            for inside, token in zip(of_context, ids, strict=True)
        ]
        with torch.no_grad():
            output = model(
                torch.tensor([ids]),
                token_type_ids=torch.tensor([encoded["token_type_ids"][k]]),
                p_mask=torch.tensor([outside]),
            )
        null_logits.append(float(output.cls_logits))
        for first, last, score in beams(output, model.start_n_top, model.end_n_top):
            if of_context[first] and of_context[last] and first <= last < first + longest:
                begin, stop = characters(encoded, k, first, last, text=0)
                add(answers, context[begin:stop], score, begin, stop)
    return sorted(answers, key=lambda answer: -answer["score"]), min(null_logits)


def beams(output: Any, starts: int, ends: int) -> list[tuple[int, int, float]]:
    """Return first and last token and probability of each beam, the most likely first."""
    spans = []
    for start in range(starts):
        for end in range(ends):
            index = end * starts + start
            score = output.start_top_log_probs[0, start] * output.end_top_log_probs[0, index]
            tokens = output.start_top_index[0, start], output.end_top_index[0, index]
            spans.append((int(tokens[0]), int(tokens[1]), float(score)))
    return sorted(spans, key=lambda beam: -beam[2])
