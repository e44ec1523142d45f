"""Results of exports in Transformers.js, Chromium, sentence-transformers and optimum, and in zoo.

Small models with random weights and trained tokenizers are written by transformers, converted and
exported; ``foreign_readers.mjs`` and ``foreign_readers_python.py`` run the exports by the
pipelines of other programs, and the results are compared with those of ``zoo.load``. The other
programs are not dependencies of zoo, and one needs an older transformers, so each has an
environment of its own:

    npm install --ignore-scripts --prefix JS \\
        @huggingface/transformers @sparticuz/chromium puppeteer-core
    python -m venv PY && PY/bin/pip install optimum-onnx[onnxruntime] sentence-transformers==5.7.0
    python -m benchmarks.foreign_readers --node-modules JS/node_modules --python PY/bin/python

``foreign_readers_browser.mjs`` loads a sentence encoder in int8 on a page in headless Chromium: the
small one, or the export of ``--encoder``. It is skipped, with the reason, where Chromium does not
start. Transformers.js also reads the graphs in int8 and int4 of the exports that have them, and
exports in float16. Texts, labels and answers have to be equal, and numbers within 1e-4, in float16
within 1e-3.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import zoo
from tests.exporting.making import export_onnx
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.data.cache import SAMPLE
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.hub.source import CheckpointDir
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling

FOLDER = Path(__file__).parent
TEXTS = ["The river was cold.", "Alice ran across the field after the white rabbit."]
QUESTION = {"question": "Who ran?", "context": TEXTS[1]}
NEW_TOKENS = 12
ENCODER = "feature-extraction"
IN_BROWSER = f"{ENCODER}, int8"
# quantized graphs of the exports, beside those in float32
QUANTIZED = {
    ENCODER: ("int8",),
    "text-generation": ("int8", "int4"),
    "text2text-generation": ("int8", "int4"),
}
# tasks that are also exported in float16, to a directory of their own
IN_FLOAT16 = (ENCODER, "text-classification", "text-generation", "text2text-generation")
TOLERANCE = 1e-4
FLOAT16_TOLERANCE = 1e-3
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = {**SIZE, "intermediate_size": 64, "max_position_embeddings": 64, "num_labels": 3}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
# task -> class of transformers and its configuration
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "feature-extraction": ("BertModel", BERT),
    "fill-mask": ("BertForMaskedLM", BERT),
    "text-classification": ("BertForSequenceClassification", BERT),
    "token-classification": ("BertForTokenClassification", BERT),
    "question-answering": ("BertForQuestionAnswering", {**BERT, "num_labels": 2}),
    "text-generation": ("GPT2LMHeadModel", GPT2),
    "text2text-generation": ("T5ForConditionalGeneration", T5),
}


def wordpiece(lines: Sequence[str]) -> tuple[Tokenizer, dict[str, str]]:
    """Return a trained tokenizer and its special tokens."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special)
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer, dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))


def byte_level(lines: Sequence[str]) -> tuple[Tokenizer, dict[str, str]]:
    """Return a trained tokenizer and its special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer, dict.fromkeys(("bos", "eos", "unk"), end)


def unigram(lines: Sequence[str]) -> tuple[Tokenizer, dict[str, str]]:
    """Return a trained tokenizer and its special tokens."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return tokenizer, dict(zip(("pad", "eos", "unk"), special, strict=True))


TOKENIZERS = {"Bert": wordpiece, "GPT2": byte_level, "T5For": unigram}


