"""Quantized exports: what is quantized, how far it agrees with float32, and what is refused."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner

from tests.exporting.conftest import Exported, with_tokenizer
from tests.exporting.graph.making import LAYERS, made
from tests.exporting.making import ListedLayers, export_onnx
from tests.inference.making import LABELS, make_checkpoint
from zoo.checkpoint import Checkpoint, load_checkpoint, load_text_tokenizer
from zoo.cli.models.export import command
from zoo.errors import UsageError, VerificationError
from zoo.exporting.quantization.agreement import (
    Summary,
    agreement,
    make_samples,
    require_different_scores,
    summaries,
)
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.quantize import quantizable, quantize
from zoo.exporting.quantization.search import select_quantized_layers
from zoo.exporting.report import Agreement
from zoo.inference import load_session
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.generate import generate
from zoo.inference.ort.session import GraphSession
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling
from zoo.tasks.metric import task_metric

INT8, INT4 = Quantization("int8"), Quantization("int4")
TEXTS = ["a b c d e", "ab j i", "c a b b a g e"]
PRODUCTS = ("attention.qkv", "attention.out", "ffn.up", "ffn.down")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A small GPT, its export in float32, int8 and int4, and the report."""
    folder = tmp_path_factory.mktemp("int4")
    checkpoint = made("second", folder / "model")
    plan = QuantizationPlan([INT8, INT4], max_drop=0.5)
    report = export_onnx(checkpoint, folder / "export", quantization=plan)
    return checkpoint, load_checkpoint(folder / "export"), report


def operators(path: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def test_every_product_and_the_embeddings_are_quantized(int8_encoder: Exported) -> None:
    _, export, report = int8_encoder
    before, after = (export.path / f"onnx/model{suffix}.onnx" for suffix in ("", "_quantized"))
    assert quantizable(before) == [
        "embeddings.tokens",
        *(f"layers.0.{product}" for product in PRODUCTS),
    ]
    counts = operators(after)
    # queries, keys and values are products of their own, which saves the split
    assert counts["MatMulInteger"] == len(PRODUCTS) + 2 and counts["Split"] == 0
    products = [node for node in onnx.load(after).graph.node if node.op_type == "MatMulInteger"]
    assert {len(node.input) for node in products} == {3}, "zero points of weights take time"
    assert counts["MatMul"] == 3  # scores and mixture of attention, and the pooler of one token
    domains = {node.domain for node in onnx.load(after).graph.node}
    assert domains == {""}, "int8 graphs run wherever standard operators do"
    copies = report.quantized["int8"]
    assert copies.layers == 5 and copies.float32_layers == []
    assert copies.method == "dynamic, smoothed"
    assert copies.bytes == after.stat().st_size < before.stat().st_size == copies.bytes_before
    assert copies.agreement.measure == "cosine" and copies.agreement.texts == 64
    assert 0 < copies.agreement.drop <= 0.01
    assert set(export.manifest.files) > {"onnx/model.onnx", "onnx/model_quantized.onnx"}


def test_each_row_of_the_embeddings_has_its_scale(int8_encoder: Exported) -> None:
    export = int8_encoder[1]
    before, after = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        for path in sorted((export.path / "onnx").glob("*.onnx"))
    )
    table = before["embeddings.tokens.weight"].astype(np.float64)
    rows, scales = after["embeddings.tokens.int8"], after["embeddings.tokens.scale"]
    assert rows.dtype == np.int8 and "embeddings.tokens.weight" not in after
    assert np.abs(rows).max(1).tolist() == [127] * len(table)
    assert np.all(np.abs(rows * scales.astype(np.float64) - table) <= scales * 0.5001)


@pytest.mark.parametrize("bias", [True, False])
def test_a_map_of_rows_stays_in_float32(bias: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((3, 64), np.float32), "b": np.ones(3, np.float32)}
    node = onnx.helper.make_node("Gemm", ["x", "w", "b"][: 2 + bias], ["y"], "map", transB=1)
    (x, y) = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", size])
        for name, size in (("x", 64), ("y", 3))
    )
    weights = [onnx.numpy_helper.from_array(arrays[name], name) for name in node.input[1:]]
    graph = onnx.helper.make_graph([node], "graph", [x], [y], weights)
    opsets = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "a")
    quantize(tmp_path / "a", tmp_path / "b", Quantization("int8"), [])
    rows = rng.standard_normal((2, 64), np.float32)
    session = onnxruntime.InferenceSession(tmp_path / "b", providers=["CPUExecutionProvider"])
    expected = rows @ arrays["w"].T + bias * arrays["b"]
    assert np.allclose(session.run(None, {"x": rows})[0], expected, atol=1e-5)


