"""The snippets of the model card of an ONNX export print the results of ``zoo run``."""

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from huggingface_hub import ModelCard
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

from tests import warm
from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.making import export_onnx
from tests.exporting.making import model as sentence_model
from tests.exporting.targets.cards import (
    assert_equal,
    in_node,
    in_old_python,
    in_process,
    javascript,
    old_python,
    snippets,
    zoo_embeddings,
    zoo_results,
)
from tests.exporting.targets.conftest import Small, small
from tests.inference.conftest import converted, packaged
from tests.tasks.sentence_embedding.making import save
from zoo.checkpoint import Checkpoint
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan

__all__ = ["hub_checkpoint", "javascript", "old_python", "packaged", "small"]
CONTEXT = "c d e f g h"
PROMPTS = {"query": "b a ", "passage": "d c "}
# name -> mode, whether embeddings are normalized, settings of sentence-transformers
ENCODERS: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "mean": ("mean", False, {}),
    "mean, normalized": ("mean", True, {}),
    "cls, normalized": ("cls", True, {}),
    "last token": ("lasttoken", False, {}),
    "prompts": ("mean", True, {"prompts": PROMPTS}),
    "default prompt": ("cls", False, {"prompts": PROMPTS, "default_prompt_name": "passage"}),
    "cut": ("mean", False, {"truncate_dim": 8}),
    "matryoshka": ("mean", True, {}),
}
ALL = ["zoo", "Transformers.js", "sentence-transformers", "optimum", "ONNX Runtime"]


def encoder(name: str, make: Make, folder: Path, **options: Any) -> Path:
    """Write the export of a sentence encoder."""
    export_onnx(save_encoder(name, make, folder), folder / "export", **options)
    return folder / "export"


def save_encoder(name: str, make: Make, folder: Path) -> Checkpoint:
    """Write a sentence encoder."""
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    mode, normalized, settings = ENCODERS[name]
    modules: list[Any] = [Pooling(32, mode)]
    if normalized:
        modules.append(Normalize())
    save(make("BertModel", num_hidden_layers=1), folder / "hub", modules, **settings)
    checkpoint = converted(folder / "hub", folder / "model")
    if name == "matryoshka":
        training = {"task_args": {"matryoshka": [8, 32]}}
        checkpoint = replace(
            checkpoint, manifest=msgspec.structs.replace(checkpoint.manifest, training=training)
        )
    return checkpoint


def arrays_of(code: str, python: Path) -> dict[str, Any]:
    """Return the embeddings of a snippet by the names of their variables."""
    names = ["embeddings", "queries", "documents", "short"]
    return in_old_python(code, python, names)[0]


