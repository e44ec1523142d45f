"""Configuration keys that copies and fine-tuned models inherit."""

from typing import Any

import pytest

from zoo.hub import registry
from zoo.plugins import get_family

# registry name of the original model -> keys and values in the copy
CARRIED: dict[str, tuple[str, dict[str, Any]]] = {
    "tinybert-4l-312d": (
        "https://huggingface.co/gihakkk/tinybert_model/blob/main/config.json",
        {"cell": {}, "emb_size": 312, "pre_trained": "", "structure": []},
    ),
    "legal-bert-base-uncased": (
        "https://huggingface.co/alex-apostolo/legal-bert-base-cuad/"
        "blob/15b3dd79909d8db99c59381e0283df6803d1e58d/config.json",
        {"bos_token_id": 0, "eos_token_ids": 0, "output_past": True},
    ),
    "bert-base-ner": (
        "https://huggingface.co/huantd/bert-base-NER/blame/main/config.json",
        {"_num_labels": 9, "output_past": True},
    ),
    "bert-base-cased-squad2": (
        "https://huggingface.co/TunahanGokcimen/Question-Answering-Bert-base-cased-squad2/"
        "blob/main/config.json",
        {"language": "english", "name": "Bert", "output_past": True},
    ),
    "ms-marco-minilm-l6-v2": (
        "https://huggingface.co/KennethTM/MiniLM-L6-danish-reranker/"
        "blame/90249cce41b75b3f0ee533413d942c65adc617e1/config.json",
        {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_published_configurations_have_no_unknown_keys(name: str) -> None:
    row = registry.builtin()[name]
    family = get_family(row.family)
    config = registry.entry_config(name, row)
    _, keys = CARRIED[name]
    assert family.from_hub(family.to_hub(config) | keys).unknown == ()
