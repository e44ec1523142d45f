"""GGUF for llama.cpp: embeddings and language models, in full precision and quantized."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.exporting.targets.base import ExportSettings, ExportTarget, Precision
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.usage import Snippet
    from zoo.exporting.quantization.search import MixedPrecisionModel
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling

FILE = "model.gguf"
HALF_GELU = "GELU is a table of half-precision values"


def refused_pooling(pooling: "Pooling") -> str | None:
    """Return what of a pooling llama.cpp does not have; ``None`` for nothing."""
    from zoo.tokenizers.gguf import POOLINGS

    if pooling.modules or pooling.model_type != "SentenceTransformer":
        return "it pools token vectors, and has no further modules of sentence-transformers"
    if pooling.mode not in POOLINGS:
        return f"it has no pooling {pooling.mode}"
    if pooling.truncate_dim is not None:
        return "it does not cut embeddings to their first dimensions"
    if pooling.prompts and not pooling.include_prompt:
        return "it pools the tokens of a prompt as well"
    return None


class GgufTarget(ExportTarget):
    """One GGUF file, from the names that the family declares, with its tokenizer."""

    name = "gguf"
    title = "llama.cpp"
    library = "gguf"
    package = "gguf"
    install = "pip install gguf"
    extra = "gguf"
    precisions: ClassVar[Mapping[str, Precision]] = {
        # 3e-4 to 7e-4 of a unit vector
        "float32": Precision(5e-3, HALF_GELU),
        "float16": Precision(1e-2, f"weights have 11 bits; {HALF_GELU}"),
        "bfloat16": Precision(5e-2, f"weights have 8 bits; {HALF_GELU}"),
        "q8_0": Precision(None, "8-bit weights, 32 to a scale"),
        "q5_1": Precision(None, "5-bit weights, 32 to a scale and an offset"),
        "q5_0": Precision(None, "5-bit weights, 32 to a scale"),
        "q4_1": Precision(None, "4-bit weights, 32 to a scale and an offset"),
        "q4_0": Precision(None, "4-bit weights, 32 to a scale"),
        "mxfp4": Precision(None, "4-bit floating-point weights, 32 to a power of two"),
    }
    precision_synonyms: ClassVar[Mapping[str, str]] = {"int8": "q8_0", "int4": "q4_0"}
    reads_token_types = False
    pools = True

    @override
    def runtime_problem(self) -> str | None:
        from zoo.exporting.targets.gguf.llama import llama_problem

        return llama_problem()

    @override
    def runtime_install(self) -> str:
        from zoo.exporting.targets.gguf.llama import INSTALL

        return INSTALL

    @override
    def versions(self) -> dict[str, str]:
        from zoo.exporting.targets.gguf.llama import llama_version

        return {**super().versions(), **llama_version()}

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        model = family.runtime_model(self.name, config, head)
        if isinstance(model, str):
            return model
        if model.read_only:
            return model.read_only
        return None if pooling is None else refused_pooling(pooling)

    @override
    def model_problem(self, family: "Family", config: Any, head: str) -> str | None:
        from zoo.families.base import DECODER_TOKENS

        if DECODER_TOKENS in str(family.heads()[head].inputs):
            return "node-llama-cpp runs no models of an encoder and a decoder"
        return None

    @override
    def check_model(self, checkpoint: "Checkpoint", settings: ExportSettings) -> None:
        from zoo.exporting.targets.gguf.vocabulary import load_described

        load_described(checkpoint)

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        from zoo.exporting.targets.gguf.write import write_gguf

        write_gguf(checkpoint, directory / FILE, precision)

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.gguf.session import LlamaSession

        return LlamaSession(checkpoint, directory / FILE, precision, threads)

    @override
    def tokens(
        self, checkpoint: "Checkpoint", directory: Path, texts: list[str]
    ) -> list[list[int]]:
        from zoo.exporting.targets.gguf.session import open_llama

        llama = open_llama(checkpoint, directory / FILE, 1)
        try:
            return llama.tokens(texts)
        finally:
            llama.close()

    @override
    def mixed_precision(
        self, checkpoint: "Checkpoint", precision: str
    ) -> "MixedPrecisionModel[str] | None":
        from zoo.exporting.targets.gguf.write import MixedPrecisionGguf

        return MixedPrecisionGguf(checkpoint, FILE, precision)

    @override
    def snippets(self, checkpoint: "Checkpoint") -> "Iterator[Snippet]":
        from zoo.exporting.targets.gguf.snippets import gguf_snippets

        return gguf_snippets(checkpoint)
