"""A new vocabulary: every row against the old one, and models against transformers' classes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from tests.checkpoints import SMALL, VOCABULARY, Make, byte_level_roberta, hub_checkpoint
from tests.inference.conftest import converted
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.seq2seq.making import hub
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.cli.models.retokenize import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.retokenization.match import Form, SpelledVocabulary
from zoo.retokenization.retokenize import RECORD, retokenize
from zoo.retokenization.tokenizer import new_tokenizer

__all__ = ["hub", "hub_checkpoint", "source"]
Tensors = dict[str, Any]
# in another order, with a token of two old parts, one of three, and one that spells nothing known
NEW = [
    "[CLS]",
    "[PAD]",
    "[UNK]",
    "[MASK]",
    "[SEP]",
    "j",
    "a",
    "##b",
    "ab",
    "jab",
    "##ab",
    "zz",
    "c",
]


def tensors(path: Path) -> Tensors:
    with load_checkpoint(path).open_weights() as reader:
        return {name: np.array(reader.read(name)) for name in reader.tensors}


def word_pieces(folder: Path, vocabulary: list[str]) -> Path:
    """Write the tokenizer of a vocabulary, without a model."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return folder


@pytest.fixture
def bert(hub_checkpoint: Make, tmp_path: Path) -> Checkpoint:
    return converted(hub_checkpoint("BertForMaskedLM"), tmp_path / "old")


def made(model: Checkpoint, tokenizer: Path, path: Path, **options: Any) -> Any:
    made = new_tokenizer(model, str(tokenizer))
    return retokenize(model, made.tokenizer, path, **options)


