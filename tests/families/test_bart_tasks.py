"""BART from a table to a graph: summaries are trained, written, exported and distilled."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests import warm
from tests.distillation.making import make_setup
from tests.exporting.making import export_onnx
from tests.finetuning.making import SETTINGS, finetune, settings, texts, write_table
from tests.inference.making import make_checkpoint
from zoo.plugins import get_family
from zoo.training.config.overrides import deep_merge

SMALL = {"decoder_layers": 2, "num_layers": 2}
SUMMARY = {"num_beams": 3, "no_repeat_ngram_size": 2, "length_penalty": 2.0, "min_new_tokens": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the table ``t.jsonl`` and the run ``run``: the first three letters."""
    path = tmp_path_factory.mktemp("bart")
    table = write_table(path / "t.jsonl", [{"text": t, "label": t[:5]} for t in texts(40)])
    tree = settings(
        "bart",
        table,
        task="seq2seq",
        data={"label": "label"},
        config=SMALL,
        max_steps=4,
        eval_steps=4,
        task_args={"generate": False},
    )
    finetune(path / "run", tree)
    return path


def zoo(folder: Path, *arguments: str) -> Any:
    done = warm.zoo(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def options() -> list[str]:
    values = {**SUMMARY, "max_new_tokens": 12}
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


# Each step has tests of its own: runs, the search, the conversion, and graphs with a cache.
@pytest.mark.long
def test_summaries_are_those_of_the_reference_and_of_the_graph(folder: Path) -> None:
    inputs = ["a b c d e f", "j i h g a b c d", "c"]
    ours = zoo(folder, "run", "seq2seq", "run/model", *inputs, *options())["results"]
    zoo(folder, "convert", "run/model", "--to", "hub", "-o", "hub")
    kind: Any = transformers.BartForConditionalGeneration
    model, loading = kind.from_pretrained(folder / "hub", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    model.generation_config.forced_eos_token_id = None
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hub")
    for text, result in zip(inputs, ours, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        assert [ids[0, 0], ids[0, -1]] == [tokenizer.bos_token_id, tokenizer.eos_token_id]
        whole = model.generate(ids, max_new_tokens=12, do_sample=False, **SUMMARY)[0, 1:]
        assert result["generated"] == tokenizer.decode(whole, skip_special_tokens=True)
    report = zoo(folder, "export", "run/model", "--onnx", "-o", "graph")
    assert report["validated"]
    graph = zoo(folder, "run", "seq2seq", "graph", *inputs, *options())["results"]
    assert [result["generated"] for result in graph] == [result["generated"] for result in ours]


@pytest.mark.long
def test_both_stacks_are_looked_at(folder: Path) -> None:
    (view,) = zoo(folder, "look", "run/model", "a b c", "--text-target", "a b")["texts"]
    encoder, decoder = view["stacks"]
    assert {len(stack["hidden_states"]) for stack in (encoder, decoder)} == {3}
    cross = torch.tensor(decoder["attention"]["cross"]["values"])
    assert cross.shape[2:] == (len(decoder["tokens"]), len(encoder["tokens"]))
    assert torch.allclose(cross.sum(-1), torch.ones(()), atol=1e-4)


def test_a_decoder_is_shrunk(folder: Path) -> None:
    """Shleifer and Rush 2020: all layers of the encoder, and of the decoder the first."""
    tree: dict[str, Any] = {
        "distillation": {"teachers": [str(folder / "run/model")], "recipe": "seq2seq"},
        "student": {"name": "bart", "num_layers": 2, "decoder_layers": 1},
        "task": "seq2seq",
        "data": {"train": [str(folder / "t.jsonl")], "label": "label"},
        "task_args": {"generate": False},
        "max_steps": 2,
    }
    setup = make_setup(deep_merge(SETTINGS, tree))
    model = setup.objective.model(setup.family, setup.model_config)
    setup.prepare_model(model)
    weights = load_file(folder / "run/model/model.safetensors")
    state = model.student.state_dict()
    assert [name for name in state if not torch.equal(state[name], weights[name])] == []
    assert weights.keys() - state.keys() == {
        n for n in weights if n.startswith("decoder.layers.1.")
    }


# BERT has such heads, and T5 the graphs of two stacks.
@pytest.mark.long
@pytest.mark.parametrize("head", ["none", "sequence-classification"])
def test_heads_without_a_cache_are_exported(head: str, tmp_path: Path) -> None:
    """The gate compares the graph with torch at lengths that were not traced."""
    family = get_family("bart")
    checkpoint = make_checkpoint(
        tmp_path / "model", head, family=family, num_layers=1, decoder_layers=1
    )
    report = export_onnx(checkpoint, tmp_path / "graph")
    assert report.validated and report.max_rel < 1e-5
