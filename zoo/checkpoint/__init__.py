"""The checkpoint directory: ``config.json``, weights, ``tokenizer.json`` and ``zoo.json``.

``records`` declares the two JSON files and the names of all files, ``load`` reads and checks a
directory, ``tokenizer`` loads its tokenizer. No module imports torch.
"""

from zoo.checkpoint.load import Checkpoint, is_checkpoint, load_checkpoint
from zoo.checkpoint.records import (
    ADAPTER,
    CONFIG,
    DATA,
    DECODER,
    ENCODER,
    FORMAT_VERSION,
    GRAPH,
    MANIFEST,
    TOKENIZER,
    VARIANTS,
    WEIGHTS,
    WEIGHTS_INDEX,
    AdapterRecord,
    BaseRecord,
    Manifest,
    ModelFile,
    SourceRecord,
    encode_manifest,
    variant_file,
    weights_digest,
)
from zoo.checkpoint.tokenizer import (
    check_tables,
    check_tokenizer,
    load_text_tokenizer,
    load_vocabulary,
)

__all__ = [
    "ADAPTER",
    "CONFIG",
    "DATA",
    "DECODER",
    "ENCODER",
    "FORMAT_VERSION",
    "GRAPH",
    "MANIFEST",
    "TOKENIZER",
    "VARIANTS",
    "WEIGHTS",
    "WEIGHTS_INDEX",
    "AdapterRecord",
    "BaseRecord",
    "Checkpoint",
    "Manifest",
    "ModelFile",
    "SourceRecord",
    "check_tables",
    "check_tokenizer",
    "encode_manifest",
    "is_checkpoint",
    "load_checkpoint",
    "load_text_tokenizer",
    "load_vocabulary",
    "variant_file",
    "weights_digest",
]
