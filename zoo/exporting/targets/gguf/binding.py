"""Runs a GGUF file in llama.cpp through llama-cpp-python, as ``llama.mjs`` does through Node.js.

It is a program: a line of JSON on standard input is a request, a line on standard output its
answer.
"""

import base64
import ctypes
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

RANK = 4  # pooling of classifiers


class LlamaRunner:
    """A model and its context; a row of tokens is one sequence."""

    def __init__(self, path: str, given: dict[str, Any]) -> None:
        self.api: Any = importlib.import_module("llama_cpp")
        api = self.api
        self.room: int = given["contextSize"]
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model: Any = api.llama_model_load_from_file(os.fsencode(path), params)
        if not self.model:
            sys.exit("llama.cpp failed to load the model")
        settings = api.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = self.room
        settings.n_threads = settings.n_threads_batch = given["threads"]
        settings.embeddings = given["embeds"]
        settings.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context: Any = api.llama_init_from_model(self.model, settings)
        if not self.context:
            sys.exit("llama.cpp failed to make a context")
        self.vocabulary = api.llama_model_get_vocab(self.model)
        self.batch = api.llama_batch_init(self.room, 0, 1)
        only_encodes = api.llama_model_has_encoder(self.model)
        self._compute = api.llama_encode if only_encodes else api.llama_decode
        self.size = (
            api.llama_model_n_cls_out(self.model)
            if api.llama_pooling_type(self.context) == RANK
            else api.llama_model_n_embd(self.model)
        )

    def embedding(self, tokens: Sequence[int]) -> str:
        """Return the pooled vector of a row, or the scores of the classes."""
        self._run(tokens)
        return _encoded(self.api.llama_get_embeddings_seq(self.context, 0), self.size)

    def logits(self, tokens: Sequence[int]) -> list[str]:
        """Return the logits of each token."""
        self._run(tokens)
        width = self.api.llama_vocab_n_tokens(self.vocabulary)
        rows = (self.api.llama_get_logits_ith(self.context, at) for at in range(len(tokens)))
        return [_encoded(row, width) for row in rows]

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of a text, with those that llama.cpp adds."""
        content = text.encode()
        found = (self.api.llama_token * (len(text) + 8))()
        while True:
            count = self.api.llama_tokenize(
                self.vocabulary, content, len(content), found, len(found), True, False
            )
            if count >= 0:
                return list(found[:count])
            found = (self.api.llama_token * -count)()  # the room that is needed

    def _run(self, tokens: Sequence[int]) -> None:
        if len(tokens) > self.room:
            raise RuntimeError(f"a row has {len(tokens)} tokens, and {self.room} are the most")
        if memory := self.api.llama_get_memory(self.context):
            self.api.llama_memory_clear(memory, True)
        batch = self.batch
        batch.n_tokens = len(tokens)
        for at, token in enumerate(tokens):
            batch.token[at] = token
            batch.pos[at] = at
            batch.logits[at] = 1
            batch.n_seq_id[at] = 1
            batch.seq_id[at][0] = 0
        if code := self._compute(self.context, batch):
            raise RuntimeError(f"it returns the code {code} for {len(tokens)} tokens")


def _encoded(values: Any, size: int) -> str:
    if not values:
        raise RuntimeError("it returns nothing")
    content = ctypes.string_at(values, size * ctypes.sizeof(ctypes.c_float))
    return base64.b64encode(content).decode()


def answer(runner: LlamaRunner, request: dict[str, Any]) -> Any:
    """Return the answer to a request."""
    if "texts" in request:
        return [runner.tokens(text) for text in request["texts"]]
    compute = runner.logits if request["wanted"] == "logits" else runner.embedding
    return [compute(row) for row in request["rows"]]


def main() -> None:
    """Answer requests until the input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)  # for what llama.cpp prints

        def say(value: object) -> None:
            output.write(json.dumps(value, allow_nan=False) + "\n")
            output.flush()

        runner = LlamaRunner(sys.argv[1], json.loads(sys.argv[2]))
        say({"ready": True})
        for line in sys.stdin.buffer:
            try:
                say({"result": answer(runner, json.loads(line))})
            except Exception as error:
                say({"error": str(error)})


if __name__ == "__main__":
    main()