@pytest.mark.by_default("mean")
@pytest.mark.parametrize("name", ENCODERS)
def test_onnx_runtime_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    programs = snippets(export)
    assert list(programs) == ALL
    assert_equal(in_process(programs["ONNX Runtime"])[0]["embeddings"], export)
    for program in ("sentence-transformers", "optimum"):
        compile(programs[program], program, "exec")
    settings = json.loads((export / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 8
    note = "Transformers.js drops the final `[SEP]` of a text of more than 8 tokens"
    assert note in (export / "README.md").read_text()


@pytest.mark.long
def test_onnx_runtime_reads_a_pooled_graph(hub_checkpoint: Make, tmp_path: Path) -> None:
    export = encoder("prompts", hub_checkpoint, tmp_path, pooled=True)
    code = snippets(export)["ONNX Runtime"]
    assert "sentence_embedding" in code
    assert_equal(in_process(code)[0]["embeddings"], export)


def test_the_metadata_finds_an_encoder(hub_checkpoint: Make, tmp_path: Path) -> None:
    export = encoder("matryoshka", hub_checkpoint, tmp_path)
    data = ModelCard.load(export / "README.md").data
    assert data.tags == [
        "onnx",
        "sentence-transformers",
        "sentence-similarity",
        "feature-extraction",
    ]
    assert data.pipeline_tag == "sentence-similarity"


@pytest.mark.long
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_js_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    logged = in_node(snippets(export)["Transformers.js"], export, javascript)
    if name == "matryoshka":
        short = logged.pop()
        np.testing.assert_allclose(short, zoo_embeddings(export, short=True), rtol=0, atol=1e-5)
    assert_equal(np.concatenate(logged), export)


@pytest.mark.long
def test_transformers_js_reads_a_pooled_graph(
    hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    export = encoder("prompts", hub_checkpoint, tmp_path, pooled=True)
    code = snippets(export)["Transformers.js"]
    assert "sentence_embedding" in code
    assert_equal(in_node(code, export, javascript)[0], export)


@pytest.mark.long
@pytest.mark.parametrize("name", ENCODERS)
def test_optimum_computes_the_embeddings(
    name: str, hub_checkpoint: Make, tmp_path: Path, old_python: Path
) -> None:
    export = encoder(name, hub_checkpoint, tmp_path)
    programs = snippets(export)
    assert_equal(arrays_of(programs["optimum"], old_python)["embeddings"], export)
    vectors = arrays_of(programs["sentence-transformers"], old_python)
    if name == "matryoshka":
        short = zoo_embeddings(export, short=True)
        np.testing.assert_allclose(vectors["short"], short, rtol=0, atol=1e-5)
    if "queries" in vectors:
        assert_equal(vectors["queries"] + vectors["documents"][:1], export)
    else:
        assert_equal(vectors["embeddings"], export)


@pytest.mark.long
def test_the_snippets_open_the_precision_that_was_asked_for(
    packaged: Path, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    """The real MiniLM in int8, whose activations have a scale that depends on the whole batch.

    Kernels of other releases of ONNX Runtime also round differently.
    """
    export = tmp_path / "export"
    plan = QuantizationPlan(methods=(Quantization("int8"),))
    export_onnx(converted(packaged, tmp_path / "model"), export, quantization=plan)
    programs = snippets(export)
    assert [name for name in ALL[2:] if "quantized" not in programs[name]] == []
    assert '{ dtype: "q8" }' in programs["Transformers.js"] and "--dtype int8" in programs["zoo"]
    assert_equal(in_process(programs["ONNX Runtime"])[0]["embeddings"], export, 2e-3)
    assert_equal(in_node(programs["Transformers.js"], export, javascript)[0], export, 2e-2)
    for program in ("optimum", "sentence-transformers"):
        assert_equal(arrays_of(programs[program], old_python)["embeddings"], export, 2e-2)


HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "label": ("BertForSequenceClassification", {"num_labels": 3}),
    "labels": (
        "BertForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
    ),
    "number": ("BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "tokens": ("BertForTokenClassification", {"num_labels": 3}),
}
# An export takes seconds: others are tested where the programs run that take minutes to install.
ONCE = ("label", "tokens")
SLOW = [pytest.param(name, marks=pytest.mark.long) for name in HEADS if name not in ONCE]
PROGRAMS = ["zoo", "Transformers.js", "optimum", "ONNX Runtime"]
QUESTION_ANSWERING: dict[str, dict[str, Any]] = {
    "BertForQuestionAnswering": {"initializer_range": 0.5},
    "DistilBertForQuestionAnswering": {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48},
}
PAIRS = [["A question?", "A text."], ["A question?", "Another text."]]


def classifier(name: str, make: Make, folder: Path) -> Path:
    """Write the export of a classifier."""
    architecture, changes = HEADS[name]
    source = make(architecture, num_hidden_layers=1, **changes)
    export_onnx(converted(source, folder / "model"), folder / "export")
    return folder / "export"


def cross_encoder(make: Make, folder: Path) -> Path:
    """Write the export of a cross-encoder, whose score is a sigmoid."""
    export_onnx(sentence_model("cross-encoder", make, folder), folder / "export")
    return folder / "export"


def scores_of_pairs(export: Path) -> list[float]:
    """Return the scores of the command on the card, in the order of its texts."""
    results = sorted(zoo_results(export), key=lambda row: int(row["corpus_id"]))
    return [row["score"] for row in results]


@pytest.mark.long
@pytest.mark.parametrize("name", [*ONCE, *SLOW])
def test_onnx_runtime_classifies(name: str, hub_checkpoint: Make, tmp_path: Path) -> None:
    export = classifier(name, hub_checkpoint, tmp_path)
    programs = snippets(export)
    assert list(programs) == PROGRAMS
    (result,) = zoo_results(export)
    variables, printed = in_process(programs["ONNX Runtime"])
    if name == "number":
        np.testing.assert_allclose(variables["logits"][0], [result["score"]], rtol=1e-5)
    elif name == "tokens":
        expected = [f"{token['token']} {token['label']}" for token in result["tokens"]]
        assert printed.splitlines()[: len(expected)] == expected
    else:
        scores = list(result["scores"].values())
        np.testing.assert_allclose(variables["probabilities"][0], scores, rtol=1e-5)
    if name == "label":
        assert printed.split()[0] == result["label"]


@pytest.mark.long
def test_onnx_runtime_scores_pairs(hub_checkpoint: Make, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    export = cross_encoder(hub_checkpoint, tmp_path)
    programs = snippets(export)
    assert list(programs) == [*PROGRAMS[:2], "sentence-transformers", PROGRAMS[-1]]
    scores = in_process(programs["ONNX Runtime"])[0]["scores"]
    library: Any = CrossEncoder(str(tmp_path / "hub"), device="cpu")
    np.testing.assert_allclose(scores, library.predict(PAIRS), rtol=0, atol=1e-5)
    np.testing.assert_allclose(scores_of_pairs(export), scores, rtol=0, atol=1e-5)
    data = ModelCard.load(export / "README.md").data
    assert (data.pipeline_tag, data.tags) == (
        "text-ranking",
        ["onnx", "sentence-transformers", "cross-encoder", "reranker"],
    )


@pytest.mark.long
@pytest.mark.parametrize("name", HEADS)
def test_pipelines_classify(
    name: str, hub_checkpoint: Make, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    export = classifier(name, hub_checkpoint, tmp_path)
    programs = snippets(export)
    (result,) = zoo_results(export)
    (logged,) = in_node(programs["Transformers.js"], export, javascript)
    _, printed = in_old_python(programs["optimum"], old_python)
    rows = ast.literal_eval(printed.replace("np.float32", ""))
    if name == "number":
        np.testing.assert_allclose(logged, [[result["score"]]], rtol=1e-5)
        np.testing.assert_allclose(rows[0]["score"], result["score"], rtol=1e-5)
    elif name == "tokens":
        expected = [token["label"] for token in result["tokens"]]
        # Transformers.js leaves out tokens that it decodes to nothing, such as [UNK].
        assert logged and [expected[row["index"] - 1] for row in logged] == [
            row["entity"] for row in logged
        ]
        assert [row["entity"] for row in rows] == expected
    else:
        assert len(logged) == len(rows) == (3 if name == "labels" else 1)
        for row in (*logged, *rows):
            assert row["score"] == pytest.approx(result["scores"][row["label"]], rel=1e-5)


@pytest.mark.long
def test_transformers_js_fills_masks(
    hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    export = tmp_path / "export"
    export_onnx(converted(hub_checkpoint("BertForMaskedLM"), tmp_path / "model"), export)
    (result,) = zoo_results(export)
    (mask,) = result["masks"]
    (logged,) = in_node(snippets(export)["Transformers.js"], export, javascript)
    assert [row["token_str"] for row in logged] == [p["token"] for p in mask["predictions"]]
    for row, prediction in zip(logged, mask["predictions"], strict=True):
        assert row["score"] == pytest.approx(prediction["score"], rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("architecture", QUESTION_ANSWERING)
def test_transformers_js_answers_a_question(
    architecture: str, hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    """By its pipeline, or with the token types that the pipeline does not pass."""
    export = tmp_path / "export"
    source = hub_checkpoint(architecture, **QUESTION_ANSWERING[architecture])
    export_onnx(converted(source, tmp_path / "model"), export)
    code = snippets(export)["Transformers.js"]
    # The tokens of the small vocabulary are letters.
    code = code.replace('"A question?"', '"a b"').replace('"A text."', f'"{CONTEXT}"')
    (logged,) = in_node(code, export, javascript)
    answer = logged["answer"] if "pipeline" in code else logged
    done = warm.zoo("run", "answer", str(export), "a b", CONTEXT)
    assert done.returncode == 0, done.stderr
    assert answer == json.loads(done.stdout)["answer"]


@pytest.mark.long  # test_card_in_node.py in tools runs a snippet; this is one of another task
def test_javascript_passes_token_types_where_they_tell_the_question(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    export = tmp_path / "export"
    export_onnx(converted(hub_checkpoint("BertForQuestionAnswering"), tmp_path / "model"), export)
    code = snippets(export)["Transformers.js"]
    assert "return_token_type_ids: true" in code and "pipeline" not in code


@pytest.mark.long
def test_programs_score_pairs(
    hub_checkpoint: Make, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    export = cross_encoder(hub_checkpoint, tmp_path)
    programs = snippets(export)
    expected = scores_of_pairs(export)
    (logged,) = in_node(programs["Transformers.js"], export, javascript)
    np.testing.assert_allclose(np.array(logged)[:, 0], expected, rtol=0, atol=1e-5)
    arrays, _ = in_old_python(programs["sentence-transformers"], old_python, ["scores"])
    np.testing.assert_allclose(arrays["scores"], expected, rtol=0, atol=1e-5)


@pytest.mark.long
def test_programs_continue_a_text(
    small: Small, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    export = tmp_path / "export"
    export_onnx(small("GPT2LMHeadModel", bos_token_id=0, eos_token_id=0), export)
    programs = snippets(export)
    assert list(programs) == PROGRAMS[:3]
    assert zoo_results(export)
    expected = "A text" + generated(export, "generate", "A text")
    (logged,) = in_node(programs["Transformers.js"], export, javascript)
    assert logged == [{"generated_text": expected}]
    _, printed = in_old_python(programs["optimum"], old_python)
    assert ast.literal_eval(printed) == [{"generated_text": expected}]


@pytest.mark.long
def test_programs_generate_a_target(
    small: Small, tmp_path: Path, javascript: Path, old_python: Path
) -> None:
    export = tmp_path / "export"
    ends = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    export_onnx(small("T5ForConditionalGeneration", **ends), export)
    programs = snippets(export)
    assert list(programs) == PROGRAMS[:3]
    assert zoo_results(export)
    expected = generated(export, "seq2seq", "A text.")
    (logged,) = in_node(programs["Transformers.js"], export, javascript)
    assert logged == [{"generated_text": expected}]
    _, printed = in_old_python(programs["optimum"], old_python)
    assert ast.literal_eval(printed) == [expected]


def generated(export: Path, task: str, text: str) -> str:
    """Return the tokens that follow a text, as ``zoo run`` generates them greedily."""
    done = warm.zoo("run", task, str(export), text, "--max-new-tokens", "20")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["generated"])


@pytest.mark.long
def test_transformers_js_cuts_without_the_last_token(
    hub_checkpoint: Make, tmp_path: Path, javascript: Path
) -> None:
    """Its vector is the one of the first tokens without ``[SEP]``, as the card says."""
    export = encoder("mean", hub_checkpoint, tmp_path)
    text = " ".join("abcdefghij")  # 12 tokens, and the encoder reads 8
    code = snippets(export)["Transformers.js"].replace("A text.", text)
    (logged,) = in_node(code, export, javascript)
    tokenizer = Tokenizer.from_file(str(export / "tokenizer.json"))
    ids = np.array([tokenizer.encode(text).ids[:8]])
    session = InferenceSession(export / "onnx" / "model.onnx")
    inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    (tokens,) = session.run(["last_hidden_state"], inputs)
    np.testing.assert_allclose(logged[0], tokens[0].mean(0), rtol=0, atol=1e-5)
