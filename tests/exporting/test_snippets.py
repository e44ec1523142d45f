"""The snippets of model cards of other targets than ONNX print the results of ``zoo run``."""

import ast
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.making import model as sentence_model
from tests.exporting.targets.cards import (
    assert_equal,
    in_old_python,
    in_process,
    node_folder,
    old_python,
    run_node,
    snippets,
    zoo_embeddings,
    zoo_results,
)
from tests.exporting.targets.conftest import Small, small
from tests.exporting.targets.making import teacher
from tests.exporting.targets.test_onnx_snippets import PAIRS, generated, save_encoder
from tests.inference.conftest import converted
from zoo.checkpoint import Checkpoint
from zoo.exporting.gate import export_model
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings

__all__ = ["hub_checkpoint", "old_python", "small"]
SOURCE = 'await resolveModelFile("hf:{}/model.gguf")'


def export(checkpoint: Checkpoint, target: str, folder: Path, **settings: Any) -> Path:
    """Export a model to a folder."""
    plan = QuantizationPlan(max_drop=1.0)
    options = ExportSettings(quantization=plan, allow_tokenizer_differences=True, **settings)
    export_model(find_target(target), checkpoint, folder, options)
    return folder


def test_static_embeddings_are_encoded(hub_checkpoint: Make, tmp_path: Path) -> None:
    folder = export(
        converted(teacher(hub_checkpoint), tmp_path / "model"), "static", tmp_path / "e"
    )
    programs = snippets(folder)
    assert list(programs) == ["zoo", "sentence-transformers", "model2vec"]
    for program in ("sentence-transformers", "model2vec"):
        assert_equal(in_process(programs[program])[0]["embeddings"], folder)


@pytest.mark.by_default("mean, normalized")
@pytest.mark.parametrize("name", ["mean, normalized", "last token", "prompts", "cut"])
def test_ctranslate2_computes_embeddings(name: str, hub_checkpoint: Make, tmp_path: Path) -> None:
    folder = export(
        save_encoder(name, hub_checkpoint, tmp_path), "ctranslate2", tmp_path / "export"
    )
    programs = snippets(folder)
    assert list(programs) == ["zoo", "CTranslate2"]
    assert_equal(in_process(programs["CTranslate2"])[0]["embeddings"], folder, 1e-4)


@pytest.mark.long
def test_ctranslate2_continues_a_text(small: Small, tmp_path: Path) -> None:
    folder = export(small("GPT2LMHeadModel"), "ctranslate2", tmp_path / "export")
    _, printed = in_process(snippets(folder)["CTranslate2"])
    text = "A text." + generated(folder, "generate", "A text.")
    # Its 20 tokens include those of the prompt.
    assert len(printed) > len("A text. ") and text.startswith(printed.removesuffix("\n"))


@pytest.mark.long
def test_ctranslate2_generates_a_target(small: Small, tmp_path: Path) -> None:
    checkpoint = small("T5ForConditionalGeneration", decoder_start_token_id=0)
    folder = export(checkpoint, "ctranslate2", tmp_path / "export")
    _, printed = in_process(snippets(folder)["CTranslate2"])
    assert printed == generated(folder, "seq2seq", "A text.") + "\n"


@pytest.mark.long
def test_openvino_computes_embeddings(hub_checkpoint: Make, tmp_path: Path) -> None:
    folder = export(
        save_encoder("prompts", hub_checkpoint, tmp_path), "openvino", tmp_path / "export"
    )
    programs = snippets(folder)
    assert list(programs) == ["zoo", "sentence-transformers", "optimum", "OpenVINO"]
    assert_equal(in_process(programs["OpenVINO"])[0]["embeddings"], folder)
    for program in ("sentence-transformers", "optimum"):
        compile(programs[program], program, "exec")


@pytest.mark.long
def test_programs_of_openvino_compute_embeddings(
    hub_checkpoint: Make, tmp_path: Path, old_python: Path
) -> None:
    folder = export(
        save_encoder("mean, normalized", hub_checkpoint, tmp_path), "openvino", tmp_path / "e"
    )
    programs = snippets(folder)
    for program in ("sentence-transformers", "optimum"):
        arrays, _ = in_old_python(programs[program], old_python, ["embeddings"])
        assert_equal(arrays["embeddings"], folder)


@pytest.mark.long
def test_programs_of_openvino_classify(
    hub_checkpoint: Make, tmp_path: Path, old_python: Path
) -> None:
    source = hub_checkpoint("BertForSequenceClassification", num_labels=3)
    folder = export(converted(source, tmp_path / "model"), "openvino", tmp_path / "export")
    programs = snippets(folder)
    assert list(programs) == ["zoo", "optimum", "OpenVINO"]
    (result,) = zoo_results(folder)
    probabilities = in_process(programs["OpenVINO"])[0]["probabilities"]
    np.testing.assert_allclose(probabilities[0], list(result["scores"].values()), rtol=1e-4)
    _, printed = in_old_python(programs["optimum"], old_python)
    (row,) = ast.literal_eval(printed)
    assert row["label"] == result["label"]
    assert row["score"] == pytest.approx(result["score"], rel=1e-4)