def test_a_session_runs_the_graph_of_a_dtype(int8_encoder: Exported) -> None:
    export = int8_encoder[1]
    batch = {"input_ids": np.array([[2, 6, 7, 3], [2, 9, 8, 3]])}
    sessions = [load_session(export, dtype=dtype) for dtype in (None, "int8")]
    assert [session.dtype for session in sessions] == ["float32", "int8"]
    full, quantized = (session.run(batch)["last_hidden_state"].ravel() for session in sessions)
    assert not np.array_equal(full, quantized)
    assert full @ quantized >= 0.99 * np.linalg.norm(full) * np.linalg.norm(quantized)
    with pytest.raises(UsageError, match="holds a graph in float32 and int8, not int4"):
        load_session(export, dtype="int4")


def test_vectors_are_pooled_as_the_model_does(tmp_path: Path) -> None:
    checkpoint = with_tokenizer(tmp_path, "none", hub_pooling_files(Pooling("cls"), 64))
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    plan = QuantizationPlan([INT8], max_drop=1.0, eval_file=texts)
    report = export_onnx(checkpoint, tmp_path / "export", quantization=plan)
    export, samples = load_checkpoint(tmp_path / "export"), make_samples(checkpoint, TEXTS)
    expected, actual = (
        np.concatenate(
            [session.run(sample.inputs)["last_hidden_state"][:, 0] for sample in samples]
        )
        for session in (load_session(export, "onnx", dtype=dtype) for dtype in ("float32", "int8"))
    )
    norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(actual, axis=1)
    cosine = ((expected * actual).sum(1) / norms).mean()
    assert report.quantized["int8"].agreement.cosine == pytest.approx(cosine, rel=1e-6)


