"""Snippets of model cards: how llama.cpp runs a model."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.conversion.usage import TEXTS, Snippet, code_list, example_texts
from zoo.exporting.targets.gguf import FILE
from zoo.hub.upload.plan import PLACEHOLDER
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint


def gguf_snippets(checkpoint: "Checkpoint") -> Iterator[Snippet]:
    """Yield the snippets of an encoder or a language model; none for a classifier."""
    if checkpoint.head.has_labels:
        return
    yield Snippet("llama.cpp", "console", _commands(checkpoint))
    yield Snippet("node-llama-cpp", "js", _javascript(checkpoint))


def _commands(checkpoint: "Checkpoint") -> list[str]:
    """Return the commands of llama.cpp."""
    words = ["--hf-repo", PLACEHOLDER, "--hf-file", FILE]
    if checkpoint.head.has_cache:
        words = ["llama-completion", *words, "-no-cnv", "--temp", "0", "-n", "20", "-p", TEXTS[0]]
        return [f"$ {shlex.join(words)}"]
    pooling = checkpoint.model.pooling or Pooling()
    # 2 is the length of vectors that is 1; -1 leaves them as they are.
    length = "2" if pooling.normalize else "-1"
    lines = []
    for text in example_texts(pooling):
        command = ["llama-embedding", *words, "--embd-normalize", length, "-p", text]
        lines.append(f"$ {shlex.join(command)}")
    return lines


def _javascript(checkpoint: "Checkpoint") -> list[str]:
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
    return lines