@pytest.mark.long
def test_programs_of_openvino_score_pairs(
    hub_checkpoint: Make, tmp_path: Path, old_python: Path
) -> None:
    from sentence_transformers import CrossEncoder

    checkpoint = sentence_model("cross-encoder", hub_checkpoint, tmp_path)
    folder = export(checkpoint, "openvino", tmp_path / "export")
    programs = snippets(folder)
    assert list(programs) == ["zoo", "sentence-transformers", "OpenVINO"]
    library: Any = CrossEncoder(str(tmp_path / "hub"), device="cpu")
    expected = library.predict(PAIRS)
    scores = in_process(programs["OpenVINO"])[0]["scores"]
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
    arrays, _ = in_old_python(programs["sentence-transformers"], old_python, ["scores"])
    np.testing.assert_allclose(arrays["scores"], expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with node-llama-cpp."""
    return node_folder(tmp_path_factory, "node-llama-cpp")


# Options of llama.cpp's programs (common/arg.cpp) that take a value -> their keys in this file.
LLAMA_OPTIONS = {
    "--hf-repo": "repository",
    "--hf-file": "file",
    "--embd-normalize": "normalize",
    "--temp": "temperature",
    "-n": "tokens",
    "-p": "prompt",
}
EMBEDDING = """
import {{ getLlama }} from "node-llama-cpp";
const llama = await getLlama();
const model = await llama.loadModel({{ modelPath: {file} }});
const context = await model.createEmbeddingContext();
const {{ vector }} = await context.getEmbeddingFor({prompt});
console.log([...vector]);
"""
COMPLETION = """
import {{ getLlama, LlamaCompletion }} from "node-llama-cpp";
const llama = await getLlama();
const model = await llama.loadModel({{ modelPath: {file} }});
const context = await model.createContext();
const completion = new LlamaCompletion({{ contextSequence: context.getSequence() }});
const options = {{ maxTokens: {tokens}, temperature: {temperature} }};
console.log(await completion.generateCompletion({prompt}, options));
"""


def commands_of_llama(folder: Path) -> list[tuple[str, dict[str, str]]]:
    """Return each command of the card for llama.cpp: its program, and the values of its options."""
    commands = []
    for line in snippets(folder)["llama.cpp"].splitlines():
        program, *words = shlex.split(line.removeprefix("$ "))
        if "-no-cnv" in words:
            words.remove("-no-cnv")
        pairs = zip(words[::2], words[1::2], strict=True)
        values = {LLAMA_OPTIONS[name]: value for name, value in pairs}
        assert (values["repository"], values["file"]) == (str(folder), "model.gguf")
        commands.append((program, values))
    return commands


def run_commands_of_llama(folder: Path, llama: Path, program: str, code: str) -> list[Any]:
    """Return what node-llama-cpp computes for the options of the card's commands.

    The programs of llama.cpp are not on package registries; node-llama-cpp is built from the same
    release, and gets what the commands say.
    """
    results = []
    for name, values in commands_of_llama(folder):
        assert name == program
        texts = {"file": f"{folder}/model.gguf", "prompt": values["prompt"]}
        quoted = {key: json.dumps(value) for key, value in texts.items()}
        (result,) = run_node(code.format(**{**values, **quoted}), llama)
        if values.get("normalize") == "2":  # Divided by the Euclidean norm; -1 leaves a vector.
            result = (np.array(result) / np.linalg.norm(result)).tolist()
        results.append(result)
    return results


def in_llama(folder: Path, llama: Path) -> list[Any]:
    """Return what the snippet of a GGUF file logs."""
    code = snippets(folder)["node-llama-cpp"]
    assert SOURCE.format(folder) in code
    return run_node(code.replace(SOURCE.format(folder), json.dumps(f"{folder}/model.gguf")), llama)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mean", "cls, normalized", "prompts"])
def test_llama_computes_embeddings(
    name: str,
    hub_checkpoint: Make,
    tmp_path: Path,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODE_PATH", str(llama / "node_modules"))
    folder = export(save_encoder(name, hub_checkpoint, tmp_path), "gguf", tmp_path / "export")
    logged = in_llama(folder, llama)
    # GELU is a table in half precision, and vectors that are not normalized are longer than 1.
    np.testing.assert_allclose(logged, zoo_embeddings(folder), rtol=1e-2, atol=5e-3)
    computed = run_commands_of_llama(folder, llama, "llama-embedding", EMBEDDING)
    np.testing.assert_allclose(computed, zoo_embeddings(folder), rtol=1e-2, atol=5e-3)


@pytest.mark.long
def test_llama_continues_a_text(
    small: Small, tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_PATH", str(llama / "node_modules"))
    checkpoint = small("GPT2LMHeadModel", bos_token_id=0, eos_token_id=0)
    folder = export(checkpoint, "gguf", tmp_path / "export")
    expected = [generated(checkpoint.path, "generate", "A text.")]
    assert in_llama(folder, llama) == expected
    assert run_commands_of_llama(folder, llama, "llama-completion", COMPLETION) == expected