def test_static_scales_come_from_the_texts(
    int8_encoder: Exported, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint, export, _ = int8_encoder
    source, target = export.path / "onnx/model.onnx", tmp_path / "static.onnx"
    samples = make_samples(checkpoint, TEXTS)
    inputs = [sample.inputs for sample in samples]
    method = Quantization("int8", static=True)
    quantize(source, target, method, quantizable(source), calibration=inputs)
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    counts = operators(target)
    assert counts["QuantizeLinear"] >= 4 and counts["DynamicQuantizeLinear"] == 0
    assert capfd.readouterr().err == "", "ONNX Runtime warns of initializers that nothing reads"
    expected, actual = (
        np.concatenate(
            [
                s.vectors
                for s in summaries(GraphSession([path], checkpoint, cache=False).run, samples, spec)
            ]
        )
        for path in (source, target)
    )
    norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(actual, axis=1)
    assert ((expected * actual).sum(1) >= 0.98 * norms).all()


@pytest.mark.long
def test_blocks_of_four_bits_generate(decoder: Exported) -> None:
    _, export, report = decoder
    counts = operators(export.path / "onnx/model_q4.onnx")
    assert counts["MatMulNBits"] == len(PRODUCTS) * LAYERS + 1  # and the vocabulary, a tied table
    assert report.quantized["int4"].method == "block 32"
    releases = {dtype: copies.min_onnxruntime for dtype, copies in report.quantized.items()}
    # by loading these graphs in 1.15.1, 1.16.3, which refuses model_q4.onnx, and 1.17.3
    assert releases == {"int8": "1.15", "int4": "1.17"}
    tokens, settings = torch.tensor([[5, 9, 11, 4]]), GenerationConfig(max_new_tokens=5)
    for dtype in ("int8", "int4"):
        session = load_session(export, dtype=dtype)
        assert session.run({"input_ids": tokens.numpy()})["logits"].shape == (1, 4, 61)
        (generated,) = generate(session.decoder(), {"input_ids": tokens}, settings)
        assert len(generated) == 5


def test_a_tied_table_is_stored_once(decoder: Exported, tmp_path: Path) -> None:
    """As rows of embeddings and, transposed when the graph is loaded, as columns of the product."""
    path = decoder[1].path / "onnx/model_quantized.onnx"
    integers = [
        t for t in onnx.load(path).graph.initializer if t.data_type == onnx.TensorProto.INT8
    ]
    assert [tuple(t.dims) for t in integers if 61 in t.dims] == [(61, 32)]
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    graph = onnx.load(tmp_path / "optimized.onnx").graph
    constants = {t.name: tuple(t.dims) for t in graph.initializer}
    products = [node for node in graph.node if node.op_type == "DynamicQuantizeMatMul"]
    assert [constants[node.input[1]] for node in products if node.output[0] == "logits"] == [
        (32, 61)
    ]


@pytest.mark.long
def test_copies_keep_large_weights_in_files_of_their_own(decoder: Exported, tmp_path: Path) -> None:
    checkpoint, export, _ = decoder
    plan = QuantizationPlan([INT8, INT4], max_drop=0.5)
    report = export_onnx(checkpoint, tmp_path / "export", quantization=plan, external_over=1000)
    external = load_checkpoint(tmp_path / "export")
    tokens = {"input_ids": np.array([[5, 9, 11, 4]])}
    for dtype, name in (("int8", "model_quantized"), ("int4", "model_q4")):
        files = [f"onnx/{name}.onnx", f"onnx/{name}.onnx_data"]
        assert external.manifest.files.keys() >= {*files}
        sizes = [(external.path / file).stat().st_size for file in files]
        assert report.quantized[dtype].bytes == sum(sizes)
        outputs = [load_session(path, dtype=dtype).run(tokens) for path in (export, external)]
        assert np.array_equal(outputs[0]["logits"], outputs[1]["logits"])
    (external.path / "onnx/model_quantized.onnx_data").write_bytes(b"")
    with pytest.raises(VerificationError, match="model_quantized"):
        load_session(external, dtype="int8")


@pytest.mark.long
def test_labelled_data_measures_the_metric_of_the_task(tmp_path: Path) -> None:
    checkpoint = with_tokenizer(tmp_path, "sequence-classification")
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(list("abcdefghij"), 6)) for _ in range(40)]
    labels = [LABELS[number] for number in generator.integers(0, len(LABELS), 40)]
    table = tmp_path / "dev.tsv"
    rows = [f"{text}\t{label}" for text, label in zip(texts, labels, strict=True)]
    table.write_text("\n".join(["sentence\tlabel", *rows]))
    metric = task_metric(checkpoint, table, {"text": "sentence"})
    plan = QuantizationPlan([INT8], max_drop=1.0, metric=metric)
    report = export_onnx(checkpoint, tmp_path / "export", quantization=plan)
    measured = report.quantized["int8"].agreement
    ids = [text.ids for text in load_text_tokenizer(checkpoint).encode(texts, max_tokens=None)]
    accuracies = []
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # exact on every CPU
    for file in ("model.onnx", "model_quantized.onnx"):
        session = onnxruntime.InferenceSession(tmp_path / "export/onnx" / file, options)
        ones, zeros = np.ones_like(ids), np.zeros_like(ids)
        feeds = {"input_ids": ids, "attention_mask": ones, "token_type_ids": zeros}
        (logits,) = session.run(None, feeds)
        accuracies.append(np.mean(np.array(LABELS)[logits.argmax(-1)] == labels))
    assert measured.measure == "accuracy" and 0.1 < accuracies[0] < 0.9
    assert [measured.reference_metric, measured.metric] == pytest.approx(accuracies)
    assert measured.drop == pytest.approx(max(0, 1 - accuracies[1] / accuracies[0]))
    assert "; accuracy 0." in measured.line() and measured.texts == 64
    assert task_metric(checkpoint, tmp_path / "texts.txt", {}) is None
    with pytest.raises(UsageError, match="no metric on labelled data is for masked-lm"):
        task_metric(make_checkpoint(tmp_path / "lm", "masked-lm"), table, {})


