"""Adapters of AdapterHub's library and their outputs, for ``tests/adapters/test_adapterhub.py``.

    python tests/golden/make_adapterhub.py OUT

The library needs transformers 4.57, an environment of its own: the files that are committed were
made with adapters 1.3.0, transformers 4.57.6 and torch 2.13.0, on a CPU.

    python -m venv hub && hub/bin/pip install adapters==1.3.0 transformers==4.57.6 torch==2.13.0

Each directory has a tiny random base in the Hub's layout (``base``), an adapter with its head as
the library saves it (``adapter``), and the logits of two rows (``outputs.json``).
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

SIZES = {
    "vocab_size": 18,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "num_labels": 3,
}
# name of a directory -> class, form of the adapter, and whether it is saved as safetensors
CASES = {
    "bert-houlsby": ("BertForSequenceClassification", "double_seq_bn", False),
    "bert-pfeiffer": ("BertForSequenceClassification", "seq_bn", True),
    "roberta-pfeiffer": ("RobertaForTokenClassification", "seq_bn", False),
    "electra-houlsby": ("ElectraForSequenceClassification", "double_seq_bn", True),
    "roberta-parallel": ("RobertaForSequenceClassification", "par_bn", True),
    "electra-parallel": ("ElectraForTokenClassification", "scaled_par_bn", True),
    "bert-lora": ("BertForTokenClassification", "lora", False),
    "roberta-ia3": ("RobertaForSequenceClassification", "ia3", True),
    # the library cannot save prefixes as safetensors
    "bert-prefix": ("BertForSequenceClassification", "prefix_tuning_flat", False),
    "distilbert-prefix": ("DistilBertForSequenceClassification", "prefix_tuning", False),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lora": {"r": 4, "alpha": 6, "output_lora": True, "intermediate_lora": True},
    "ia3": {},
    "prefix_tuning_flat": {"prefix_length": 3},
    "prefix_tuning": {"prefix_length": 3, "bottleneck_size": 6},
}
# names of sizes that a class has of its own
RENAMED = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
}
IDS = [[2, 5, 6, 7, 3], [2, 9, 8, 3, 4]]


def main(out: Path) -> None:
    import adapters  # type: ignore[import-not-found]
    import transformers

    for name, (kind, form, safe) in CASES.items():
        if (out / name).exists():
            continue
        torch.manual_seed(0)
        cls: Any = getattr(transformers, kind)
        renamed = RENAMED if kind.startswith("DistilBert") else {}
        sizes = {renamed.get(size, size): value for size, value in SIZES.items()}
        model = cls(cls.config_class(**sizes, embedding_size=16, pad_token_id=0))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        model.save_pretrained(out / name / "base")
        adapters.init(model)
        config = adapters.AdapterConfig.load(form, **SETTINGS.get(form, {"reduction_factor": 4}))
        model.add_adapter("task", config=config)
        for key, parameter in model.named_parameters():
            if ".task." in key or key.startswith("classifier"):
                torch.nn.init.normal_(parameter, std=0.3)
        model.set_active_adapters("task")
        model.save_adapter(str(out / name / "adapter"), "task", use_safetensors=safe)
        model.eval()
        with torch.no_grad():
            logits = model(torch.tensor(IDS)).logits
        content = {"input_ids": IDS, "logits": logits.tolist()}
        (out / name / "outputs.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
