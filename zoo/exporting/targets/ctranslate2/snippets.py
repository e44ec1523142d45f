"""Snippets of model cards: how CTranslate2 runs a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.conversion.usage import TEXTS, Snippet
from zoo.exporting.snippets import Runtime, numpy_snippet
from zoo.hub.upload.plan import PLACEHOLDER

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

FOLDER = "ctranslate2"


def ctranslate2_snippets(checkpoint: "Checkpoint") -> Iterator[Snippet]:
    """Yield the snippet of a model: an encoder, a decoder, or both."""
    if not checkpoint.head.has_cache:
        yield numpy_snippet(checkpoint, _ENCODER)
    elif checkpoint.model.tokenizer is not None:
        class_name = "Generator"
        call = "generate_batch([tokens], max_length=20, sampling_topk=1)"
        result = "results[0].sequences_ids[0]"
        if "decoder_input_ids" in checkpoint.onnx_spec.inputs:
            class_name = "Translator"
            call = "translate_batch([tokens], max_decoding_length=20, beam_size=1)"
            result = "tokenizer.token_to_id(token) for token in results[0].hypotheses[0]"
            result = f"[{result}]"
        lines = [
            f"from ctranslate2 import {class_name}",
            "from huggingface_hub import snapshot_download",
            "from tokenizers import Tokenizer",
            "",
            f'folder = snapshot_download("{PLACEHOLDER}")',
            'tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")',
            f'model = {class_name}(f"{{folder}}/{FOLDER}")',
            f'tokens = tokenizer.encode("{TEXTS[0]}").tokens',
            f"results = model.{call}",
            f"print(tokenizer.decode({result}))",
        ]
        yield Snippet("CTranslate2", "python", lines)


_ENCODER = Runtime(
    program="CTranslate2",
    imports=("from ctranslate2 import Encoder, StorageView",),
    opening=(f'encoder = Encoder(f"{{folder}}/{FOLDER}")',),
    run="np.array(encoder.forward_batch(ids, lengths).{})".format,
    inputs=("input_ids", "attention_mask"),
    preparation=(
        'ids = StorageView.from_array(inputs["input_ids"].astype(np.int32))',
        'lengths = StorageView.from_array(inputs["attention_mask"].sum(1).astype(np.int32))',
    ),
)
