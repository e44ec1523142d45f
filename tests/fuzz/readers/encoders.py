"""Sentence encoders: modules with weights, late interaction, static embeddings, SetFit."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.checkpoints import VOCABULARY
from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.reader import Reader
from tests.fuzz.readers.examples import bert_files, hub_model, write_files, zoo
from tests.fuzz.readers.models import MODEL
from tests.fuzz.readers.models import seal as seal_model
from tests.fuzz.readers.tables import RUN, TEXTS, finetune, json_lines
from tests.fuzz.readers.weights import stored
from tests.fuzz.trees import json_mutation

SOURCE = "source-model"
RESULT = "converted-model"
TEXT = "a bad cab abba"
LIBRARY = "sentence_transformers.models."
LAYERS = {"Dense": "2_Dense", "LayerNorm": "3_LayerNorm"}  # kind -> folder, of those with weights
DENSE = {
    "in_features": 32,
    "out_features": 8,
    "bias": True,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


class Encoder(Reader):
    """A sentence encoder that is converted, and embeds a text."""

    also_named = (SOURCE, RESULT, "modules.json")

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        write_files(hub_model(scene / SOURCE, "bert", 40), bert_files())
        self.write(scene / SOURCE)

    def write(self, source: Path) -> None:
        """Write the files of the encoder next to those of the model."""

    def commands(self, random: Random) -> list[list[str]]:
        task = ["run", "embed", RESULT, TEXT, "--backend", "cpu", "--json"]
        return [["convert", SOURCE, "-o", RESULT], task]


class Modules(Encoder):
    """Modules of sentence-transformers, two of them with weights."""

    name = "modules"
    targets = (
        *[f"{SOURCE}/modules.json"] * 2,
        *(f"{SOURCE}/{folder}/config.json" for folder in LAYERS.values()),
        f"{SOURCE}/1_Pooling/config.json",
        f"{SOURCE}/*/model.safetensors",
        f"{SOURCE}/config_sentence_transformers.json",
    )

    def write(self, source: Path) -> None:
        from safetensors.numpy import save_file

        kinds = {"Transformer": "", "Pooling": "1_Pooling", **LAYERS, "Normalize": "4_Normalize"}
        modules = [
            {"idx": number, "name": str(number), "path": path, "type": f"{LIBRARY}{kind}"}
            for number, (kind, path) in enumerate(kinds.items())
        ]
        pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
        settings = {"model_type": "SentenceTransformer", "prompts": {"query": "a: "}}
        write_files(
            source,
            {
                "modules.json": json.dumps(modules, indent=1),
                "1_Pooling/config.json": json.dumps(pooling, indent=1),
                "2_Dense/config.json": json.dumps(DENSE, indent=1),
                "3_LayerNorm/config.json": json.dumps({"dimension": 8}),
                "config_sentence_transformers.json": json.dumps(settings, indent=1),
            },
        )
        random = np.random.default_rng(2)

        def values(*shape: int) -> Any:
            return random.normal(size=shape).astype(np.float32)

        dense = {"linear.weight": values(8, 32), "linear.bias": values(8)}
        save_file(dense, source / "2_Dense" / "model.safetensors")
        norm = {"norm.weight": values(8), "norm.bias": values(8)}
        save_file(norm, source / "3_LayerNorm" / "model.safetensors")

    def check(self, folder: Path) -> str:
        """Check the order of the modules, and that their weights are unchanged."""
        file = folder / SOURCE / "modules.json"
        config = json.loads((folder / RESULT / "config.json").read_bytes())
        if not file.exists():  # sentence-transformers takes the mean of tokens then
            pooling = config.get("pooling") or {}
            return "modules of a missing file" if pooling.get("modules") else ""
        listed = json.loads(file.read_bytes())
        places = [(module["type"].rpartition(".")[2], module["path"]) for module in listed[1:]]
        pooling = config["pooling"]
        kinds = [module["type"] for module in pooling.get("modules", ())]
        if kinds and kinds != [kind for kind, _ in places]:
            return f"the modules are {kinds}, and the file lists {places}"
        for number, (kind, path) in enumerate(places, 1):
            if kind not in LAYERS:
                continue
            theirs = stored(folder / SOURCE / path)
            ours = stored(folder / RESULT / f"{number}_{kind}")
            for name, array in theirs.items():
                if array.astype(np.float32).tobytes() != ours[name].tobytes():
                    return f"{name} of module {number} differs"
        return ""


class ColBert(Encoder):
    """Late interaction in the layout of Stanford's ColBERT."""

    name = "colbert"
    targets = (
        *[f"{SOURCE}/artifact.metadata"] * 3,
        f"{SOURCE}/config.json",
        f"{SOURCE}/model.safetensors",
        f"{SOURCE}/tokenizer_config.json",
    )

    def write(self, source: Path) -> None:
        from safetensors.numpy import save_file

        tensors = {f"bert.{name}": array for name, array in stored(source).items()}
        projection = np.random.default_rng(3).normal(size=(8, 32)).astype(np.float32)
        save_file({**tensors, "linear.weight": projection}, source / "model.safetensors")
        config = json.loads((source / "config.json").read_bytes())
        (source / "config.json").write_text(
            json.dumps({**config, "architectures": ["HF_ColBERT"]}, indent=1)
        )
        metadata = {
            "query_token_id": VOCABULARY[6],
            "doc_token_id": VOCABULARY[7],
            "query_maxlen": 9,
            "doc_maxlen": 7,
            "mask_punctuation": True,
            "attend_to_mask_tokens": False,
            "similarity": "cosine",
            "dim": 8,
            "lr": 1e-05,
        }
        (source / "artifact.metadata").write_text(json.dumps(metadata, indent=1))

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix == ".metadata":
            return (*BYTES, *[json_mutation] * (2 * len(BYTES)))
        return super().mutations(path)

    def check(self, folder: Path) -> str:
        """Check lengths against the file's, and the projection against the tensors'."""
        file = folder / SOURCE / "artifact.metadata"
        # without the file, the settings of an untrained model count, as in Stanford's library
        stated = json.loads(file.read_bytes()) if file.exists() else {}
        pooling = json.loads((folder / RESULT / "config.json").read_bytes())["pooling"]
        expansion = pooling.get("query_expansion") or {}
        lengths = {
            "query_maxlen": expansion.get("length", pooling.get("query_length")),
            "doc_maxlen": pooling.get("document_length"),
        }
        for key, length in lengths.items():
            if type(stated.get(key)) is int and length != stated[key]:
                return f"{key} is read as {length}, and the file states {stated[key]}"
        theirs = stored(folder / SOURCE)["linear.weight"].astype(np.float32)
        found = [
            array
            for path in (folder / RESULT).rglob("*/model.safetensors")
            for array in stored(path.parent).values()
        ]
        same = [array for array in found if array.tobytes() == theirs.tobytes()]
        return "" if same else "the projection is not the file's"


