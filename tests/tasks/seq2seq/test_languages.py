"""Languages of mBART-50 in generation, training, evaluation and scores, against transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from msgspec.structs import replace

import zoo
from tests.families.making import MBART, SMALL_MBART
from tests.finetuning.making import finetune, settings, setup_of, training_losses, write_table
from tests.inference.generation.conftest import sharp
from tests.tokenizers.trained import pieces
from zoo.cli.inference.run import command
from zoo.conformance.hf_reference import reference_model
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.tasks import make_evaluation
from zoo_bart.tokenizer import CC25, MORE

PAIRS = [("A short text.", "Ein kurzer Text."), ("x", "A film, and what a film.")]
LANGUAGES = {"src_lang": "ro_RO", "tgt_lang": "fr_XX"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model without dropout that translates from German to English."""
    import transformers

    path = tmp_path_factory.mktemp("mbart") / "hub"
    size = 4 + 697 + len(CC25) + len(MORE) + 1
    config = replace(SMALL_MBART, vocab_size=size, dropout=0.0)
    model: Any = MBART.model(config, "seq2seq-lm")
    sharp(model, seed=0)
    with torch.no_grad():
        for layer in model.decoder.layers:  # else texts hardly depend on their sources
            layer.cross.out.weight.mul_(3)
    reference: Any = reference_model(MBART, config, "seq2seq-lm", model.state_dict())
    reference.save_pretrained(path)
    (path / "sentencepiece.bpe.model").write_bytes(pieces())
    keys = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE"}
    (path / "tokenizer_config.json").write_text(json.dumps(keys))
    english = transformers.MBart50Tokenizer.from_pretrained(path).convert_tokens_to_ids("en_XX")
    ends = {
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "max_new_tokens": 9,
        "no_repeat_ngram_size": 2,
    }
    written = {**ends, "forced_bos_token_id": english}
    (path / "generation_config.json").write_text(json.dumps(written))
    return path


@pytest.fixture(scope="module")
def ours(hub: Path) -> Path:
    convert(CheckpointDir(hub, "hub"), hub.parent / "ours")
    return hub.parent / "ours"


def reference_of(hub: Path, **languages: str) -> tuple[Any, Any]:
    """Return the model and its tokenizer for a pair of languages."""
    import transformers

    tokenizer = transformers.MBart50Tokenizer.from_pretrained(hub, **languages)
    return transformers.MBartForConditionalGeneration.from_pretrained(hub).eval(), tokenizer


def test_options_of_generation_choose_both_languages(hub: Path, ours: Path) -> None:
    model, tokenizer = reference_of(hub, **LANGUAGES)
    text = PAIRS[0][0]
    forced = tokenizer.convert_tokens_to_ids("fr_XX")
    inputs = tokenizer(text, return_tensors="pt")
    written = model.generate(**inputs, forced_bos_token_id=forced, num_beams=1)[0]
    done = CliRunner().invoke(
        command, ["seq2seq", str(ours), text, "--src-lang", "ro_RO", "--tgt-lang", "fr_XX"]
    )
    assert json.loads(done.stdout)["generated"] == tokenizer.decode(
        written, skip_special_tokens=True
    )
    (default,) = zoo.load(ours).seq2seq([text])
    assert default["generated"] != json.loads(done.stdout)["generated"]


def test_unknown_languages_are_refused(ours: Path) -> None:
    with pytest.raises(UsageError, match=r"no language fr_XY.*fr_XX"):
        zoo.load(ours).seq2seq(["x"], tgt_lang="fr_XY")


@pytest.mark.long
def test_targets_are_trained_in_the_language_that_generation_writes(
    hub: Path, ours: Path, tmp_path: Path
) -> None:
    rows = [{"in": source, "out": target} for source, target in PAIRS]
    table = write_table(tmp_path / "t.jsonl", rows)
    tree = settings(
        ours,
        table,
        task="seq2seq",
        data={"text": "in", "label": "out", "eval": [str(table)]},
        task_args={**LANGUAGES, "generate": False},
        batch_size=2,
        micro_batch_size=2,
        max_steps=1,
        eval_steps=1,
        save_steps=1,
    )
    run = finetune(tmp_path / "run", tree)
    model, tokenizer = reference_of(hub, **LANGUAGES)
    batch = tokenizer(
        [source for source, _ in PAIRS],
        text_target=[target for _, target in PAIRS],
        padding=True,
        return_tensors="pt",
    )
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    start = torch.full_like(batch["labels"][:, :1], 2)  # as the published configuration says
    shifted = torch.cat([start, batch["labels"][:, :-1]], dim=1)
    with torch.no_grad():
        expected = model(**batch, decoder_input_ids=shifted.masked_fill(shifted < 0, 1)).loss
    assert training_losses(run) == [pytest.approx(float(expected), abs=2e-5)]

    assert setup_of(run).generation["forced_bos_token_id"] == batch["labels"][0, 0]
    trained = zoo.load(run / "model")
    assert trained.seq2seq(["x"]) == trained.seq2seq(["x"], **LANGUAGES)
    opened, columns = zoo.load(ours), {"text": "in", "label": "out"}
    found = make_evaluation("seq2seq", opened.checkpoint, opened.session, **columns, **LANGUAGES)
    assert found.evaluate([table]).metrics["loss"] == pytest.approx(float(expected), abs=2e-5)


def test_targets_are_scored_after_their_language(hub: Path, ours: Path) -> None:
    """As they are trained: the language is read, and neither it nor the end is scored."""
    model, tokenizer = reference_of(hub, src_lang="de_DE", tgt_lang="en_XX")
    for (source, target), result in zip(PAIRS, zoo.load(ours).score(PAIRS), strict=True):
        batch = tokenizer(source, text_target=target, return_tensors="pt")
        read = torch.cat([torch.tensor([[2]]), batch["labels"][:, :-1]], dim=1)
        with torch.no_grad():
            logits = model(**batch, decoder_input_ids=read).logits[0].double()
        values = logits.log_softmax(-1).gather(1, batch["labels"][0][:, None])[1:-1, 0]
        assert [token["log_prob"] for token in result["tokens"]] == pytest.approx(
            values.tolist(), abs=1e-4
        )
