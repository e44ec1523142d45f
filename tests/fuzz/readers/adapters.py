"""Adapters of peft and of AdapterHub's library, next to their base.

As in ``weights``, a conversion permutes the elements of tensors, and the permutation is determined
with a source of numbered elements.
"""

import json
import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.octets import BYTES, Mutate
from tests.fuzz.pickles import archive_mutation
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.examples import bert_files, hub_model, write_files, zoo
from tests.fuzz.readers.weights import NUMBERS

BASE = "base-model"
THEIRS = "adapter"
RESULT = "converted-adapter"
KIND = "kind"
GOLDEN = Path(__file__).parents[2] / "golden" / "adapterhub"


class Adapter(Reader):
    """Adapters of several kinds, each in a directory; a case has one of them."""

    # kinds with values that are not the file's: multiplied by learned factors, or equal in layers
    computed: Sequence[str] = ()
    # settings of the file -> those of the record, where both are numbers that no tensor states
    recorded: Mapping[str, str]

    def make(self, folder: Path) -> None:
        (folder / "scene").mkdir(parents=True)
        for kind in self.kinds:
            made = folder / "made" / kind
            made.mkdir(parents=True)
            self.write(made, kind)
            if kind not in self.computed:
                numbered = folder / "numbered" / kind
                shutil.copytree(made, numbered)
                self.number(numbered / THEIRS)
                zoo(numbered, self.command())
                result = arrays(numbered / RESULT / "adapter.safetensors")
                np.savez(made / NUMBERS, **{k: v.view(np.int32) for k, v in result.items()})
            shutil.move(made, folder / "scene" / kind)

    def command(self) -> list[str]:
        return ["convert", THEIRS, "--base", BASE, "-o", RESULT, "--allow-pickle"]

    def commands(self, random: Random) -> list[list[str]]:
        return [self.command()]

    def choose(self, folder: Path, kind: str) -> None:
        for other in self.kinds:
            if other != kind:
                shutil.rmtree(folder / other)
        for path in (folder / kind).iterdir():
            path.rename(folder / path.name)
        (folder / kind).rmdir()

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix == ".bin":
            return (*BYTES, *[archive_mutation] * len(BYTES))
        return by_suffix(path)

    def number(self, theirs: Path) -> None:
        """Give the elements of all tensors consecutive integers as bits."""
        start = 0
        for path in self.tensor_files(theirs):
            tensors = arrays(path)
            for name, array in tensors.items():
                numbers = np.arange(start, start + array.size, dtype=np.int32)
                tensors[name] = numbers.view(np.float32).reshape(array.shape)
                start += array.size
            save(path, tensors)

    def check(self, folder: Path) -> str:
        """Check values against another library's, and the settings against the file's."""
        record = json.loads((folder / RESULT / "zoo.json").read_bytes())["adapter"]["settings"]
        stated = self.settings(json.loads((folder / THEIRS / "adapter_config.json").read_bytes()))
        for theirs, ours in self.recorded.items():
            if ours in record and stated.get(theirs) not in (None, record[ours]):
                return f"{ours} is {record[ours]}, and the file states {stated[theirs]}"
        if not (folder / NUMBERS).exists():
            return ""
        parts = [
            np.ascontiguousarray(array).astype(np.float32).reshape(-1)
            for path in self.tensor_files(folder / THEIRS)
            for array in arrays(path).values()
        ]
        expected = np.concatenate(parts)
        with np.load(folder / NUMBERS) as numbers:
            for name, array in arrays(folder / RESULT / "adapter.safetensors").items():
                if name not in numbers:
                    return f"{name} is new"
                place = numbers[name].reshape(-1)
                if array.size != place.size or place.max() >= expected.size:
                    return ""  # tensors of another size, which have other numbers
                if array.tobytes() != expected[place].tobytes():
                    return f"{name} differs from what another library reads"
        return ""

    @abstractmethod
    def write(self, folder: Path, kind: str) -> None:
        """Write an adapter and its converted base."""

    @abstractmethod
    def tensor_files(self, theirs: Path) -> list[Path]:
        """Return the files with tensors, in a fixed order."""

    def settings(self, described: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of the method in the contents of a file."""
        return described


class Peft(Adapter):
    name = "peft"
    also_named = (THEIRS, BASE)
    kinds = ("lora", "ia3", "prompt", "prefix")
    targets = (f"{THEIRS}/adapter_config.json", f"{THEIRS}/adapter_model.safetensors")
    recorded: Mapping[str, str] = {
        "lora_alpha": "alpha",
        "lora_dropout": "dropout",
        "num_virtual_tokens": "num_virtual_tokens",
    }

    def write(self, folder: Path, kind: str) -> None:
        write_files(hub_model(folder / "hub", "bert", 40), bert_files())
        zoo(folder, ["convert", "hub", "-o", BASE])
        shutil.rmtree(folder / "hub")
        shutil.rmtree(folder / "home", ignore_errors=True)
        (folder / THEIRS).mkdir()
        random = np.random.default_rng(1)

        def values(*shape: int) -> Any:
            return random.normal(size=shape).astype(np.float32)

        config: dict[str, Any] = {
            "base_model_name_or_path": BASE,
            "task_type": "FEATURE_EXTRACTION",
            "inference_mode": True,
            "peft_version": "0.18.0",
            "revision": None,
        }
        attention = "base_model.model.encoder.layer.0.attention.self."
        tensors: dict[str, Any] = {}
        if kind == "lora":
            config |= {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "lora_dropout": 0.1}
            config |= {"target_modules": ["query", "value"], "use_rslora": False, "bias": "none"}
            config |= {"rank_pattern": {}, "alpha_pattern": {}, "fan_in_fan_out": False}
            for module in ("query", "value"):
                tensors[f"{attention}{module}.lora_A.weight"] = values(4, 32)
                tensors[f"{attention}{module}.lora_B.weight"] = values(32, 4)
        elif kind == "ia3":
            config |= {"peft_type": "IA3", "target_modules": ["key", "value", "intermediate.dense"]}
            config |= {"feedforward_modules": [], "fan_in_fan_out": False}
            for module in ("key", "value"):
                tensors[f"{attention}{module}.ia3_l"] = values(32, 1)
            inner = "base_model.model.encoder.layer.0.intermediate.dense.ia3_l"
            tensors[inner] = values(intermediate_size(folder / BASE), 1)
        else:
            size = {"prompt": 32, "prefix": 64}[kind]
            config |= {"peft_type": f"{kind}_TUNING".upper(), "num_virtual_tokens": 3}
            config |= {"token_dim": 32, "num_transformer_submodules": 1, "num_layers": 1}
            config |= {"num_attention_heads": 4, "prefix_projection": False}
            tensors["prompt_embeddings"] = values(3, size)
        (folder / THEIRS / "adapter_config.json").write_text(json.dumps(config, indent=1))
        save(folder / THEIRS / "adapter_model.safetensors", tensors)

    def tensor_files(self, theirs: Path) -> list[Path]:
        return [theirs / "adapter_model.safetensors"]


class AdapterHub(Adapter):
    """Adapters and heads that the library wrote, from ``tests/golden/adapterhub``."""

    name = "adapterhub"
    also_named = (THEIRS, BASE)
    kinds = ("bert-pfeiffer", "bert-lora", "roberta-ia3", "electra-parallel", "bert-prefix")
    computed = ("electra-parallel", "bert-prefix")
    targets = (
        *[f"{THEIRS}/adapter_config.json"] * 2,
        f"{THEIRS}/head_config.json",
        f"{THEIRS}/*adapter.*",
        f"{THEIRS}/*model_head.*",
    )
    recorded: Mapping[str, str] = {
        "alpha": "alpha",
        "dropout": "dropout",
        "reduction_factor": "reduction_factor",
        "prefix_length": "num_virtual_tokens",
        "non_linearity": "non_linearity",
    }

    def write(self, folder: Path, kind: str) -> None:
        zoo(folder, ["convert", str(GOLDEN / kind / "base"), "-o", BASE])
        shutil.rmtree(folder / "home", ignore_errors=True)
        shutil.copytree(GOLDEN / kind / "adapter", folder / THEIRS)

    def tensor_files(self, theirs: Path) -> list[Path]:
        files = [path for path in theirs.iterdir() if path.suffix in (".bin", ".safetensors")]
        return sorted(files, key=lambda path: ("head" in path.name, path.name))

    def settings(self, described: dict[str, Any]) -> dict[str, Any]:
        settings: dict[str, Any] = described["config"]
        return settings


def intermediate_size(base: Path) -> int:
    """Return the inner width of a converted model's feed-forward networks."""
    return int(json.loads((base / "config.json").read_bytes())["config"]["intermediate_size"])


def arrays(path: Path) -> dict[str, Any]:
    """Return the tensors of a file, read by torch or the safetensors package."""
    if path.suffix == ".bin":
        import torch

        loaded = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in loaded.items()}
    from safetensors.torch import load_file

    return {name: tensor.float().numpy() for name, tensor in load_file(path).items()}


def save(path: Path, tensors: Mapping[str, Any]) -> None:
    if path.suffix == ".bin":
        import torch

        torch.save({name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, path)
        return
    from safetensors.numpy import save_file

    save_file(dict(tensors), path)


READERS = (Peft(), AdapterHub())
