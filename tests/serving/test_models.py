"""Models of several backends and precisions in one server, adapters, and the task of a plugin."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.inference.conftest import converted
from tests.serving.making import LABELS, PROMPTS
from tests.serving.server import Server
from tests.warm import zoo

TEXTS = ["a b c", "j i", "d e f g h i j a b", "c"]


@pytest.fixture(scope="module")
def exports(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder with prompts, exported to ONNX in float32 and in int8."""
    folder = tmp_path_factory.mktemp("exports")
    checkpoint = converted(models / "prompted", folder / "checkpoint")
    for name, options in (("float32", ()), ("int8", ("--only", "int8"))):
        done = zoo("export", checkpoint.path, *options, "-o", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def mixed(models: Path, exports: Path) -> Iterator[Server]:
    """A server of a checkpoint and of both exports."""
    words: list[Path | str] = [models / "prompted"]
    words += [f"onnx={exports / 'float32'}", f"int8={exports / 'int8'}"]
    with Server(words) as running:
        yield running


def embed(server: Server, model: str, **fields: Any) -> Any:
    """Return the embeddings of TEXTS."""
    reply = server.post("/embed", {"model": model, "inputs": TEXTS, **fields})
    assert reply.status == 200, reply.body
    return np.array(reply.body)


@pytest.mark.long
def test_backends_and_precisions_share_a_server(mixed: Server, models: Path, exports: Path) -> None:
    from sentence_transformers import SentenceTransformer

    import zoo as library

    peer = SentenceTransformer(str(models / "prompted"), device="cpu")
    expected = peer.encode(TEXTS)
    for name in ("prompted", "onnx"):
        np.testing.assert_allclose(embed(mixed, name), expected, atol=1e-5)
    in_int8 = library.load(exports / "int8", backend="onnx").embed(TEXTS)
    served = embed(mixed, "int8")
    assert np.abs(served - expected).max() > 1e-4  # It computes in int8,
    assert (served * in_int8).sum(1).min() > 0.999  # whose scales depend on the batch.
    assert (served * expected).sum(1).min() > 0.95


@pytest.mark.long
def test_exports_have_prompts_and_dimensions(mixed: Server, models: Path) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(models / "prompted"), device="cpu", truncate_dim=8)
    for name in PROMPTS:
        expected = peer.encode(TEXTS, prompt_name=name, normalize_embeddings=True)
        served = embed(mixed, "onnx", prompt_name=name, dimensions=8)
        np.testing.assert_allclose(served, expected, atol=1e-5)


def test_adapters_are_chosen_by_request(server: Server, models: Path, peft_adapter: Path) -> None:
    import peft
    import torch
    import transformers

    network = transformers.BertForSequenceClassification.from_pretrained(models / "classifier")
    tokenizer = transformers.BertTokenizerFast(str(models / "classifier" / "vocab.txt"))
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = {}
    with torch.inference_mode():
        expected["classifier"] = network.eval()(**inputs).logits.softmax(-1)
        adapted = peft.PeftModel.from_pretrained(network, peft_adapter).eval()
        expected["classifier:legal"] = adapted(**inputs).logits.softmax(-1)
    assert (expected["classifier"] - expected["classifier:legal"]).abs().max() > 1e-3
    for name, scores in expected.items():
        inputs_of_texts = [[text] for text in TEXTS]
        reply = server.post("/predict", {"model": name, "inputs": inputs_of_texts})
        assert reply.status == 200, reply.body
        for predictions, row in zip(reply.body, scores, strict=True):
            served = {prediction["label"]: prediction["score"] for prediction in predictions}
            assert served == pytest.approx(dict(zip(LABELS, row.tolist(), strict=True)), abs=1e-5)
    names = [model["id"] for model in server.get("/v1/models").body["data"]]
    assert "classifier:legal" in names


def test_the_task_of_a_plugin_is_served(server: Server, models: Path) -> None:
    import torch
    import transformers

    tokenizer = transformers.GPT2Tokenizer.from_pretrained(models / "decoder")
    network = transformers.GPT2LMHeadModel.from_pretrained(models / "decoder").eval()
    ids = tokenizer("The cat", return_tensors="pt").input_ids
    with torch.inference_mode():
        scores, tokens = network(ids).logits[0, -1].softmax(-1).topk(3)
    body = {"model": "decoder", "inputs": ["The cat"], "options": {"top_k": 3}}
    reply = server.post("/run/next-token", body)
    assert reply.status == 200, reply.body
    (result,) = reply.body["results"]
    best = result["next"]
    assert [item["token"] for item in best] == tokenizer.convert_ids_to_tokens(tokens)
    assert [item["score"] for item in best] == pytest.approx(scores.tolist(), abs=1e-5)
    wrong = {**body, "options": {"top_k": "many"}}
    assert server.post("/run/next-token", wrong).status == 400


def test_openapi_has_the_task_of_a_plugin(server: Server) -> None:
    paths = server.get("/openapi.json").body["paths"]
    operation = paths["/run/next-token"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    option = schema["properties"]["options"]["properties"]["top_k"]
    assert option["type"] == "integer" and option["description"] == "Number of tokens."
    page = server.get("/docs").body
    assert "POST /run/next-token" in page and "options.top_k" in page
