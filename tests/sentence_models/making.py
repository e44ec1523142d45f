"""Directories of ColBERT models, as PyLate and as the authors write them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import VOCABULARY, Make

DENSE = {
    "in_features": 32,
    "out_features": 8,
    "bias": False,
    "activation_function": "torch.nn.modules.linear.Identity",
    "use_residual": False,
}
SETTINGS = {
    "model_type": "ColBERT",
    "__version__": {"sentence_transformers": "5.3.0"},
    "prompts": {"query": "", "document": ""},
    "default_prompt_name": None,
    "similarity_fn_name": "MaxSim",
    "query_prefix": "[unused0]",
    "document_prefix": "[D] ",
    "query_length": 9,
    "document_length": 7,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [".", ","],
    "do_query_expansion": True,
}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
]
METADATA = {
    "query_token_id": "[unused0]",
    "doc_token_id": "[unused1]",
    "query_maxlen": 9,
    "doc_maxlen": 7,
    "mask_punctuation": True,
    "attend_to_mask_tokens": False,
    "similarity": "cosine",
    "dim": 8,
    "lr": 1e-05,
}


def backbone(make: Make) -> Path:
    """Write an encoder with marks in its vocabulary, of which one is an added token."""
    tokens = [*VOCABULARY, ".", ",", "[unused0]", "[unused1]"]
    path = make("BertModel", vocab_size=len(tokens) + 1, tokenizer=False)
    (path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    import transformers

    tokenizer = transformers.BertTokenizerFast(str(path / "vocab.txt"))
    tokenizer.add_tokens(["[D] "])
    tokenizer.save_pretrained(path)
    return path


def projection() -> torch.Tensor:
    return torch.randn(8, 32, generator=torch.Generator().manual_seed(4))


def of_pylate(make: Make, **changes: Any) -> Path:
    path = backbone(make)
    (path / "1_Dense").mkdir()
    save_file({"linear.weight": projection()}, path / "1_Dense" / "model.safetensors")
    files: dict[str, Any] = {
        "modules.json": MODULES,
        "config_sentence_transformers.json": {**SETTINGS, **changes},
        "sentence_bert_config.json": {"max_seq_length": 39, "do_lower_case": False},
        "1_Dense/config.json": DENSE,
    }
    for name, content in files.items():
        (path / name).write_text(json.dumps(content))
    return path


def of_stanford(make: Make, **changes: Any) -> Path:
    path = backbone(make)
    tensors = {f"bert.{n}": t for n, t in load_file(path / "model.safetensors").items()}
    weights = {**tensors, "linear.weight": projection()}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "architectures": ["HF_ColBERT"]}))
    (path / "artifact.metadata").write_text(json.dumps({**METADATA, **changes}))
    return path


Heads = dict[str, dict[str, torch.Tensor]]  # file -> its tensors


def multi_output_source(make: Make, width: int, **changes: Any) -> tuple[Path, Heads]:
    """Write an XLM-RoBERTa with the two linear maps of FlagEmbedding; return them as well."""
    from transformers import BertTokenizerFast

    path = make("XLMRobertaModel", type_vocab_size=1, pad_token_id=0, **changes)
    BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
    (path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    hidden = json.loads((path / "config.json").read_text())["hidden_size"]
    torch.manual_seed(width)
    heads = {}
    for file, outputs in {"sparse_linear.pt": 1, "colbert_linear.pt": width}.items():
        linear = torch.nn.Linear(hidden, outputs)
        heads[file] = {name: tensor.half() for name, tensor in linear.state_dict().items()}
        torch.save(heads[file], path / file)
    return path, heads
