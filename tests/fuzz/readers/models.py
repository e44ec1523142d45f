"""Converted models and exports, with unchanged and with recomputed digests."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import bert_files, hub_model, write_files, zoo
from tests.fuzz.records import message_mutation
from zoo.checkpoint import Manifest as ManifestRecord
from zoo.checkpoint import encode_manifest
from zoo.io.json import read_json_record

MODEL = "converted-model"
TEXT = "a bad cab abba"
EMBED = ["run", "embed", MODEL, TEXT]


def make_model(folder: Path) -> None:
    """Write a small converted model with a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_files(hub_model(folder / "hub", "bert", 40), bert_files())
    zoo(folder, ["convert", "hub", "-o", MODEL])


def seal(folder: Path) -> None:
    """Recompute the digests of all files in the manifest of a model."""
    from zoo.io.digests.files import hash_file

    path = folder / "zoo.json"
    manifest = json.loads(path.read_bytes())
    for name in manifest["files"]:
        if (folder / name).is_file() and not (folder / name).is_symlink():
            stated = hash_file(folder / name)
            manifest["files"][name] = {"bytes": stated.bytes, "blake3": stated.blake3}
    path.write_text(json.dumps({**manifest, "digest": ""}))


class Manifest(Reader):
    """Model with original digests: every change of another file must be detected."""

    name = "manifest"
    weight = 2
    targets = (*[f"{MODEL}/zoo.json"] * 3, f"{MODEL}/config.json", f"{MODEL}/*")

    def make(self, folder: Path) -> None:
        make_model(folder / "made")
        (folder / "made" / MODEL).rename(_parent(folder / "scene" / MODEL))
        (folder / "sound.json").write_text(zoo(folder / "scene", EMBED))

    def commands(self, random: Random) -> list[list[str]]:
        verify = ["verify", MODEL, "--no-parity"]
        return random.choice(([verify], [EMBED], [["info", MODEL, "--json"]]))

    def check(self, folder: Path) -> str:
        printed = (folder.parent / "out").read_text()
        if printed.startswith('{"text"'):
            return same_vector(printed, (folder.parent / "sound.json").read_text())
        config = json.loads((folder / MODEL / "config.json").read_bytes())["config"]
        if printed.startswith("{") and _differ(config, json.loads(printed)["config"]):
            return "info differs from the file"
        return ""


class SealedModel(Manifest):
    """Model with digests of the mutated files, as an attacker would write them."""

    name = "sealed-model"
    also_named = ("text 1",)  # the text whose embedding is not finite
    targets = (f"{MODEL}/config.json", f"{MODEL}/tokenizer.json", f"{MODEL}/model.safetensors")

    def seal(self, folder: Path) -> None:
        seal(folder / MODEL)

    def check(self, folder: Path) -> str:
        """Accept any vector, since weights and tokenizer are mutated."""
        printed = (folder.parent / "out").read_text()
        return "" if printed.startswith('{"text"') else super().check(folder)


def same_vector(printed: str, sound: str) -> str:
    first, second = (np.array(json.loads(text)["embedding"], float) for text in (printed, sound))
    if first.shape != second.shape or not np.allclose(first, second, rtol=1e-4, atol=1e-6):
        return "the vector differs from the sound model's"
    return ""


class Onnx(Reader):
    """Export with external weights and original digests: every change must be detected."""

    name = "onnx"
    targets: Sequence[str] = (
        f"{MODEL}/onnx/model.onnx",
        f"{MODEL}/onnx/model.onnx_data",
        f"{MODEL}/*",
    )

    def make(self, folder: Path) -> None:
        make_model(folder / "made")
        model = folder / "scene" / MODEL
        (folder / "made" / MODEL).rename(_parent(model))
        (model / "model.safetensors").unlink()
        write_graph(model)
        (folder / "sound.json").write_text(zoo(folder / "scene", self.commands(Random(0))[0]))

    def commands(self, random: Random) -> list[list[str]]:
        return [[*EMBED, "--backend", "onnx"]]

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix == ".onnx":
            return (*BYTES, *[message_mutation] * (2 * len(BYTES)))
        return super().mutations(path)

    def check(self, folder: Path) -> str:
        sound = (folder.parent / "sound.json").read_text()
        return same_vector((folder.parent / "out").read_text(), sound)