# test_scores_of_other_texts_do_not_agree has this measure without an export.
@pytest.mark.long
def test_a_single_logit_is_correlated(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(
        tmp_path / "model", "sequence-classification", labels=("score",), num_layers=1
    )
    plan = QuantizationPlan([INT8], max_drop=0.9)
    report = export_onnx(checkpoint, tmp_path / "export", quantization=plan)
    measured = report.quantized["int8"].agreement
    export = load_checkpoint(tmp_path / "export")
    batches = [sample.inputs for sample in make_samples(checkpoint, TEXTS)]
    scores = []
    for dtype in ("float32", "int8"):
        session = load_session(export, "onnx", dtype=dtype)
        scores.append(np.concatenate([session.run(batch)["logits"][:, 0] for batch in batches]))
    correlation = float(np.corrcoef(np.stack(scores))[0, 1])
    assert (measured.measure, measured.argmax) == ("correlation", None)
    assert measured.correlation == pytest.approx(correlation, rel=1e-6)
    assert measured.drop == pytest.approx(1 - correlation, rel=1e-3) and measured.drop > 0
    assert f"correlation of the scores {correlation:.4f}" in measured.line()


def test_scores_of_other_texts_do_not_agree(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(
        tmp_path / "model", "sequence-classification", labels=("score",), num_layers=1
    )
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    samples = make_samples(checkpoint, TEXTS)

    def scores(sign: float) -> list[Summary]:
        return summaries(
            lambda inputs: {"logits": sign * inputs["input_ids"][:, :1]}, samples, spec
        )

    assert agreement(scores(1), scores(2), spec).drop == pytest.approx(0)
    assert agreement(scores(1), scores(-1), spec).drop == pytest.approx(2)
    assert agreement(scores(1), scores(0), spec).drop == pytest.approx(1)
    with pytest.raises(UsageError, match=r"texts are equal.*; give --eval FILE"):
        require_different_scores(scores(0))


@pytest.mark.parametrize(
    ("before", "after", "drop"),
    [(0.8, 0.6, 0.25), (0.8, 0.9, 0), (-0.5, -0.6, 0.2), (0, 0, 0), (0, -0.1, np.inf)],
)
def test_the_drop_of_a_metric_is_relative(before: float, after: float, drop: float) -> None:
    measured = Agreement(texts=1, measure="cosine", drop=0.5, cosine=0.5)
    assert measured.with_metric("pearson", before, after).drop == pytest.approx(drop)


def additive(drops: Mapping[str, float]) -> Any:
    """Return a measure that adds the drops of quantized layers."""

    def measure(folder: Path) -> Agreement:
        drop = sum(drops[layer] for layer in ListedLayers.read(folder))
        return Agreement(texts=1, measure="cosine", drop=drop, cosine=1 - drop)

    return measure


def test_the_fewest_and_worst_layers_stay_in_float32() -> None:
    drops = dict(zip("abcdef", (1, 50, 2, 30, 3, 4), strict=True))
    measure = additive(drops)
    model = ListedLayers("abcdef")
    result = select_quantized_layers(model, measure, measure, 10, "int8")
    assert result.higher_precision == ["b", "d"]
    assert result.quantized == ["f", "e", "c", "a"]
    assert result.agreement.drop == 10
    accepted = select_quantized_layers(model, measure, measure, 90, "int8")
    assert accepted.higher_precision == []
    with pytest.raises(VerificationError, match="no single layer stays within") as caught:
        select_quantized_layers(model, measure, measure, 0.5, "int8")
    assert caught.value.exit_code == 3


def test_what_does_not_agree_leaves_no_files(sentence_encoder: Checkpoint, tmp_path: Path) -> None:
    plan = QuantizationPlan([INT8], max_drop=0.0)
    with pytest.raises(VerificationError, match=r"changes the cosine by .*--max-drop accepts more"):
        export_onnx(sentence_encoder, tmp_path / "export", quantization=plan)
    assert [path.name for path in tmp_path.iterdir() if path.name != "zoo-home"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--int4"], "int4 is for models that generate text with a key-value cache"),
        (["--int8", "static"], "static scales need texts; give --calibration FILE"),
        (["--int8", "static", "--calibration", "empty.txt"], "empty.txt has no texts"),
        (["--int8", "--eval", "missing.txt"], "cannot read missing.txt"),
        (["--int8", "--eval", "empty.txt", "--label", "gold"], "--label names a column of a table"),
        (["--int8", "--eval", "missing.tsv", "--pair", "second"], "cannot read missing.tsv"),
        (["--eval", "missing.txt"], "--eval is for quantized models; give --int8 or --int4"),
        (["--max-drop", "0"], "--max-drop is for quantized models"),
        (["--text", "sentence"], "--text is for quantized models"),
        (["--int8", "--block-size", "32"], "--block-size is for quantized models; give --int4"),
        (["--int8", "--calibration", "empty.txt"], "--calibration is .*; give --int8 static"),
        (["--int8", "--dtype", "float16"], "copies are made of a graph in float32, not float16"),
    ],
)
def test_wrong_options_are_one_line(
    sentence_encoder: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n")
    arguments = [str(sentence_encoder.path), "--onnx", "-o", "out", *options]
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert not (tmp_path / "out").exists()


def test_int4_without_a_cache(tmp_path: Path) -> None:
    checkpoint = made("second", tmp_path / "model", layers=1)
    with pytest.raises(UsageError, match="with a key-value cache; leave --no-cache out"):
        QuantizationPlan([INT4]).check(checkpoint, "float32", cache=False)


def test_the_model_is_no_value_of_int8(sentence_encoder: Checkpoint) -> None:
    done = CliRunner().invoke(command, ["--onnx", "--int8", str(sentence_encoder.path)])
    assert done.exit_code == 2
    assert "is not one of 'dynamic', 'static'. Give the model before this option" in done.output
