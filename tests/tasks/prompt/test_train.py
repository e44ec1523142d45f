"""Fine-tuning with a template: the loss against transformers, the model in ``zoo run prompt``."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional as F

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, assert_resumes_exactly, write_table
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.data.readers.problems import InvalidRows
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.runs import FineTuneRun
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.inference import load_session
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.training.logging.jsonl import read_jsonl

TEMPLATE, WORDS = "{text} b {label} c.", {"yes": "a", "no": "j"}
ROWS = [{"text": text, "label": label} for text, label in (("d e", "yes"), ("h i f", "no"))]


def settings(model: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    train = write_table(folder / "train.tsv", ROWS * 4)
    texts = write_table(folder / "texts.tsv", [{"text": f"{c} e f g h i"} for c in "abcd"])
    data = {"train": [str(train)], "eval": [str(train)], "unlabelled": [str(texts)]}
    options = {"template": TEMPLATE, "label_words": WORDS, "lm_coef": 0.25}
    return {
        "task": "prompt",
        "init_from": {"model": str(model)},
        "data": data,
        "task_args": options,
        "max_steps": 3,
        "eval_steps": 3,
        "logging_steps": 1,
        "report_to": [],
        **changes,
    }


@pytest.mark.long
def test_a_run_resumes_with_equal_files(pretrained: Pretrained, tmp_path: Path) -> None:
    path, _ = pretrained("BertForMaskedLM", hidden_dropout_prob=0.1)
    often = {"save_steps": 1, "save_total_limit": 9, "keep_optimizer": True}
    assert_resumes_exactly(tmp_path, settings(path, tmp_path, **often), 2)


def setup_of(values: dict[str, Any]) -> FineTuneSetup:
    return finetune_setup(finetune_config(values, {}))


def test_the_loss_is_that_of_words_at_the_mask_and_of_masked_tokens(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    path, source = pretrained("BertForMaskedLM")
    run = FineTuneRun(settings(path, tmp_path), HERE, tmp_path / "run")
    logged = next(r for r in read_jsonl(run.start().run) if r["split"] == "train")
    setup = setup_of(settings(path, tmp_path))
    network: Any = transformers.AutoModelForMaskedLM.from_pretrained(source).eval()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source)
    ids = [tokenizer.convert_tokens_to_ids(word) for word in WORDS.values()]
    with closing(setup.train_dataloader(HERE)) as loader, torch.no_grad():
        batches = list(loader.make_batches(0))
        of_labels, of_tokens, tokens = 0.0, 0.0, 0
        for batch in batches:
            tensors = batch.tensors
            for k in range(batch.rows):
                row = ROWS[0] if tensors["labels"][k] == 0 else ROWS[1]
                text = TEMPLATE.format(text=row["text"], label="[MASK]")
                encoded = tokenizer(text, return_tensors="pt")
                at = int((encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero())
                logits = network(**encoded).logits[0, at, ids]
                of_labels += float(F.cross_entropy(logits[None], tensors["labels"][k : k + 1]))
                length = int((tensors["text_ids"][k] != tokenizer.pad_token_id).sum())
                labels = tensors["text_labels"][k, :length]
                logits = network(tensors["text_ids"][k : k + 1, :length]).logits[0]
                of_tokens += float(F.cross_entropy(logits, labels, reduction="sum"))
                tokens += int((labels != IGNORED).sum())
    assert tokens == sum(batch.counts["masked-lm"] for batch in batches) > 0
    losses = {"prompt": of_labels / sum(b.rows for b in batches), "masked-lm": of_tokens / tokens}
    assert logged["losses"] == pytest.approx(losses, abs=1e-5)
    expected = 0.75 * losses["prompt"] + 0.25 * losses["masked-lm"]
    assert logged["loss"] == pytest.approx(expected, abs=1e-5)


def test_tokens_are_masked_as_in_pretraining(pretrained: Pretrained, tmp_path: Path) -> None:
    path, _ = pretrained("BertForMaskedLM")
    rows: Any = setup_of(settings(path, tmp_path)).train_rows
    text = np.concatenate([rows.texts[0][:1], np.tile(rows.texts[0][1:5], 2500)])
    hidden, labels = rows.mask_tokens(text, np.random.default_rng(0))
    chosen = labels != IGNORED
    assert chosen.mean() == pytest.approx(0.15, abs=1e-3) and not chosen[0]
    assert (labels[chosen] == text[chosen]).tolist() == [True] * int(chosen.sum())
    assert np.array_equal(hidden[~chosen], text[~chosen])
    assert (hidden[chosen] == rows.mask_id).mean() == pytest.approx(0.8, abs=0.03)
    kept = (hidden[chosen] == text[chosen]).mean()
    assert kept == pytest.approx(0.1 + 0.1 / len(rows.ordinary), abs=0.03)


@pytest.mark.long
def test_the_model_answers_the_prompt_that_it_was_trained_with(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    path, _ = pretrained("BertForMaskedLM")
    run = FineTuneRun(settings(path, tmp_path), HERE, tmp_path / "run").start()
    checkpoint = load_checkpoint(run.model)
    model = Model(checkpoint, load_session(checkpoint, "cpu"))
    results = model.prompt([row["text"] for row in ROWS], template=TEMPLATE, label_words=WORDS)
    (last,) = [r for r in read_jsonl(run.run) if r["split"] == "validation"]
    right = [r["label"] == row["label"] for r, row in zip(results, ROWS, strict=True)]
    assert last["metrics"]["accuracy"] == np.mean(right)
    # of the labels, to which the loss on texts adds nothing in an evaluation
    expected = [-np.log(r["scores"][row["label"]]) for r, row in zip(results, ROWS, strict=True)]
    assert last["losses"]["prompt"] == pytest.approx(np.mean(expected), abs=1e-5)
    assert last["loss"] == pytest.approx(0.75 * np.mean(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_words": {"yes": "jab", "no": "a"}}, "'jab' has 3 tokens"),
        ({"label_words": {"yes": "a", "maybe": "j"}}, "has the label 'no', which has no word"),
        ({"label_words": {}}, "no label words"),
        ({"template": "{text} b"}, "has no slot {label}"),
        ({"template": []}, "there are 0"),
        ({"template": [TEMPLATE, "{text} {label}"]}, "there are 2"),
    ],
)
def test_wrong_words_and_templates_are_refused(
    pretrained: Pretrained, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    path, _ = pretrained("BertForMaskedLM")
    values = settings(path, tmp_path)
    values["task_args"] = {**values["task_args"], **options}
    with pytest.raises((UsageError, InvalidRows)) as error:
        setup_of(values)
    assert message in str(error.value)


def test_the_model_has_to_predict_masked_tokens(pretrained: Pretrained, tmp_path: Path) -> None:
    path, _ = pretrained("BertModel")
    with pytest.raises(UsageError, match="predicts no masked tokens"):
        setup_of(settings(path, tmp_path))
