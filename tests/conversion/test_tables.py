"""Ids of a tokenizer against the tables of its model, in every verb; and models of one type."""

import json
from pathlib import Path

import onnx
import pytest
import torch
import transformers

from tests import warm
from tests.checkpoints import VOCABULARY, Make
from tests.exporting.making import export_onnx
from zoo.api import load
from zoo.checkpoint import encode_manifest, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.io.digests.files import hash_file

PAIRS = [("a b", "c d"), ("e", "f a b")]


def converted(source: Path, tmp_path: Path) -> Path:
    convert(CheckpointDir(source, str(source)), tmp_path / "ours")
    return tmp_path / "ours"


def test_one_token_type_is_read_for_both_texts(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForSequenceClassification", type_vocab_size=1)
    ours = converted(source, tmp_path)
    reference = transformers.BertForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt"))
    model = load(ours)
    for pair, result in zip(PAIRS, model.classify(PAIRS), strict=True):
        row = tokenizer(*pair, return_tensors="pt", return_token_type_ids=False)
        with torch.no_grad():
            expected = reference(**row).logits.softmax(-1)[0].tolist()
        assert list(result["scores"].values()) == pytest.approx(expected, abs=1e-5)
    rows = [json.dumps({"text": a, "pair": b, "label": str(k)}) for k, (a, b) in enumerate(PAIRS)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(rows * 6) + "\n")
    options: tuple[object, ...] = ("--task", "text-classification", "--train", data, "--eval", data)
    options += ("--pair", "pair")
    done = warm.zoo("finetune", ours, *options, "-o", tmp_path / "run", "--set", "max_steps=1")
    assert done.returncode == 0, done.stderr


def with_template(path: Path, kind: int, number: int) -> None:
    """Change the last special token of the template of a converted model, and its digest."""
    file = path / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    template = tokenizer["post_processor"]
    template["pair"][-1]["SpecialToken"]["type_id"] = kind
    template["special_tokens"]["[SEP]"]["ids"] = [number]
    file.write_text(json.dumps(tokenizer))
    manifest = load_checkpoint(path).manifest
    manifest.files["tokenizer.json"] = hash_file(file)
    (path / "zoo.json").write_bytes(encode_manifest(manifest))


SEP = VOCABULARY.index("[SEP]")
DATA = "--train", "DATA", "--eval", "DATA"
VERBS = (
    ("run", "classify", "MODEL", "a b"),
    ("export", "MODEL", "--onnx", "-o", "OUT"),
    ("bench", "MODEL"),
    ("verify", "MODEL"),
    ("finetune", "MODEL", "--task", "text-classification", *DATA, "-o", "OUT"),
)


@pytest.mark.by_default("run")
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_type_outside_its_table(
    hub_checkpoint: Make, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    ours = converted(hub_checkpoint("BertForSequenceClassification"), tmp_path)
    with_template(ours, 2, SEP)
    rows = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'
    (tmp_path / "data.jsonl").write_text(rows)
    names = {"MODEL": ours, "OUT": tmp_path / "out", "DATA": tmp_path / "data.jsonl"}
    done = warm.zoo(*(names.get(word, word) for word in verb))
    assert done.returncode == 3, done.stderr + done.stdout
    said = "gives '[SEP]' the token type 2, and the table of types (type_vocab_size) has 2 rows"
    assert said in done.stderr + done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_tokenizer_of_an_export(hub_checkpoint: Make, tmp_path: Path) -> None:
    ours = converted(hub_checkpoint("BertForSequenceClassification"), tmp_path)
    graph = tmp_path / "graph"
    export_onnx(load_checkpoint(ours), graph)
    done = warm.zoo("verify", graph)
    assert done.returncode == 0 and "every token and token type has a row" in done.stdout
    with_template(graph, 2, SEP)
    done = warm.zoo("verify", graph)
    assert done.returncode == 3
    assert "gives '[SEP]' the token type 2, and the table of types" in done.stdout + done.stderr


@pytest.mark.long
def test_a_graph_of_an_older_release_takes_token_types(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Graphs of models with one type had them as an input; they are zeros."""
    ours = converted(hub_checkpoint("BertForSequenceClassification", type_vocab_size=1), tmp_path)
    graph = tmp_path / "graph"
    export_onnx(load_checkpoint(ours), graph)
    add_token_types(graph)
    model, reference = load(graph), load(ours)
    for got, expected in zip(model.classify(PAIRS), reference.classify(PAIRS), strict=True):
        assert got["scores"] == pytest.approx(expected["scores"], abs=1e-5)
    assert "token_type_ids" not in model.session.inputs


def add_token_types(path: Path) -> None:
    """Add the input to a graph, which adds it to the ids, and update its digest."""
    name = "onnx/model.onnx"
    proto = onnx.load(path / name, load_external_data=False)
    (ids,) = (value for value in proto.graph.input if value.name == "input_ids")
    types = onnx.ValueInfoProto()
    types.CopyFrom(ids)
    types.name = "token_type_ids"
    proto.graph.input.append(types)
    for node in proto.graph.node:
        node.input[:] = ["sum_of_ids" if value == "input_ids" else value for value in node.input]
    inputs = ["input_ids", "token_type_ids"]
    proto.graph.node.insert(0, onnx.helper.make_node("Add", inputs, ["sum_of_ids"]))
    onnx.save(proto, path / name)
    manifest = load_checkpoint(path).manifest
    manifest.files[name] = hash_file(path / name)
    (path / "zoo.json").write_bytes(encode_manifest(manifest))


def test_a_template_at_conversion(hub_checkpoint: Make, tmp_path: Path) -> None:
    ours = converted(hub_checkpoint("BertModel"), tmp_path)
    with_template(ours, 3, SEP)
    source = hub_checkpoint("BertModel", name="second", tokenizer=False)
    (source / "tokenizer.json").write_bytes((ours / "tokenizer.json").read_bytes())
    with pytest.raises(VerificationError, match=r"the token type 3, .*type_vocab_size.* 2 rows"):
        convert(CheckpointDir(source, str(source)), tmp_path / "again")
