"""Models with more positions, against tables worked by hand and transformers' classes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import zoo
from tests.checkpoints import Make, byte_level_roberta, hub_checkpoint
from tests.in_process import exit_code
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.conformance.hf_reference import keep_float64
from zoo.conversion.report import ConversionReport
from zoo.errors import UsageError
from zoo.inference.load_model import load_model

__all__ = ["hub_checkpoint"]
LONG = 100  # Tokens of a grown model.
POSITIONS = 40  # Of a source.
IDS = torch.randint(5, 17, (2, LONG), generator=torch.Generator().manual_seed(0))


def logits(path: Path, ids: torch.Tensor = IDS) -> torch.Tensor:
    """Return the logits of a checkpoint in float64."""
    model: Any = load_model(load_checkpoint(path), torch.float64)
    with torch.inference_mode():
        values: torch.Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids))["logits"]
    return values


def reference_logits(architecture: str, path: Path) -> torch.Tensor:
    """Return the logits of transformers' class in float64."""
    model = getattr(transformers, architecture).from_pretrained(path, dtype=torch.float64).eval()
    with torch.inference_mode(), keep_float64():
        values: torch.Tensor = model(IDS).logits
    return values


def texts(folder: Path) -> Path:
    """Write a file with a line of many tokens."""
    file = folder / "texts.txt"
    file.write_text(" ".join("abcdefghij" * 8))
    return file


@pytest.mark.parametrize("method", ["repeat", "interpolate"])
def test_learned_positions_of_an_encoder(hub_checkpoint: Make, tmp_path: Path, method: Any) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    output = tmp_path / "longer"
    report = zoo.convert(
        source,
        output=output,
        max_seq_len=LONG,
        position_init=method,
        eval=texts(tmp_path) if method == "repeat" else (),
    )
    checkpoint = load_checkpoint(output)
    assert check_digests(output)
    assert checkpoint.family.max_seq_len(checkpoint.config) == LONG
    assert checkpoint.model.tokenizer is not None
    assert checkpoint.model.tokenizer.max_tokens in (None, LONG)
    name = "bert.embeddings.position_embeddings.weight"
    table = load_file(source / "model.safetensors")[name].numpy()
    places = np.arange(LONG) % POSITIONS
    expected = table[places]
    if method == "interpolate":
        columns = [
            np.interp(np.linspace(0, POSITIONS - 1, LONG), np.arange(POSITIONS), column)
            for column in table.T.astype(np.float64)
        ]
        expected = np.stack(columns, 1).astype(np.float32)
    with checkpoint.open_weights() as reader:
        grown = reader.read("embeddings.positions.weight")
    np.testing.assert_allclose(np.array(grown).view(np.float32), expected, rtol=1e-6)
    record = checkpoint.manifest.account["grown_positions"]
    assert record["old_max_seq_len"] == POSITIONS and record["max_seq_len"] == LONG
    assert record["method"] == method
    zoo.convert(output, output=tmp_path / "again")  # Another conversion keeps the record.
    assert load_checkpoint(tmp_path / "again").manifest.account["grown_positions"] == record
    if method == "interpolate":
        assert record["before"] is None
        return
    # The text is cut at the limit of each model, special tokens included.
    assert record["before"]["tokens"] == POSITIONS - 2
    assert record["after"]["tokens"] == 80
    assert isinstance(report, ConversionReport) and report.growth is not None
    assert record == report.growth.to_dict()
    (line,) = [line for line in report.lines() if line.startswith("  perplexity")]
    assert f"{record['before']['perplexity']:.4g} before" in line
    short = IDS[:, :POSITIONS]
    converted = tmp_path / "plain"
    zoo.convert(source, output=converted)
    assert torch.equal(logits(output, short), logits(converted, short))


