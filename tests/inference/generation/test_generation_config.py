"""A checkpoint's ``generation_config.json`` is honoured, carried along, or refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from click.testing import CliRunner

import zoo
from tests.distillation.making import distill, make_seq2seq_tree
from tests.exporting.making import export_onnx
from tests.inference.conftest import converted
from tests.tasks.seq2seq.making import sentences, t5_hub
from tests.training.runs import run_training
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.generation_config import GENERATION_KEYS, generation_config
from zoo.cli import main
from zoo.cli.inference.run import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir

__all__ = ["t5_hub"]
STORED: dict[str, Any] = {
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": [1, 7, 12],
    "num_beams": 2,
    "max_length": 9,
    "repetition_penalty": 1.5,
    "no_repeat_ngram_size": 2,
    "suppress_tokens": [3, 4, 5],
    "temperature": 0.5,  # without do_sample
    "cache_implementation": "static",
    "a_key_of_its_own": {"value": [1]},
}


def with_settings(t5_hub: Path, path: Path, **changes: Any) -> Path:
    """Copy a published model, with other settings of generation."""
    shutil.copytree(t5_hub, path)
    settings = {k: v for k, v in {**STORED, **changes}.items() if v is not None}
    (path / "generation_config.json").write_text(json.dumps(settings))
    return path


def test_settings_go_along_and_are_the_defaults(t5_hub: Path, tmp_path: Path) -> None:
    source = with_settings(t5_hub, tmp_path / "hub")
    checkpoint = converted(source, tmp_path / "ours")
    assert checkpoint.model.generation == STORED
    model, texts = zoo.load(checkpoint.path, backend="cpu"), sentences(6)
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(source)
    results = model.seq2seq(texts)
    for text, result in zip(texts, results, strict=True):
        ids = model.tokenizer.encode([text], max_tokens=None)[0].ids
        row = reference.generate(
            transformers.BatchEncoding({"input_ids": [ids]}, tensor_type="pt").input_ids
        )[0, 1:].tolist()
        end = next((k for k, token in enumerate(row) if token in STORED["eos_token_id"]), None)
        assert result["generated"] == model.tokenizer.decode(row[:end])
        assert result["stopped"] == ("length" if end is None else "end")
    back = tmp_path / "back"
    convert(CheckpointDir(checkpoint.path, str(checkpoint.path)), back, to="hub")
    assert json.loads((back / "generation_config.json").read_bytes()) == STORED
    explicit = CliRunner().invoke(
        command,
        [
            "seq2seq",
            str(checkpoint.path),
            texts[0],
            "--max-new-tokens",
            "3",
            "--num-beams",
            "1",
            "--backend",
            "cpu",
        ],
    )
    assert explicit.exit_code == 0, explicit.output
    ours = model.seq2seq(texts[:1], max_new_tokens=3, num_beams=1)[0]
    assert json.loads(explicit.output.splitlines()[-1])["generated"] == ours["generated"]


# Other graphs with a cache are exported in tests/exporting.
@pytest.mark.long
def test_settings_go_along_with_a_graph(t5_hub: Path, tmp_path: Path) -> None:
    checkpoint = converted(with_settings(t5_hub, tmp_path / "hub"), tmp_path / "ours")
    export_onnx(checkpoint, tmp_path / "onnx")
    written = json.loads((tmp_path / "onnx" / "generation_config.json").read_bytes())
    assert written == STORED
    texts = sentences(6)
    results = zoo.load(checkpoint.path, backend="cpu").seq2seq(texts)
    assert zoo.load(tmp_path / "onnx", backend="onnx").seq2seq(texts) == results


def test_settings_of_an_older_config_count_without_the_file(t5_hub: Path, tmp_path: Path) -> None:
    source = with_settings(t5_hub, tmp_path / "hub")
    (source / "generation_config.json").unlink()
    config = json.loads((source / "config.json").read_bytes())
    (source / "config.json").write_text(json.dumps({**config, "num_beams": 3, "max_length": 7}))
    stored = converted(source, tmp_path / "ours").model.generation
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(source)
    reference = reference.generation_config
    assert stored["num_beams"] == reference.num_beams == 3
    assert stored["max_length"] == reference.max_length == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"repetition_penalty": "high"},
        {"eos_token_id": [1, "x"]},
        {"eos_token_id": -3},
        {"num_beams": 10**9},
        {"suppress_tokens": list(range(200_000))},
        {"bad_words_ids": [[]]},
        {"sequence_bias": [[[1], "much"]]},
        {"guidance_scale": 2.0},
        {"watermarking_config": {"greenlist_ratio": 0.5}},
        {"stop_strings": ["\n"]},
        {"penalty_alpha": 0.6},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_cannot_be_honoured_is_one_line(
    changes: dict[str, Any], t5_hub: Path, tmp_path: Path
) -> None:
    source = with_settings(t5_hub, tmp_path / "hub", **changes)
    with pytest.raises(VerificationError, match=next(iter(changes))) as caught:
        converted(source, tmp_path / "ours")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert not (tmp_path / "ours").exists()


def test_nan_is_one_line(t5_hub: Path, tmp_path: Path) -> None:
    source = with_settings(t5_hub, tmp_path / "hub")
    (source / "generation_config.json").write_text('{"repetition_penalty": NaN}')
    with pytest.raises(VerificationError, match=r"generation_config\.json"):
        converted(source, tmp_path / "ours")


@pytest.mark.parametrize(
    ("stored", "given", "expected"),
    [
        ({"max_length": 9}, {"max_new_tokens": 30}, {"max_length": None, "max_new_tokens": 30}),
        ({"max_new_tokens": 9}, {"max_length": 30}, {"max_length": 30, "max_new_tokens": None}),
        ({"length_penalty": 2.0}, {}, {"length_penalty": 1.0}),
        ({"length_penalty": 2.0, "num_beams": 3}, {}, {"length_penalty": 2.0}),
        ({"length_penalty": 2.0, "num_beams": 3}, {"num_beams": 1}, {"length_penalty": 1.0}),
        ({"temperature": 0.7, "top_p": 0.9}, {}, {"temperature": None, "samples": False}),
        ({"do_sample": True}, {}, {"samples": True, "top_k": 50}),
        ({"do_sample": True, "top_k": 0}, {}, {"samples": True, "top_k": None}),
        ({"do_sample": True, "top_k": 7}, {"do_sample": False}, {"samples": False, "top_k": None}),
        ({"min_new_tokens": 50}, {"max_new_tokens": 8}, {"min_new_tokens": 8}),
    ],
)
def test_explicit_settings_win(
    stored: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    settings = generation_config(stored, given)
    assert {name: getattr(settings, name) for name in expected} == expected


def test_unknown_settings_and_wrong_types_are_refused() -> None:
    with pytest.raises(UsageError, match="repetition"):
        generation_config({}, {"repetition": 1.2})
    with pytest.raises(UsageError, match="top_k"):
        generation_config({}, {"top_k": "5"})
    with pytest.raises(UsageError, match="repetition_penalty"):
        generation_config({}, {"repetition_penalty": float("nan")})


def test_the_table_has_every_key_of_the_library() -> None:
    known = {k for k in vars(transformers.GenerationConfig()) if not k.startswith("_original")}
    missing = known - set(GENERATION_KEYS)
    assert sorted(missing) == []


def test_fine_tuning_keeps_the_settings(t5_hub: Path, tmp_path: Path) -> None:
    from tests.finetuning.making import finetune
    from tests.finetuning.making import settings as finetune_settings
    from tests.tasks.seq2seq.making import pairs

    model = converted(with_settings(t5_hub, tmp_path / "hub"), tmp_path / "ours").path
    tree = finetune_settings(
        "t5",
        pairs(tmp_path / "t.jsonl", 20),
        task="seq2seq",
        max_steps=1,
        eval_steps=1,
        save_steps=1,
    )
    tree |= {"init_from": {"model": str(model)}}
    tree["data"] |= {"text": "in", "label": "out"}
    for name in ("size", "config", "vocab_size"):
        tree.pop(name, None)
    run = finetune(tmp_path / "run", tree)
    assert load_checkpoint(run / "model").model.generation == STORED


def test_a_file_of_settings_and_its_errors(
    t5_hub: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options on the command line win over the file, and both over the checkpoint's settings."""
    model = converted(with_settings(t5_hub, tmp_path / "hub"), tmp_path / "ours").path
    file = tmp_path / "settings.json"

    def run(*options: str) -> tuple[Any, str, str]:
        words = ["run", "seq2seq", str(model), "the cat sat", "--backend", "cpu"]
        with pytest.raises(SystemExit) as ended:
            main([*words, "--generation-config", str(file), *options])
        return (ended.value.code or 0, *capsys.readouterr())

    file.write_text(json.dumps({"num_beams": 1, "max_new_tokens": 3, "pad_token_id": 0}))
    for options, most in (((), 3), (("--max-new-tokens", "5"), 5)):
        code, output, errors = run(*options)
        assert code == 0, errors
        task = zoo.load(model, backend="cpu").seq2seq
        (expected,) = task(["the cat sat"], num_beams=1, max_new_tokens=most)
        assert json.loads(output)["generated"] == expected["generated"]
    for text, found in (
        ('{"max_new_tokens": "many"}', "max_new_tokens"),
        ('{"stop_strings": ["a"]}', "stop_strings"),
        ("[1]", "settings.json"),
        ("{", "settings.json"),
        ('{"num_beems": 2}', "num_beems"),
    ):
        file.write_text(text)
        code, output, errors = run()
        assert (text, code in (2, 3), output) == (text, True, "")
        assert found in errors
        assert "bug in zoo" not in errors


@pytest.mark.long
def test_pretraining_keeps_the_settings_of_its_start(t5_hub: Path, tmp_path: Path) -> None:
    model = converted(with_settings(t5_hub, tmp_path / "hub"), tmp_path / "ours").path
    run = run_training(tmp_path / "run", "t5", init_from={"model": str(model)}, vocab_size=None)
    assert load_checkpoint(run / "model").model.generation == STORED


@pytest.mark.long
def test_a_student_takes_the_settings_of_its_teacher(t5_hub: Path, tmp_path: Path) -> None:
    model = converted(with_settings(t5_hub, tmp_path / "hub"), tmp_path / "ours").path
    tree = make_seq2seq_tree(tmp_path, {"recipe": "seq2seq"})
    tree["distillation"]["teachers"] = [str(model)]
    tree["student"] = {"name": "t5", "num_layers": 1, "num_decoder_layers": 1}
    run = distill(tmp_path / "run", tree)
    assert load_checkpoint(run / "model").model.generation == STORED