def write_graph(folder: Path) -> None:
    """Replace a model's weights by a graph of embeddings, normalization and pooling.

    Its outputs differ from the model's, whose export takes many times as long.
    """
    import onnx
    from onnx import TensorProto, helper

    embeddings = np.random.default_rng(0).standard_normal((40, 32)).astype(np.float32)
    scale = np.ones(32, np.float32)
    tensors = [_tensor(name, a) for name, a in (("embeddings", embeddings), ("scale", scale))]
    axes = ["batch", "tokens"]
    names = ("input_ids", "attention_mask", "token_type_ids")
    nodes = [
        helper.make_node("Gather", ["embeddings", "input_ids"], ["embedded"]),
        helper.make_node("LayerNormalization", ["embedded", "scale"], ["last_hidden_state"]),
        helper.make_node("ReduceMax", ["last_hidden_state"], ["highest"], axes=[1], keepdims=0),
        helper.make_node("Tanh", ["highest"], ["pooler_output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, TensorProto.INT64, axes) for name in names],
        [
            helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*axes, 32]),
            helper.make_tensor_value_info("pooler_output", TensorProto.FLOAT, ["batch", 32]),
        ],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options: Any = {
        "save_as_external_data": True,
        "location": "model.onnx_data",
        "size_threshold": 0,
    }
    (folder / "onnx").mkdir()
    onnx.save(model, folder / "onnx/model.onnx", **options)
    manifest = json.loads((folder / "zoo.json").read_bytes())
    manifest["model"] = json.loads((folder / "config.json").read_bytes())
    manifest["export"] = {"validated": True, "dtype": "float32", "graphs": {"onnx/model.onnx": {}}}
    del manifest["files"]["model.safetensors"]
    manifest["files"] |= {"onnx/model.onnx": {}, "onnx/model.onnx_data": {}}
    (folder / "zoo.json").write_text(json.dumps(manifest))
    seal(folder)
    sealed = read_json_record(folder / "zoo.json", ManifestRecord)
    (folder / "zoo.json").write_bytes(encode_manifest(sealed))


def _tensor(name: str, array: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


class SealedOnnx(Onnx):
    """Export with digests of the mutated files, compared with ONNX Runtime."""

    name = "sealed-onnx"
    targets = (*[f"{MODEL}/onnx/model.onnx"] * 3, f"{MODEL}/onnx/model.onnx_data")

    def seal(self, folder: Path) -> None:
        seal(folder / MODEL)

    def check(self, folder: Path) -> str:
        import onnxruntime
        import tokenizers

        session = onnxruntime.InferenceSession(str(folder / MODEL / "onnx/model.onnx"))
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / MODEL / "tokenizer.json"))
        ids = np.array([tokenizer.encode(TEXT).ids])
        batch = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        names = {entry.name for entry in session.get_inputs()}
        values = session.run(None, {name: batch[name] for name in names})
        outputs = dict(zip((o.name for o in session.get_outputs()), values, strict=True))
        expected: Any = outputs["last_hidden_state"][0].mean(0)
        actual = json.loads((folder.parent / "out").read_text())["embedding"]
        close = np.allclose(np.array(actual, float), expected, rtol=1e-3, atol=1e-5, equal_nan=True)
        return "" if close else "the vector differs from what ONNX Runtime computes"


def _parent(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _differ(first: Any, second: Any) -> bool:
    keys = first.keys() & second.keys()
    return any(json.dumps(first[key]) != json.dumps(second[key]) for key in keys)


READERS = (Manifest(), SealedModel(), Onnx(), SealedOnnx())