def test_rows_of_padding_stay_where_positions_begin_after_them(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = byte_level_roberta(hub_checkpoint, "RobertaForMaskedLM")
    output = tmp_path / "hub"
    zoo.convert(source, output=output, to="hub", max_seq_len=LONG)
    name = "roberta.embeddings.position_embeddings.weight"
    old = load_file(source / "model.safetensors")[name]
    new = load_file(output / "model.safetensors")[name]
    texts_rows = old[2:]
    assert torch.equal(new[:2], old[:2])
    assert torch.equal(new[2:], texts_rows.repeat(3, 1)[:LONG])
    assert json.loads((output / "config.json").read_text())["max_position_embeddings"] == LONG + 2
    zoo.convert(output, output=tmp_path / "again")
    expected = reference_logits("RobertaForMaskedLM", output)
    assert float((logits(tmp_path / "again") - expected).abs().max()) <= 1e-9


def test_encoder_and_decoder_grow(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint(
        "BartForConditionalGeneration", tokenizer=False, d_model=16, encoder_layers=1,
        decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2,
        decoder_attention_heads=2,
    )  # fmt: skip
    zoo.convert(source, output=tmp_path / "hub", to="hub", max_seq_len=LONG)
    old = load_file(source / "model.safetensors")
    new = load_file(tmp_path / "hub" / "model.safetensors")
    for part in ("encoder", "decoder"):
        name = f"model.{part}.embed_positions.weight"
        assert torch.equal(new[name][:2], old[name][:2])
        assert torch.equal(new[name][2:], old[name][2:].repeat(3, 1)[:LONG])


def llama(make: Make, **changes: Any) -> Path:
    return make("LlamaForCausalLM", tokenizer=False, **changes)


@pytest.mark.parametrize(
    ("architecture", "scaling"),
    [
        ("LlamaForCausalLM", "linear"),
        ("LlamaForCausalLM", "dynamic"),
        ("LlamaForCausalLM", "yarn"),
        ("GPTNeoXForCausalLM", "dynamic"),
        ("GPTNeoXForCausalLM", "yarn"),
        ("EuroBertForMaskedLM", "linear"),
        ("EuroBertForMaskedLM", "yarn"),
        ("ModernBertForMaskedLM", "dynamic"),
        ("ModernBertForMaskedLM", "yarn"),
        ("ModernBertDecoderForCausalLM", "linear"),
        pytest.param("GteForMaskedLM", "linear", marks=pytest.mark.long),
        ("GteForMaskedLM", "dynamic"),
        ("GteForMaskedLM", "yarn"),
        ("NomicBertForMaskedLM", "linear"),
        ("NomicBertForMaskedLM", "dynamic"),
        pytest.param("NomicBertForMaskedLM", "yarn", marks=pytest.mark.long),
        ("JinaEmbeddingsV3ForMaskedLM", "linear"),
        pytest.param("JinaEmbeddingsV3ForMaskedLM", "dynamic", marks=pytest.mark.long),
        ("JinaEmbeddingsV3ForMaskedLM", "yarn"),
    ],
)
def test_rotary_frequencies_are_those_of_transformers(
    hub_checkpoint: Make, tmp_path: Path, architecture: str, scaling: Any
) -> None:
    # A quarter of the width of a head is rotated in GPT-NeoX: 8 of 32 here.
    heads = 1 if architecture.startswith("GPTNeoX") else 4
    source = hub_checkpoint(
        architecture, tokenizer=False, pad_token_id=0, num_attention_heads=heads
    )
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, rope_scaling=scaling)
    zoo.convert(tmp_path / "model", output=tmp_path / "hub", to="hub")
    checkpoint = load_checkpoint(tmp_path / "model")
    assert checkpoint.family.max_seq_len(checkpoint.config) == LONG
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    # Blocks with windows keep their frequencies.
    rope = config["rope_parameters"].get("full_attention", config["rope_parameters"])
    assert rope["rope_type"] == scaling
    assert rope["factor"] == LONG / POSITIONS
    is_dynamic = scaling == "dynamic"
    assert config["max_position_embeddings"] == (POSITIONS if is_dynamic else LONG)
    expected = reference_logits(architecture, tmp_path / "hub")
    assert float((logits(tmp_path / "model") - expected).abs().max()) <= 1e-9
    zoo.convert(tmp_path / "hub", output=tmp_path / "again")
    assert load_checkpoint(tmp_path / "again").config == checkpoint.config


def test_perplexity_of_a_rotary_encoder_is_measured(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("GteForMaskedLM", pad_token_id=0)
    output = tmp_path / "model"
    zoo.convert(source, output=output, max_seq_len=LONG, eval=texts(tmp_path))
    record = load_checkpoint(output).manifest.account["grown_positions"]
    assert record["method"] == "yarn"
    assert (record["before"]["tokens"], record["after"]["tokens"]) == (POSITIONS - 2, 80)
    assert record["before"]["perplexity"] > 1 and record["after"]["perplexity"] > 1


def test_perplexity_of_a_decoder_is_measured(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = byte_level_roberta(hub_checkpoint, "GPT2LMHeadModel", n_positions=POSITIONS)
    (source / "tokenizer_config.json").write_text('{"bos_token": "a", "eos_token": "a"}')
    file = tmp_path / "texts.txt"
    file.write_text("the cat sat on the mat and the dog sat on the log. " * 8)
    output = tmp_path / "model"
    zoo.convert(source, output=output, max_seq_len=LONG, eval=file)
    record = load_checkpoint(output).manifest.account["grown_positions"]
    # Each token of the text is scored once, in windows of both lengths.
    assert record["before"]["tokens"] == record["after"]["tokens"] > LONG
    result = zoo.evaluate(output, task="perplexity", eval=file, backend="cpu", record=False)
    assert record["after"]["perplexity"] == pytest.approx(result.metrics["perplexity"])
    plain = tmp_path / "plain"
    zoo.convert(source, output=plain)
    result = zoo.evaluate(plain, task="perplexity", eval=file, backend="cpu", record=False)
    assert record["before"]["perplexity"] == pytest.approx(result.metrics["perplexity"])


def refuse(arguments: Sequence[object], capsys: pytest.CaptureFixture[str]) -> str:
    """Run ``zoo convert``, which is wrong usage; return its one line."""
    code = exit_code(["convert", *map(str, arguments)])
    error = capsys.readouterr().err
    assert code == 2, error
    lines = [line for line in error.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in error
    return lines[0]


@pytest.mark.parametrize(
    ("architecture", "options", "message"),
    [
        ("BertModel", ["--max-seq-len", 40], "reads 40 tokens"),
        ("BertModel", ["--max-seq-len", 12], "give more than 40"),
        ("BertModel", ["--max-seq-len", "many"], "many"),
        ("BertModel", ["--max-seq-len", 1 << 40], "at most 1,048,576"),
        ("BertModel", ["--rope-scaling", "yarn"], "--rope-scaling is for --max-seq-len N"),
        ("BertModel", ["--max-seq-len", 80, "--rope-scaling", "yarn"], "are learned"),
        ("BertModel", ["--max-seq-len", 80, "--eval", "texts.txt"], "which predicts no tokens"),
        ("LlamaModel", ["--max-seq-len", 80, "--position-init", "repeat"], "are rotary"),
        ("BloomModel", ["--max-seq-len", 80], "reads texts of any length"),
    ],
)
def test_what_does_not_grow_is_one_line(
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    architecture: str,
    options: list[object],
    message: str,
) -> None:
    source = hub_checkpoint(architecture, tokenizer=architecture == "BertModel")
    texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = refuse([source, "-o", tmp_path / "output", *options], capsys)
    assert message in line
    assert not (tmp_path / "output").exists()


def test_scaled_frequencies_are_not_scaled_again(
    hub_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = llama(hub_checkpoint)
    zoo.convert(source, output=tmp_path / "once", max_seq_len=80)
    line = refuse([tmp_path / "once", "-o", tmp_path / "twice", "--max-seq-len", 160], capsys)
    assert "scaled already: rope_type yarn" in line


def test_a_dry_run_checks_the_growth(
    hub_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = llama(hub_checkpoint)
    assert zoo.convert(source, max_seq_len=80, dry_run=True).path is None
    refuse([source, "--dry-run", "--max-seq-len", 8], capsys)


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("BertForMaskedLM", {}),
        ("LlamaForCausalLM", {"rope_scaling": "yarn"}),
        ("LlamaForCausalLM", {"rope_scaling": "dynamic"}),
        ("GteForMaskedLM", {"rope_scaling": "dynamic"}),
        ("NomicBertForMaskedLM", {"rope_scaling": "yarn"}),
    ],
)
def test_a_grown_model_is_exported(
    hub_checkpoint: Make, tmp_path: Path, architecture: str, options: dict[str, Any]
) -> None:
    source = hub_checkpoint(architecture, tokenizer=False)
    zoo.convert(source, output=tmp_path / "model", max_seq_len=LONG, **options)
    is_encoder = architecture.endswith("MaskedLM")
    if options.get("rope_scaling") == "dynamic" and not is_encoder:
        # Cached keys would have the frequencies of shorter rows.
        with pytest.raises(UsageError, match="cannot be cached"):
            zoo.export(tmp_path / "model", output=tmp_path / "onnx")
    cache = None if is_encoder else False
    zoo.export(tmp_path / "model", output=tmp_path / "onnx", cache=cache)
    session = zoo.load(tmp_path / "onnx", backend="onnx").session
    inputs = {"input_ids": IDS.numpy(), "attention_mask": np.ones_like(IDS.numpy())}
    for tokens in (LONG, 12):
        rows = {name: values[:, :tokens] for name, values in inputs.items()}
        actual = session.run(rows, ("logits",))["logits"]
        expected = logits(tmp_path / "model", IDS[:, :tokens]).numpy()
        assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max()
