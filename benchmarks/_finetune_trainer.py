"""Fine-tuning by the ``Trainer`` of transformers, for comparison.

    python -m benchmarks._finetune_trainer SETTINGS OUTPUT

SETTINGS is the JSON object that ``benchmarks.finetune_quality`` writes. Samples are prepared as in
the examples of transformers: run_glue.py, run_ner.py and run_qa.py.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from zoo.data.readers.labelled import Columns, label_name, read_samples, sort_labels
from zoo.tasks.question_answering.data import read_questions
from zoo.tasks.token_classification.data import read_words

IGNORED = -100  # label of tokens without a loss
DOC_STRIDE = 128
Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]


def main() -> None:
    train(json.loads(sys.argv[1]), sys.argv[2])


def train(settings: Settings, output: str) -> None:
    """Train a model and save it with its tokenizer."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(settings["model"])
    prepare, kind, collator = {
        "text-classification": (
            texts,
            transformers.AutoModelForSequenceClassification,
            transformers.DataCollatorWithPadding,
        ),
        "regression": (
            texts,
            transformers.AutoModelForSequenceClassification,
            transformers.DataCollatorWithPadding,
        ),
        "token-classification": (
            words,
            transformers.AutoModelForTokenClassification,
            transformers.DataCollatorForTokenClassification,
        ),
        "question-answering": (
            questions,
            transformers.AutoModelForQuestionAnswering,
            transformers.DataCollatorWithPadding,
        ),
    }[settings["task"]]
    rows, labels = prepare(settings, tokenizer)
    transformers.set_seed(settings["seed"])
    names = {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
    model = kind.from_pretrained(settings["model"], **(names if labels else {}))
    arguments = transformers.TrainingArguments(
        output,
        learning_rate=settings["learning_rate"],
        num_train_epochs=settings["epochs"],
        max_steps=settings["max_steps"] or -1,
        per_device_train_batch_size=32,
        bf16=settings["precision"] == "bfloat16",
        use_cpu=True,
        seed=settings["seed"],
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, data_collator=collator(tokenizer)
    )
    trainer.train()
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)


def texts(settings: Settings, tokenizer: Any) -> tuple[Rows, tuple[str, ...]]:
    """Return texts and pairs with their labels or numbers, and the names of the labels."""
    samples = read_samples([settings["train"]], Columns(**settings["columns"]))
    pairs = [(sample.text, sample.pair) if sample.pair else (sample.text,) for sample in samples]
    encoded = [
        tokenizer(*pair, truncation=True, max_length=settings["max_seq_len"]) for pair in pairs
    ]
    if settings["task"] == "regression":
        values = [float(sample.label) for sample in samples]
        rows = [{**row, "labels": value} for row, value in zip(encoded, values, strict=True)]
        return rows, ("score",)
    names = [label_name(sample.label, sample.location) for sample in samples]
    labels = sort_labels(names)
    ids = [labels.index(name) for name in names]
    return [{**row, "labels": label} for row, label in zip(encoded, ids, strict=True)], labels


def words(settings: Settings, tokenizer: Any) -> tuple[Rows, tuple[str, ...]]:
    """Return sentences with a label at the first token of each word, and the labels' names."""
    samples = read_words([settings["train"]], Columns(**settings["columns"]))
    labels = sort_labels(name for sample in samples for name in sample.labels)
    rows = []
    for sample in samples:
        row = tokenizer(
            list(sample.words),
            is_split_into_words=True,
            truncation=True,
            max_length=settings["max_seq_len"],
        )
        indices = row.word_ids()
        before = [None, *indices[:-1]]
        row["labels"] = [
            IGNORED if word is None or word == last else labels.index(sample.labels[word])
            for word, last in zip(indices, before, strict=True)
        ]
        rows.append(dict(row))
    return rows, labels


def questions(settings: Settings, tokenizer: Any) -> tuple[Rows, tuple[str, ...]]:
    """Return windows over contexts with the first and last token of the answer."""
    rows = []
    for sample in read_questions([settings["train"]]):
        answer = sample.answers[0]
        start = answer.answer_start
        end = answer.answer_start + len(answer.text)
        windows = tokenizer(
            sample.question,
            sample.context,
            truncation="only_second",
            max_length=settings["max_seq_len"],
            stride=DOC_STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for index, offsets in enumerate(windows["offset_mapping"]):
            parts = windows.sequence_ids(index)
            context = [at for at, part in enumerate(parts) if part == 1]
            first = [at for at in context if offsets[at][0] <= start < offsets[at][1]]
            last = [at for at in context if offsets[at][0] < end <= offsets[at][1]]
            rows.append(
                {
                    **{name: windows[name][index] for name in tokenizer.model_input_names},
                    "start_positions": first[0] if first and last else 0,
                    "end_positions": last[0] if first and last else 0,
                }
            )
    return rows, ()


if __name__ == "__main__":
    main()
