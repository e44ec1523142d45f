"""Bases and adapters with random tensors, and the commands that read them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from tests.checkpoints import VOCABULARY, Make
from tests.inference.conftest import converted
from zoo.adapted_models.registry import adapter_settings, parse_adapter
from zoo.adapted_models.targets import AdaptableModel
from zoo.adapted_models.write import base_record, write_adapter
from zoo.checkpoint import MANIFEST, AdapterRecord, Checkpoint, Manifest, encode_manifest
from zoo.cli import cli
from zoo.errors import ZooError
from zoo.inference.load_model import load_model
from zoo.io.digests.files import hash_file
from zoo.io.json import read_json_record


def write_random_adapter(
    base: Checkpoint, path: Path, *, with_head: bool = False, **settings: Any
) -> Path:
    """Write an adapter with random tensors; ``with_head`` adds a head that differs from the base's.

    Args:
        settings: name of the method, as ``method``, and its settings.
    """
    model = load_model(base)
    adaptable = AdaptableModel.from_model(model, base.family, base.config, base.head_name)
    before = dict(model.state_dict())
    method = parse_adapter(settings).resolved(adaptable)
    method.add_to(model, adaptable)
    generator = torch.Generator().manual_seed(3)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name not in before:
            noise = torch.randn(tensor.shape, generator=generator) * 0.3
            grows = "ia3" in name or "magnitude" in name
            tensors[name] = tensor * (1 + noise) if grows else noise
    if with_head:
        backbone = {entry.target for entry in base.family.weights(base.config, "none").entries()}
        for entry in base.weights.entries():
            if entry.target not in backbone:
                tensors[entry.target] = before[entry.target] * 1.5
    record = AdapterRecord(adapter_settings(method), base_record(str(base.path), base))
    write_adapter(path, base.model, tensors, record, sources=[])
    return path


def change_first_number(path: Path, name: str, value: float) -> None:
    """Change a number of a checkpoint or an adapter, and the digest of the file in its manifest."""
    (file,) = path.glob("*.safetensors")
    tensors = load_file(file)
    tensors[name].flatten()[0] = value
    save_file(tensors, file)
    manifest = read_json_record(path / MANIFEST, Manifest)
    manifest.files[file.name] = hash_file(file)
    (path / MANIFEST).write_bytes(encode_manifest(manifest))


# architecture of the base, changes of its configuration
FAMILIES: dict[str, dict[str, Any]] = {
    "AlbertForSequenceClassification": {"embedding_size": 16, "num_hidden_layers": 3},
    "BartForSequenceClassification": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2},
    "BertForSequenceClassification": {},
    "DebertaForSequenceClassification": {"relative_attention": True, "pos_att_type": "c2p|p2c"},
    "DebertaV2ForSequenceClassification": {
        "relative_attention": True,
        "pos_att_type": "c2p|p2c",
        "share_att_key": True,
        "position_buckets": 8,
    },
    "DistilBertForSequenceClassification": {"dim": 32, "n_layers": 2, "n_heads": 4},
    "ElectraForSequenceClassification": {"embedding_size": 16},
    "GPT2ForSequenceClassification": {"pad_token_id": 0},
    "ModernBertForSequenceClassification": {"cls_token_id": 2, "sep_token_id": 3},
    "OpenAIGPTForSequenceClassification": {"pad_token_id": 0},
    "RobertaForSequenceClassification": {"pad_token_id": 1},
    "T5ForSequenceClassification": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "decoder_start_token_id": 0,
        "eos_token_id": 3,
    },
}
LORA_TARGETS = {
    "Albert": ["query", "value"],
    "DistilBert": ["q_lin", "v_lin"],
    "ModernBert": ["Wqkv"],
    "OpenAIGPT": ["c_attn"],
}
IA3_TARGETS = {
    "Albert": (["key", "value", "ffn_output"], ["ffn_output"]),
    "DistilBert": (["k_lin", "v_lin", "ffn.lin2"], ["ffn.lin2"]),
    "Electra": (["key", "value", "output.dense"], ["output.dense"]),
    "ModernBert": (["Wqkv", "mlp.Wo"], ["mlp.Wo"]),
    "OpenAIGPT": (["c_attn", "mlp.c_proj"], ["mlp.c_proj"]),
}


def zoo(*arguments: object) -> str:
    done = CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False)
    return done.stdout


def base_of(make: Make, architecture: str, tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """Write a base with other sizes than the default; return it in both layouts."""
    changes = {"num_labels": 3, **FAMILIES.get(architecture, {}), **changes}
    pad = changes.pop("pad_token_id", 0)
    source = make(architecture, tokenizer=False, pad_token_id=pad, **changes)
    kind = getattr(transformers, architecture)
    model = kind.from_pretrained(source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.2)
    model.save_pretrained(source)
    return converted(source, tmp_path / "base").path, source


def randomize(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * 0.3
                grows = "ia3" in name or "magnitude" in name
                parameter.copy_(parameter * (1 + noise) if grows else noise)


def logits_of_inputs(model: nn.Module, given: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        return model(**given)["logits"]  # type: ignore[no-any-return]


GOLDEN = Path(__file__).parents[1] / "golden" / "adapterhub"
Trained = Callable[..., Any]


@pytest.fixture
def trained(hub_checkpoint: Make, tmp_path: Path) -> Trained:
    """Return a function that writes ``base`` and ``theirs``, an adapter of peft with a word more.

    It returns peft's model and the tokenizer; ``spare`` is the number of rows without a token.
    """

    def make(
        architecture: str,
        *,
        spare: int = 0,
        modules: list[str] | None = None,
        save_embedding_layers: Any = "auto",
        **settings: Any,
    ) -> tuple[Any, Any]:
        sizes = {"vocab_size": len(VOCABULARY) + spare, "num_labels": 3}
        source = hub_checkpoint(architecture, **sizes)
        converted(source, tmp_path / "base")
        tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt"))
        tokenizer.add_tokens(["word"])
        model = getattr(transformers, architecture).from_pretrained(source)
        torch.manual_seed(0)
        if len(tokenizer) > model.config.vocab_size:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        config = peft.LoraConfig(r=2, target_modules=["query"], modules_to_save=modules, **settings)
        adapted: Any = peft.get_peft_model(model, config)
        randomize(adapted)
        if save_embedding_layers is True:
            with torch.no_grad():
                adapted.get_input_embeddings().weight.mul_(1.1)
        adapted.save_pretrained(
            str(tmp_path / "theirs"), save_embedding_layers=save_embedding_layers
        )
        tokenizer.save_pretrained(str(tmp_path / "theirs"))
        return adapted, tokenizer

    return make


def ids_of(checkpoint: Checkpoint, text: str) -> list[int]:
    ids: list[int] = Tokenizer.from_file(str(checkpoint.tokenizer_file)).encode(text).ids
    return ids


TEXTS = ("a b c", "j i")


def scores(*arguments: object, texts: Sequence[str] = TEXTS) -> list[list[float]]:
    lines = zoo("run", "classify", *arguments, *texts).splitlines()
    return [list(json.loads(line)["scores"].values()) for line in lines]


def error_of(arguments: Sequence[object]) -> tuple[type[BaseException], str]:
    with pytest.raises(ZooError) as error:
        zoo(*arguments)
    return type(error.value), str(error.value)