class Model2Vec(Encoder):
    """Static embeddings in the layout of model2vec."""

    name = "model2vec"
    targets = (
        f"{SOURCE}/config.json",
        *[f"{SOURCE}/tokenizer.json"] * 2,
        f"{SOURCE}/model.safetensors",
        f"{SOURCE}/modules.json",
    )

    def make(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        source = folder / "scene" / SOURCE
        source.mkdir(parents=True)
        modules = [
            {"idx": 0, "name": "0", "path": ".", "type": f"{LIBRARY}StaticEmbedding"},
            {"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{LIBRARY}Normalize"},
        ]
        config = {
            "model_type": "model2vec",
            "architectures": ["StaticModel"],
            "tokenizer_name": "someone/model",
            "apply_pca": 6,
            "apply_zipf": True,
            "hidden_dim": 6,
            "seq_length": 1000000,
            "normalize": True,
        }
        files: Mapping[str, str | bytes] = {
            "config.json": json.dumps(config, indent=1),
            "modules.json": json.dumps(modules, indent=1),
            "tokenizer.json": bert_files()["tokenizer.json"],
        }
        write_files(source, files)
        table = np.random.default_rng(4).normal(size=(len(VOCABULARY), 6)).astype(np.float32)
        save_file({"embeddings": table}, source / "model.safetensors")

    def check(self, folder: Path) -> str:
        """Compare the embedding with the mean of vectors, by the tokenizers package and numpy."""
        from tokenizers import Tokenizer

        definition = json.loads((folder / SOURCE / "tokenizer.json").read_bytes())
        definition |= {"truncation": None, "padding": None, "post_processor": None}
        tokenizer = Tokenizer.from_str(json.dumps(definition))
        unknown = definition["model"].get("unk_token")
        ids = [
            number for number, token in zip(*_encoded(tokenizer), strict=True) if token != unknown
        ]
        config = json.loads((folder / SOURCE / "config.json").read_bytes())
        ids = ids[: config.get("max_length", 512)]
        table = stored(folder / SOURCE)["embeddings"].astype(np.float32)
        expected = table[ids].mean(0) if ids else np.zeros(table.shape[1], np.float32)
        if config.get("normalize"):
            expected = expected / max(float(np.linalg.norm(expected)), 1e-12)
        printed = json.loads((folder.parent / "out").read_text())
        (found,) = _vectors(printed)
        same = len(found) == len(expected) and np.allclose(found, expected, atol=1e-4)
        return "" if same else f"the embedding is {found[:3]}, not {expected[:3]}"


def _encoded(tokenizer: Any) -> tuple[list[int], list[str]]:
    encoded = tokenizer.encode(TEXT, add_special_tokens=False)
    return encoded.ids, encoded.tokens


def _vectors(printed: Any) -> list[Any]:
    """Return the lists of numbers in a printed result."""
    if isinstance(printed, list):
        numbers = [isinstance(item, int | float) for item in printed]
        if printed and all(numbers):
            return [np.array(printed, np.float32)]
        return [vector for item in printed for vector in _vectors(item)]
    if isinstance(printed, dict):
        return [vector for item in printed.values() for vector in _vectors(item)]
    return []


class SetFit(Reader):
    """A classifier on the embeddings of an encoder, with recomputed digests."""

    name = "setfit"
    also_named = (MODEL,)
    targets = (
        *[f"{MODEL}/config.json"] * 3,
        f"{MODEL}/model.safetensors",
        f"{MODEL}/tokenizer.json",
    )
    unusual = False

    def make(self, folder: Path) -> None:
        scene = folder / "scene"
        scene.mkdir(parents=True)
        rows = [{"text": text, "label": ("no", "yes")[k % 2]} for k, text in enumerate(TEXTS * 2)]
        (scene / "table.jsonl").write_bytes(json_lines(rows))
        finetune(scene, "bert", "setfit", "table.jsonl")
        shutil.move(scene / RUN / "model", scene / MODEL)
        shutil.rmtree(scene / RUN)
        (folder / "sound.json").write_text(zoo(scene, self.command()))
        shutil.copytree(scene / MODEL, folder / "sound")

    def command(self) -> list[str]:
        return ["run", "classify", MODEL, TEXTS[0], "--backend", "cpu", "--json"]

    def seal(self, folder: Path) -> None:
        seal_model(folder / MODEL)

    def commands(self, random: Random) -> list[list[str]]:
        return [self.command()]

    def check(self, folder: Path) -> str:
        """Check that files whose values are the sound ones give the sound result."""
        names = ("config.json", "model.safetensors", "tokenizer.json")
        for name in names:
            sound, found = (root / name for root in (folder.parent / "sound", folder / MODEL))
            if sound.read_bytes() != found.read_bytes():
                return ""
        return "" if (folder.parent / "out").read_text() == self.sound(folder) else "other results"

    def sound(self, folder: Path) -> str:
        return (folder.parent / "sound.json").read_text()


READERS = (Modules(), ColBert(), Model2Vec(), SetFit())
