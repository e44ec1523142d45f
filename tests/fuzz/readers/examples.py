"""Valid examples that several readers share: models of every family, releases, tokenizers."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.conformance.golden import Golden

TESTS = Path(__file__).parents[2]
RELEASE = "electra_shares_nothing"


def golden(family: str, case: str) -> Golden:
    return Golden.read(TESTS / "golden" / family / f"{case}.safetensors")


def zoo(folder: Path, arguments: list[str]) -> str:
    """Run a command in a fork, and return its output; it must succeed."""
    from tests.fuzz.case import run_zoo

    child = os.fork()
    if not child:
        os.chdir(folder)
        os.environ["ZOO_HOME"] = str(folder / "home")
        os._exit(run_zoo(arguments, folder.parent))
    _, status = os.waitpid(child, 0)
    printed = (folder.parent / "out").read_text()
    assert status == 0, f"zoo {arguments}: {(folder.parent / 'err').read_text()}"
    return printed


def openai_order(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first GPT's arrays in the order of OpenAI's release, and in its shapes."""
    parts = [f"{part}.{last}" for part in ("attn.c_attn", "attn.c_proj") for last in _BOTH]
    parts += [f"ln_1.{last}" for last in _BOTH]
    parts += [f"{part}.{last}" for part in ("mlp.c_fc", "mlp.c_proj") for last in _BOTH]
    parts += [f"ln_2.{last}" for last in _BOTH]
    first = next(iter(weights)).startswith("transformer.")
    prefix = "transformer." if first else ""
    names = [f"{prefix}{name}_embed.weight" for name in ("positions", "tokens")]
    names += [f"{prefix}h.{layer}.{part}" for layer in range(2) for part in parts]
    assert set(names) == set(weights), "the release has every array"
    arrays = {name: weights[name] for name in names}
    matrices = [n for n in names if ".h." in f".{n}" and arrays[n].ndim == 2]
    return arrays | {name: arrays[name][None] for name in matrices}


_BOTH = ("weight", "bias")


def released(folder: Path) -> None:
    """Write a checkpoint in the authors' release layout, in TensorFlow's format."""
    folder.mkdir(parents=True)
    for path in (TESTS / "fixtures" / "releases").glob(f"{RELEASE}.*"):
        shutil.copy(path, folder)
    config = golden("electra", "masked-lm").hub_config
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def hub_model(folder: Path, family: str, vocab_size: int) -> Path:
    """Write a model with random weights in the Hub's layout, without a tokenizer."""
    from msgspec.structs import replace

    from tests.inference.making import store
    from zoo.families.random_inputs import randomize_weights
    from zoo.plugins import get_family

    scratch = folder.parent / "scratch"
    plugin = get_family(family)
    wanted = {"hidden_size": 32, "num_layers": 1, "num_heads": 4, "max_positions": 40}
    tiny: Any = plugin.sizes()["tiny"]
    shape = {name: size for name, size in wanted.items() if hasattr(tiny, name)}
    config = replace(tiny, **shape, vocab_size=vocab_size)
    model = plugin.model(config, "none")
    randomize_weights(model, seed=1)
    store(scratch / "made", model, plugin, config, "none")
    zoo(scratch, ["convert", "made", "--to", "hub", "-o", str(folder)])
    shutil.rmtree(scratch)
    return folder


def bert_files() -> dict[str, str]:
    """Return tokenizer files of a small vocabulary, by file name."""
    from tokenizers import BertWordPieceTokenizer

    from tests.checkpoints import VOCABULARY

    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = BertWordPieceTokenizer(vocabulary)
    special = {"mask_token": "[MASK]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    config = {
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": 40,
        "tokenizer_class": "BertTokenizer",
        "added_tokens_decoder": {
            str(k): {"content": VOCABULARY[k], "special": True, "lstrip": False, "rstrip": False}
            for k in range(5)
        },
        **special,
    }
    return {
        "vocab.txt": "\n".join(VOCABULARY) + "\n",
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(config, indent=1),
        "special_tokens_map.json": json.dumps(special, indent=1),
    }


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
