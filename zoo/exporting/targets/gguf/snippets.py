"""Snippets of model cards: how llama.cpp runs a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.conversion.usage import TEXTS, Snippet, code_list, example_texts
from zoo.exporting.targets.gguf import FILE
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint


def gguf_snippets(checkpoint: "Checkpoint") -> Iterator[Snippet]:
    """Yield the snippet of an encoder or a language model; none for a classifier."""
    if checkpoint.head.has_labels:
        return
    imports = "getLlama, resolveModelFile"
    if checkpoint.head.has_cache:
        imports = "getLlama, LlamaCompletion, resolveModelFile"
    lines = [
        f'import {{ {imports} }} from "node-llama-cpp";',
        "",
        f'const modelPath = await resolveModelFile("hf:{PLACEHOLDER}/{FILE}");',
        "const llama = await getLlama();",
        "const model = await llama.loadModel({ modelPath });",
    ]
    if checkpoint.head.has_cache:
        lines += [
            "const context = await model.createContext();",
            "const completion = new LlamaCompletion({ contextSequence: context.getSequence() });",
            f'console.log(await completion.generateCompletion("{TEXTS[0]}", {{ maxTokens: 20 }}));',
        ]
    else:
        pooling = checkpoint.model.pooling or Pooling()
        texts = example_texts(pooling)
        result = ["  console.log(vector);"]
        if pooling.normalize:  # The package does not.
            result = [
                "  const length = Math.hypot(...vector);",
                "  console.log(vector.map((value) => value / length));",
            ]
        lines += [
            "const context = await model.createEmbeddingContext();",
            f"for (const text of {code_list(texts)}) {{",
            "  const { vector } = await context.getEmbeddingFor(text);",
            *result,
            "}",
        ]
    yield Snippet("node-llama-cpp", "js", lines)