def test_rows_are_kept_by_text_composed_of_parts_or_new(bert: Checkpoint, tmp_path: Path) -> None:
    done = made(bert, word_pieces(tmp_path / "t", NEW), tmp_path / "new")
    before, after = tensors(bert.path), tensors(tmp_path / "new")
    parts = {"ab": ["a", "##b"], "jab": ["j", "##a", "##b"], "##ab": ["##a", "##b"], "zz": []}
    vocabulary = {"embeddings.tokens.weight", "head.bias"}
    assert set(done.tensors) == vocabulary
    for name in vocabulary:
        for number, token in enumerate(NEW):
            old = [VOCABULARY.index(part) for part in parts.get(token, [token])]
            if old:
                np.testing.assert_allclose(
                    after[name][number], before[name][old].mean(0), rtol=1e-6, err_msg=token
                )
            else:
                assert np.isfinite(after[name][number]).all()
                rows = before[name] == after[name][number]
                assert not rows.all(-1).any() if rows.ndim > 1 else not rows.any()
    rest = before.keys() - vocabulary
    assert [n for n in rest if before[n].tobytes() != after[n].tobytes()] == []
    record = json.loads((tmp_path / "new" / RECORD).read_text())
    assert record["counts"] == {"kept": 9, "composed": 3, "new": 1}
    numbers = [*map(int, record["kept"]), *map(int, record["composed"]), *record["new"]]
    assert sorted(numbers) == list(range(len(NEW)))
    assert record["composed"][str(NEW.index("jab"))] == [
        VOCABULARY.index(part) for part in parts["jab"]
    ]
    assert check_digests(tmp_path / "new").startswith("4 files are what was written")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_in_half_precision_are_means_of_their_values(
    dtype: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    half = converted(hub_checkpoint("BertForMaskedLM", dtype=dtype), tmp_path / "old")
    made(half, word_pieces(tmp_path / "t", NEW), tmp_path / "new")
    name = "embeddings.tokens.weight"
    before, after = (
        load_file(path / "model.safetensors")[name].float()
        for path in (half.path, tmp_path / "new")
    )
    parts = [VOCABULARY.index(part) for part in ("j", "##a", "##b")]
    mean = before[parts].mean(0)
    torch.testing.assert_close(after[NEW.index("jab")], mean, atol=1e-2, rtol=1e-2)
    assert 0 < after[NEW.index("zz")].abs().max() < 10


def test_rows_that_overflow_are_not_written(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    file = source / "model.safetensors"
    weights = load_file(file)
    weights["bert.embeddings.word_embeddings.weight"][5] = 3e38
    weights["bert.embeddings.word_embeddings.weight"][6] = -3e38
    weights.pop("cls.predictions.decoder.weight", None)
    save_file(weights, file, {"format": "pt"})
    model = converted(source, tmp_path / "old")
    with pytest.raises(VerificationError, match=r"the row of token 11 holds NaN or infinity"):
        made(model, word_pieces(tmp_path / "t", NEW), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_parts_inside_of_a_word_are_those_that_its_rest_has(
    bert: Checkpoint, tmp_path: Path
) -> None:
    tokens = [*NEW[:5], "j", "a", "ab", "##a", "##b", "##ba", "c"]
    folder = word_pieces(tmp_path / "t", tokens)
    vocabulary = SpelledVocabulary(new_tokenizer(bert, str(folder)).tokenizer)
    reference = transformers.BertTokenizer(str(folder / "vocab.txt"))
    for text in ("abba", "bab", "a"):
        parts = reference.tokenize(f"j{text}")[1:]
        assert [tokens[n] for n in vocabulary.pieces(Form(text.encode(), False))] == parts
    assert [tokens[n] for n in vocabulary.pieces(Form(b"abba", True))] == ["ab", "##ba"]
    # no rest of a word begins with c
    assert [tokens[n] for n in vocabulary.pieces(Form(b"cab", False))] == ["c", "##a", "##b"]


@pytest.mark.long
def test_the_model_of_transformers_computes_the_same_for_kept_tokens(
    bert: Checkpoint, tmp_path: Path
) -> None:
    """Tied output embeddings, their bias and the ids of special tokens follow."""
    made(bert, word_pieces(tmp_path / "t", NEW), tmp_path / "new")
    logits = []
    for name, vocabulary in (("old", VOCABULARY), ("new", NEW)):
        folder = tmp_path / f"{name}-hub"
        convert(CheckpointDir(tmp_path / name, name), folder, to="hub")
        network: Any = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        encoded = tokenizer("a j c [MASK] a", return_tensors="pt")
        tokens = tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
        assert tokens == ["[CLS]", "a", "j", "c", "[MASK]", "a", "[SEP]"]
        assert network.config.vocab_size == len(vocabulary)
        assert network.config.pad_token_id == vocabulary.index("[PAD]")
        kept = [vocabulary.index(token) for token in ("a", "c", "j", "##b")]
        with torch.inference_mode():
            logits.append(network(**encoded).logits[..., kept])
    torch.testing.assert_close(*logits)


@pytest.mark.long
def test_random_rows_have_the_scale_of_the_old_ones(hub_checkpoint: Make, tmp_path: Path) -> None:
    vocabulary = [*VOCABULARY, *(f"w{k}" for k in range(2000))]
    folder = hub_checkpoint("BertForMaskedLM", vocab_size=len(vocabulary))
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    model = converted(folder, tmp_path / "old")
    fresh = [*VOCABULARY[:5], *(f"v{k}" for k in range(2000))]
    pieces = word_pieces(tmp_path / "t", fresh)
    for keep, count in ((True, 2000), (False, 2005)):
        target = tmp_path / f"new-{keep}"
        done = made(model, pieces, target, method="random", keep=keep, seed=1)
        assert done.plan.counts == {"kept": 2005 - count, "composed": 0, "new": count}
    name = "embeddings.tokens.weight"
    before, after = tensors(model.path)[name], tensors(tmp_path / "new-True")[name][5:]
    np.testing.assert_allclose(after.mean(0), before.mean(0), atol=0.1)
    np.testing.assert_allclose(after.std(0), before.std(0), rtol=0.1)
    made(model, pieces, tmp_path / "again", method="random", seed=1)
    made(model, pieces, tmp_path / "other", method="random", seed=2)
    assert np.array_equal(tensors(tmp_path / "again")[name][5:], after)
    assert not np.array_equal(tensors(tmp_path / "other")[name][5:], after)


def test_byte_level_tokens_are_matched_with_pieces_of_words(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    folder = byte_level_roberta(hub_checkpoint, "RobertaForMaskedLM")
    model = converted(folder, tmp_path / "old")
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = [*specials, "the", "##ing", "##the", ",", "qqqq", "\u00e9"]
    tokenizer = word_pieces(tmp_path / "t", pieces)
    roles = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
    named = dict(zip(roles, specials, strict=True)) | {"bos_token": "<s>", "eos_token": "</s>"}
    (tokenizer / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", **named})
    )
    fast: Any = transformers.BertTokenizerFast(str(tokenizer / "vocab.txt"), **named)
    fast.backend_tokenizer.save(str(tokenizer / "tokenizer.json"))
    done = made(model, tokenizer, tmp_path / "new")
    old = json.loads((folder / "vocab.json").read_text())
    kept = {pieces[number]: row for number, row in done.plan.kept.items()}
    assert kept.items() >= {"the": old["\u0120the"], "##ing": old["ing"], ",": old[","]}.items()
    assert {token: kept[token] for token in specials} == {token: old[token] for token in specials}
    composed = {pieces[number]: parts for number, parts in done.plan.composed.items()}
    tokens = {number: token for token, number in old.items()}
    text = "".join(tokens[number] for number in composed["qqqq"])
    assert text == "qqqq", "a piece that is only a space is left out"


def test_a_model_whose_positions_depend_on_the_padding_id_is_refused(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """RoBERTa counts positions from the id of its padding token."""
    folder = byte_level_roberta(hub_checkpoint, "RobertaForMaskedLM")
    model = converted(folder, tmp_path / "old")
    moved = json.loads((folder / "vocab.json").read_text())
    order = sorted(moved, key=moved.__getitem__)
    order.insert(4, order.pop(1))
    other = tmp_path / "t"
    other.mkdir()
    (other / "vocab.json").write_text(json.dumps({token: k for k, token in enumerate(order)}))
    (other / "merges.txt").write_text((folder / "merges.txt").read_text())
    (other / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(VerificationError, match="depends on the ids of tokens; give the padding"):
        made(model, other, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.long
@pytest.mark.by_default("seq2seq")
@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_causal_models_and_encoder_decoders_train_a_tokenizer_and_generate(
    source: MakeSource, hub: Path, tmp_path: Path, kind: str
) -> None:
    checkpoint = load_checkpoint(source()) if kind == "causal" else converted(hub, tmp_path / "t5")
    text = tmp_path / "text.txt"
    text.write_text("the dog and the cat ran to the house on the hill.\n\n" * 40)
    size = "280" if kind == "causal" else "140"
    target = tmp_path / "new"
    options = ["--tokenizer", "train", "--train", str(text), "--vocab-size", size]
    done = CliRunner().invoke(
        command, [str(checkpoint.path), *options, "-o", str(target), "--json"]
    )
    assert done.exit_code == 0, done.output
    value = json.loads(done.stdout)
    assert sum(value["rows"].values()) == value["vocab_size"] < value["vocab_size_before"]
    assert value["rows"]["kept"] > 100
    new = load_checkpoint(target)
    axes = dict(zip(value["tensors"], [0, 0, 0], strict=False))
    weights = tensors(target)
    assert {name for name, array in weights.items() if array.shape[0] == value["vocab_size"]} == (
        set(axes)
    )
    from tests.tasks.causal_lm.making import opened

    model = opened(new.path)
    run = model.generate if kind == "causal" else model.seq2seq
    assert run(["the dog"], max_new_tokens=3)[0]["stopped"] in ("end", "length")
    convert(CheckpointDir(target, "new"), tmp_path / "hub-again", to="hub")
    name = "GPT2LMHeadModel" if kind == "causal" else "T5ForConditionalGeneration"
    network = getattr(transformers, name).from_pretrained(tmp_path / "hub-again")
    assert network.config.vocab_size == value["vocab_size"]


def test_the_command_reads_the_file_of_a_tokenizer(bert: Checkpoint, tmp_path: Path) -> None:
    again = made(bert, word_pieces(tmp_path / "t", NEW), tmp_path / "again").path
    arguments = [str(bert.path), "-o", str(tmp_path / "new"), "--tokenizer"]
    done = CliRunner().invoke(command, [*arguments, str(again / "tokenizer.json"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["vocab_size"] == len(NEW)
    for name, values in tensors(again).items():
        np.testing.assert_array_equal(tensors(tmp_path / "new")[name], values)
    (tmp_path / "texts.csv").write_text("text\n")
    wrong = CliRunner().invoke(command, [*arguments, str(tmp_path / "texts.csv"), "--force"])
    assert str(wrong.exception).startswith(f"{tmp_path / 'texts.csv'} is not JSON")
    mistyped = CliRunner().invoke(command, [*arguments, "trian"])
    assert str(mistyped.exception).endswith("did you mean train?")


def test_wrong_usage_is_one_line(bert: Checkpoint, tmp_path: Path) -> None:
    run = CliRunner()
    arguments = [str(bert.path), "-o", str(tmp_path / "new"), "--tokenizer"]
    pieces = str(word_pieces(tmp_path / "t", NEW))
    for options, message in (
        (["train"], "there are no texts to train a tokenizer on; name them with --train"),
        ([pieces, "--vocab-size", "30"], "--vocab-size is for a tokenizer to train"),
        ([pieces, "--train", pieces], "--train is for a tokenizer to train"),
    ):
        done = run.invoke(command, [*arguments, *options])
        assert message in str(done.exception)
    without = word_pieces(tmp_path / "less", [token for token in NEW if token != "[PAD]"])
    with pytest.raises(UsageError, match=r"a token for pad, '\[PAD\]', which the new tokenizer"):
        made(bert, without, tmp_path / "new")
    made(bert, Path(pieces), tmp_path / "new")
    with pytest.raises(UsageError, match="exists"):
        made(bert, Path(pieces), tmp_path / "new")
    with pytest.raises(UsageError):
        made(bert, Path(pieces), bert.path, force=True)
    assert SMALL["vocab_size"] == bert.config.vocab_size
