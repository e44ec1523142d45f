"""Checkpoints of sentence encoders, for tests of conversions."""

import json
from pathlib import Path

from tests.checkpoints import Make


def pooled_source(hub_checkpoint: Make) -> Path:
    """Write a sentence encoder as sentence-transformers does."""
    source = hub_checkpoint("BertModel")
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    pooling = {"idx": 1, "name": "1", "path": "1_Pooling"}
    kind = "sentence_transformers.models.Pooling"
    (source / "modules.json").write_text(json.dumps([module, {**pooling, "type": kind}]))
    (source / "1_Pooling").mkdir()
    described = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (source / "1_Pooling" / "config.json").write_text(json.dumps(described))
    return source
