"""Conversion in both directions, compared with files and classes of transformers."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir

HEADS = {
    "none": "BertModel",
    "masked-lm": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
    "sequence-classification": "BertForSequenceClassification",
    "token-classification": "BertForTokenClassification",
    "question-answering": "BertForQuestionAnswering",
    "multiple-choice": "BertForMultipleChoice",
}


def from_hub(path: Path) -> CheckpointDir:
    return CheckpointDir(path, str(path))


def rewrite(path: Path, change: dict[str, torch.Tensor]) -> None:
    save_file(change, path / "model.safetensors", {"format": "pt"})


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


@pytest.mark.by_default("masked-lm-bfloat16")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("head", HEADS)
def test_round_trip(hub_checkpoint: Make, tmp_path: Path, head: str, dtype: str) -> None:
    source = hub_checkpoint(HEADS[head], dtype=dtype)
    report = convert(from_hub(source), tmp_path / "ours")
    assert report.head == head
    back = tmp_path / "back"
    convert(from_hub(tmp_path / "ours"), back, to="hub")
    before, after = tensors(source), tensors(back)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert torch.equal(after[name], tensor), name
    kind = getattr(transformers, HEADS[head])
    _, loading = kind.from_pretrained(back, output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    assert kind.from_pretrained(back).config.to_dict() == {
        **kind.from_pretrained(source).config.to_dict(),
        "_name_or_path": str(back),
    }


def test_hub_to_hub(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    convert(from_hub(source), tmp_path / "back", to="hub")
    before, after = tensors(source), tensors(tmp_path / "back")
    assert before.keys() == after.keys()
    assert [name for name, tensor in before.items() if not torch.equal(after[name], tensor)] == []


def test_a_trunk_without_pooler(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    rewrite(source, {n: t for n, t in tensors(source).items() if "pooler" not in n})
    report = convert(from_hub(source), tmp_path / "ours")
    assert report.mapping.absent == ("pooler",)
    assert load_checkpoint(tmp_path / "ours").model.config["pooler"] is False
    convert(from_hub(tmp_path / "ours"), tmp_path / "back", to="hub")
    assert tensors(tmp_path / "back").keys() == tensors(source).keys()


def test_incomplete_pooler(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    rewrite(source, {n: t for n, t in tensors(source).items() if n != "pooler.dense.bias"})
    with pytest.raises(Exception, match=r"1 missing from the file \(bert\.pooler\.dense\.bias\)"):
        convert(from_hub(source), tmp_path / "ours")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "corrector."])
def test_a_prefix_of_a_wrapper_is_found(hub_checkpoint: Make, tmp_path: Path, prefix: str) -> None:
    source = hub_checkpoint()
    convert(from_hub(source), tmp_path / "plain")
    rewrite(source, {prefix + name: tensor for name, tensor in tensors(source).items()})
    report = convert(from_hub(source), tmp_path / "ours")
    assert report.mapping.prefix == prefix + "bert."
    ours, plain = tensors(tmp_path / "ours"), tensors(tmp_path / "plain")
    assert ours.keys() == plain.keys()
    assert [name for name in plain if not torch.equal(ours[name], plain[name])] == []


def test_legacy_names_of_norms(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    convert(from_hub(source), tmp_path / "plain")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors(source).items()
    }
    assert old.keys() != tensors(source).keys()
    rewrite(source, old)
    report = convert(from_hub(source), tmp_path / "ours")
    assert len(report.mapping.renamed) == 2 * 6  # embeddings, two per layer, head
    ours, plain = tensors(tmp_path / "ours"), tensors(tmp_path / "plain")
    assert [name for name in plain if not torch.equal(ours[name], plain[name])] == []


def test_duplicate_tensors_of_old_checkpoints(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    stored = tensors(source)
    extra = {
        "bert.embeddings.position_ids": torch.arange(40)[None],
        "cls.predictions.decoder.weight": stored["bert.embeddings.word_embeddings.weight"].clone(),
        "cls.predictions.decoder.bias": stored["cls.predictions.bias"].clone(),
    }
    rewrite(source, stored | extra)
    report = convert(from_hub(source), tmp_path / "ours")
    assert list(report.mapping.drops) == ["bert.embeddings.position_ids"]
    assert report.mapping.ties.keys() == extra.keys() - {"bert.embeddings.position_ids"}


def test_untied_embeddings_are_kept_apart(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM", tie_word_embeddings=False)
    stored = tensors(source)
    rewrite(
        source, stored | {"cls.predictions.bias": stored["cls.predictions.decoder.bias"].clone()}
    )
    convert(from_hub(source), tmp_path / "ours")
    convert(from_hub(tmp_path / "ours"), tmp_path / "back", to="hub")
    before, after = tensors(source), tensors(tmp_path / "back")
    assert "cls.predictions.decoder.weight" in after
    assert after.keys() == before.keys()
    assert [name for name in after if not torch.equal(after[name], before[name])] == []
    kind = getattr(transformers, HEADS["masked-lm"])
    _, loading = kind.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}


def test_tensors_of_other_heads_are_dropped(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    report = convert(from_hub(source), tmp_path / "ours", head="none")
    reasons = {drop.reason for drop in report.mapping.drops.values()}
    assert len(report.mapping.drops) == 7
    assert [reason for reason in reasons if "none was requested" not in reason] == []


def test_from_our_layout_to_another_head(hub_checkpoint: Make, tmp_path: Path) -> None:
    convert(from_hub(hub_checkpoint()), tmp_path / "ours")
    report = convert(from_hub(tmp_path / "ours"), tmp_path / "bare", head="none")
    assert report.mapping.complete
    assert [name for name in report.mapping.drops if not name.startswith("head.")] == []
    assert load_checkpoint(tmp_path / "bare").head_name == "none"


def test_new_head_needs_the_option(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    head = "sequence-classification"
    with pytest.raises(Exception, match="--init-head"):
        convert(from_hub(source), tmp_path / "ours", head=head)
    assert not (tmp_path / "ours").exists()
    report = convert(
        from_hub(source), tmp_path / "ours", head=head, init_head=True, labels=["no", "yes", "?"]
    )
    initialized = {entry.target for entry in report.mapping.initialized}
    assert initialized == {"head.weight", "head.bias", "pooler.weight", "pooler.bias"}
    stored = tensors(tmp_path / "ours")
    assert stored["head.weight"].shape == (3, 32)
    assert 0.01 < float(stored["pooler.weight"].std()) < 0.03
    assert not stored["head.bias"].any()
    assert load_checkpoint(tmp_path / "ours").config.labels == ("no", "yes", "?")


@pytest.mark.parametrize(
    ("labels", "head", "says"),
    [
        (["no", "yes"], None, "masked-lm has no outputs that labels name"),
        (["no", "no"], "sequence-classification", "empty or given twice: no, no"),
        (["no", ""], "sequence-classification", "empty or given twice"),
    ],
)
def test_labels_need_a_head_with_labels(
    hub_checkpoint: Make, tmp_path: Path, labels: list[str], head: str | None, says: str
) -> None:
    source = from_hub(hub_checkpoint("BertForMaskedLM"))
    with pytest.raises(UsageError, match=says):
        convert(source, tmp_path / "ours", head=head, init_head=True, labels=labels)
    assert not (tmp_path / "ours").exists()


def test_a_missing_trunk_is_never_initialised(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    gone = "bert.encoder.layer.1.output.dense.weight"
    rewrite(source, {n: t for n, t in tensors(source).items() if n != gone})
    with pytest.raises(Exception, match=gone):
        convert(
            from_hub(source),
            tmp_path / "ours",
            head="sequence-classification",
            init_head=True,
        )


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_cast_matches_torch(hub_checkpoint: Make, tmp_path: Path, name: str) -> None:
    source = hub_checkpoint()
    report = convert(from_hub(source), tmp_path / "back", to="hub", dtype=name)
    how = "bit for bit" if name == "float64" else f", rounded to {name}"
    assert report.rebuilt().startswith("all 46 tensors of the source were rebuilt")
    assert report.rebuilt().endswith(how)
    wanted = getattr(torch, name)
    after = tensors(tmp_path / "back")
    for key, tensor in tensors(source).items():
        assert torch.equal(after[key], tensor.to(wanted)), key


def test_overflow_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    stored = tensors(source)
    stored["cls.predictions.bias"][3] = 70_000.0
    rewrite(source, stored)
    with pytest.raises(Exception, match=r"head\.bias has values that do not fit into float16"):
        convert(from_hub(source), tmp_path / "ours", dtype="float16")
    assert not (tmp_path / "ours").exists()


def test_signs_of_zero_and_payloads_of_nan_survive(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    stored = tensors(source)
    odd = torch.tensor([0x7FC12345, -0x80000000, 0x7F800000], dtype=torch.int32)
    stored["cls.predictions.bias"][:3] = odd.view(torch.float32)
    rewrite(source, stored)
    convert(from_hub(source), tmp_path / "ours")
    bias = tensors(tmp_path / "ours")["head.bias"][:3]
    assert bias.view(torch.int32).tolist() == odd.tolist()


def test_unknown_keys_are_kept(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    config = json.loads((source / "config.json").read_text())
    config |= {"my_note": {"a": [1, 2]}, "directionality": "bidi"}
    (source / "config.json").write_text(json.dumps(config))
    report = convert(from_hub(source), tmp_path / "ours")
    assert report.unknown == ("my_note",)
    convert(from_hub(tmp_path / "ours"), tmp_path / "back", to="hub")
    back = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {key: back.get(key) for key in config} == config


def test_manifest_lists_files_read_and_written(hub_checkpoint: Make, tmp_path: Path) -> None:
    from blake3 import blake3

    source = hub_checkpoint()
    convert(from_hub(source), tmp_path / "ours")
    manifest = json.loads((tmp_path / "ours" / "zoo.json").read_text())
    assert manifest["round_trip"] == "exact"
    assert set(manifest["files"]) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert set(manifest["source"]["files"]) == {"config.json", "model.safetensors", "vocab.txt"}
    for folder, files in (
        (tmp_path / "ours", manifest["files"]),
        (source, manifest["source"]["files"]),
    ):
        for name, known in files.items():
            data = (folder / name).read_bytes()
            assert known["bytes"] == len(data)
            assert known["blake3"] == blake3(data).hexdigest()