def make(task: str, folder: Path) -> Path:
    """Write a model by transformers, convert it, and return its export."""
    import torch

    if (folder / "export" / task).is_dir():
        return folder / "export" / task
    transformers.utils.logging.disable_progress_bar()
    architecture, shape = MODELS[task]
    train = next(train for name, train in TOKENIZERS.items() if architecture.startswith(name))
    tokenizer, special = train((SAMPLE / "alice.txt").read_text().splitlines())
    kind = getattr(transformers, architecture)
    config = kind.config_class(**shape, vocab_size=tokenizer.get_vocab_size(), **_ids(tokenizer))
    torch.manual_seed(0)
    model = kind(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.save_pretrained(folder / "hub")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{role}_token": token for role, token in special.items()}
    )
    fast.save_pretrained(folder / "hub")
    if task == ENCODER:
        for name, content in hub_pooling_files(Pooling("mean", normalize=True), 32).items():
            (folder / "hub" / name).parent.mkdir(exist_ok=True)
            (folder / "hub" / name).write_bytes(content)
    convert(CheckpointDir(folder / "hub", task), folder / "model")
    copies = [Quantization(dtype) for dtype in QUANTIZED.get(task, ())]
    plan = QuantizationPlan(copies, max_drop=float("inf")) if copies else None
    checkpoint = load_checkpoint(folder / "model")
    export_onnx(checkpoint, folder / "export" / task, quantization=plan)
    if task in IN_FLOAT16:
        export_onnx(checkpoint, folder / "float16" / task, dtype="float16")
    return folder / "export" / task


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the token ids of a configuration."""
    if (end := tokenizer.token_to_id("<|endoftext|>")) is not None:
        return {"bos_token_id": end, "eos_token_id": end}
    if (end := tokenizer.token_to_id("</s>")) is not None:
        return {"eos_token_id": end, "pad_token_id": 0, "decoder_start_token_id": 0}
    return {"pad_token_id": 0}


def _classified(result: Mapping[str, Any]) -> dict[str, float]:
    return dict(result["scores"])


def _tokens(result: Mapping[str, Any]) -> list[Any]:
    return [[token["label"], token["score"]] for token in result["tokens"]]


def _span_logits(model: "zoo.api.Model") -> list[list[float]]:
    pair = (QUESTION["question"], QUESTION["context"])
    (encoded,) = model.tokenizer.encode([pair], max_tokens=None)
    inputs = {"input_ids": [encoded.ids], "token_type_ids": [encoded.type_ids]}
    outputs = model.session.run({name: np.array(rows) for name, rows in inputs.items()})
    return [outputs[name][0].tolist() for name in ("start_logits", "end_logits")]


def variants(exports: Mapping[str, Path]) -> dict[str, Path]:
    """Return task -> export, and ``task, dtype`` -> export for each graph in another dtype."""
    quantized = {
        f"{task}, {dtype}": path
        for task, path in exports.items()
        for dtype in QUANTIZED.get(task, ())
    }
    halves = {
        f"{task}, float16": path.parents[1] / "float16" / task
        for task, path in exports.items()
        if task in IN_FLOAT16
    }
    return dict(exports) | quantized | halves


def expected(variant: str, path: Path) -> Any:
    """Return the results of zoo, as the scripts of the other programs return theirs."""
    task, _, dtype = variant.partition(", ")
    model = zoo.load(path, backend="onnx", dtype=dtype or None, threads=1)
    masked = TEXTS[0].replace("cold", "[MASK]")
    tasks: dict[str, Callable[[], Any]] = {
        "feature-extraction": lambda: model.embed(TEXTS).tolist(),
        "fill-mask": lambda: [
            [best["token"], best["score"]]
            for best in model.fill_mask([masked])[0]["masks"][0]["predictions"]
        ],
        "text-classification": lambda: [_classified(r) for r in model.classify(TEXTS)],
        "token-classification": lambda: [_tokens(r) for r in model.classify(TEXTS)],
        "question-answering": lambda: _span_logits(model),
        # one text at a time: in int8, a batch of several has other scales of activations
        "text-generation": lambda: [
            model.generate([text], max_new_tokens=NEW_TOKENS)[0]["generated"] for text in TEXTS
        ],
        "text2text-generation": lambda: [
            model.seq2seq([text], max_new_tokens=NEW_TOKENS)[0]["generated"] for text in TEXTS
        ],
    }
    return tasks[task]()


def run(command: Sequence[str], exports: Mapping[str, Path], **env: str) -> dict[str, Any]:
    """Run a script of another program on all exports; return task -> results, or an error."""
    request = {
        "exports": {task: str(path) for task, path in exports.items()},
        "texts": TEXTS,
        "question": QUESTION,
        "new_tokens": NEW_TOKENS,
    }
    done = subprocess.run(
        command,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def difference(actual: Any, wanted: Any) -> float:
    """Return the largest difference of numbers; infinite where texts or shapes differ."""
    if isinstance(wanted, dict):
        actual = [actual.get(key) for key in wanted] if isinstance(actual, dict) else None
        return difference(actual, list(wanted.values()))
    if isinstance(wanted, list):
        if not isinstance(actual, list) or len(actual) != len(wanted):
            return float("inf")
        return max((difference(a, b) for a, b in zip(actual, wanted, strict=True)), default=0.0)
    if isinstance(wanted, float) and isinstance(actual, int | float):
        return abs(actual - wanted)
    return 0.0 if actual == wanted else float("inf")


def main() -> int:
    """Compare all programs that are given, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreign_readers")
    parser.add_argument("--node-modules", type=Path, help="folder with Transformers.js")
    parser.add_argument("--python", type=Path, help="Python with optimum and sentence-transformers")
    parser.add_argument("--folder", type=Path, help="where exports are kept and used again")
    parser.add_argument("--task", action="append", choices=list(MODELS), help="only these tasks")
    parser.add_argument("--encoder", type=Path, help="export with a graph in int8, for Chromium")
    options = parser.parse_args()
    tasks = options.task or list(MODELS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        exports = {task: make(task, folder / task) for task in tasks}
        wanted = {name: expected(name, path) for name, path in variants(exports).items()}
        results: dict[str, Any] = {}
        if options.node_modules:
            script = str(FOLDER / "foreign_readers.mjs")
            modules = str(options.node_modules.resolve())
            results |= run(["node", script], variants(exports), MODULES=modules)
            if encoder := options.encoder or exports.get(ENCODER):
                wanted[IN_BROWSER] = expected(IN_BROWSER, encoder)
                results |= _in_browser(modules, encoder)
        if options.python:
            script = str(FOLDER / "foreign_readers_python.py")
            results |= run([str(options.python), script], exports)
    return _table(results, wanted)


def _in_browser(modules: str, encoder: Path) -> dict[str, Any]:
    """Run the encoder in Chromium, which is unpacked to a temporary folder."""
    script = str(FOLDER / "foreign_readers_browser.mjs")
    with tempfile.TemporaryDirectory() as scratch:
        return run(["node", script], {ENCODER: encoder}, MODULES=modules, TMPDIR=scratch)


def _table(results: Mapping[str, Any], wanted: Mapping[str, Any]) -> int:
    """Print the largest difference of each program and task; return 1 if one is too large."""
    failures = 0
    print("| program | task | difference |\n| --- | --- | ---: |")
    for name, actual in results.items():
        program, _, task = name.partition(": ")
        if isinstance(actual, dict) and "skipped" in actual:
            print(f"| {program} | {task} | skipped: {actual['skipped']} |")
            continue
        error = actual.get("error") if isinstance(actual, dict) else None
        largest = float("inf") if error else difference(actual, wanted[task])
        failures += not largest <= (FLOAT16_TOLERANCE if "float16" in task else TOLERANCE)
        shown = error or ("equal" if largest == 0 else f"{largest:.1e}")
        print(f"| {program} | {task} | {shown} |")
        if not error and largest == float("inf"):
            print(f"    zoo: {wanted[task]}\n    {program}: {actual}", file=sys.stderr)
    return min(failures, 1)


if __name__ == "__main__":
    raise SystemExit(main())
