"""Embedding and generation in ``benchmarks.cuda``, on each backend."""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._common import alternate
from benchmarks._cuda_cells import Barrier, Cell
from benchmarks.embed import peer, sentences
from benchmarks.generate import prompts, spread
from zoo.data.cache import SAMPLE

SIDES = ("zoo", "transformers", "onnx")
PROVIDER = "CUDAExecutionProvider"
Run = Callable[[], Any]


def measure(cell: Cell, barrier: Barrier) -> dict[str, Any]:
    """Measure a side of embedding or generation."""
    device = torch.device(cell.device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    if cell.side == "onnx" and device.type == "cuda":
        require_provider()
    return TASKS[cell.name](Path(cell.folder), cell.side, device, barrier, smoke=cell.tiny)


def require_provider() -> None:
    """End the process with one line if ONNX Runtime has no CUDA."""
    import sys

    import onnxruntime

    if PROVIDER not in onnxruntime.get_available_providers():
        sys.exit("onnxruntime-gpu is not installed: ONNX Runtime has no CUDA here")


def make_models(folder: Path, *, smoke: bool) -> None:
    """Write an encoder with a tokenizer and a decoder in the Hub's layout, with random weights."""
    import transformers

    from zoo.data.tokenizer import TokenizerToTrain
    from zoo.plugins import get_family

    small: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    vocabulary = 1000 if smoke else 30522
    torch.manual_seed(0)
    encoder = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=vocabulary, **({**small, "intermediate_size": 128} if smoke else {})
        )
    )
    encoder.save_pretrained(folder / "encoder")
    text = (SAMPLE / "alice.txt").read_text("utf-8").splitlines()
    trained = TokenizerToTrain.for_family(
        get_family("bert"), vocab_size=1000 if smoke else 4096, tokenizer_type=None
    ).make(lambda: [text])
    (folder / "encoder" / "tokenizer.json").write_bytes(trained.json)
    words = {"unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "encoder" / "tokenizer.json"),
        **words,
        cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(folder / "encoder")
    tiny: dict[str, Any] = (
        {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000} if smoke else {}
    )
    decoder = transformers.GPT2LMHeadModel(transformers.GPT2Config(**tiny)).requires_grad_(False)
    spread(decoder)  # the best token is distinct at each step
    decoder.save_pretrained(folder / "decoder")


def seconds(run: Run, rounds: int) -> float:
    """Return the median time of a function that returns results on the CPU."""
    return alternate({"": run}, rounds=rounds)[""].median


def embed(
    folder: Path, side: str, device: torch.device, barrier: Barrier, *, smoke: bool
) -> dict[str, Any]:
    """Embed sentences; return sentences per second and the path of the embeddings."""
    texts = sentences(SAMPLE, 32 if smoke else 2048)
    run = embedder(folder / "encoder", side, device)
    vectors = folder / f"embed-{side}.npy"
    np.save(vectors, run(texts))
    barrier()
    speed = len(texts) / seconds(lambda: run(texts), 1 if smoke else 3)
    return {"per_second": speed, "result": str(vectors)}


def embedder(path: Path, side: str, device: torch.device) -> Callable[[Sequence[str]], Any]:
    """Return a function that embeds texts: bfloat16 on CUDA, float16 in ONNX Runtime there."""
    import zoo

    cuda = device.type == "cuda"
    if side == "transformers":
        dtype = torch.bfloat16 if cuda else torch.float32
        return peer(path, 512, 64, by_length=True, device=device, dtype=dtype)
    os.environ.setdefault("ZOO_HOME", str(path.parent / "zoo-home"))
    warnings.simplefilter("ignore")  # the encoder does not say how it pools: by the mean
    if side == "onnx":
        kind = "float16" if cuda else "float32"
        return zoo.load(path, backend="onnx", device=str(device), dtype=kind).embed
    return zoo.load(path, backend=device.type, dtype="bfloat16" if cuda else "float32").embed  # type: ignore[arg-type]


def generate(
    folder: Path, side: str, device: torch.device, barrier: Barrier, *, smoke: bool
) -> dict[str, Any]:
    """Generate greedily from prompts; return tokens per second and the path of the tokens."""
    count, length, new = (2, 8, 4) if smoke else (16, 128, 128)
    run = generator(folder / "decoder", side, device, count, length, new)
    tokens = folder / f"generate-{side}.npy"
    np.save(tokens, np.array(run()))
    barrier()
    speed = count * new / seconds(run, 1 if smoke else 3)
    return {"per_second": speed, "result": str(tokens)}


def generator(
    path: Path, side: str, device: torch.device, count: int, length: int, new: int
) -> Run:
    """Return a function that generates the new tokens of each prompt."""
    import zoo
    from zoo.inference.generation.config import GenerationConfig
    from zoo.inference.generation.decoder import pad
    from zoo.inference.generation.generate import generate as generate_tokens

    cuda = device.type == "cuda"
    settings = GenerationConfig(max_new_tokens=new)
    rows = prompts(count, length, 1000)
    if side == "transformers":
        return peer_generator(path, device, pad(rows, side="left", pad_id=0, device=device), new)
    os.environ.setdefault("ZOO_HOME", str(path.parent / "zoo-home"))
    if side == "onnx":
        kind = "float16" if cuda else "float32"
        session = zoo.load(path, backend="onnx", device=str(device), dtype=kind).session
        inputs = pad(rows, side="left", pad_id=0, device="cpu")
    else:
        kind = "bfloat16" if cuda else "float32"
        session = zoo.load(path, backend=device.type, dtype=kind).session  # type: ignore[arg-type]
        inputs = pad(rows, side="left", pad_id=0, device=device)
    decoder = session.decoder()
    return lambda: generate_tokens(decoder, inputs, settings)


def peer_generator(path: Path, device: torch.device, inputs: Any, new: int) -> Run:
    """Return a function that generates with transformers."""
    import transformers

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model: Any = transformers.GPT2LMHeadModel.from_pretrained(path, dtype=dtype)
    model = model.to(device).eval()
    mask = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))

    @torch.inference_mode()
    def run() -> Any:
        generated = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=mask,
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        return generated[:, -new:].tolist()

    return run


def agreement(task: str, results: dict[str, str]) -> dict[str, float]:
    """Return for each side how well its results agree with those of transformers.

    The smallest cosine similarity of two embeddings; the fraction of tokens that are the same.
    """
    arrays = {side: np.load(path) for side, path in results.items()}
    expected = arrays.get("transformers")
    if expected is None:
        return {}
    if task == "generate":
        return {side: float((tokens == expected).mean()) for side, tokens in arrays.items()}

    def cosine(a: Any, b: Any) -> float:
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        return float(((a * b).sum(1) / norms).min())

    return {side: cosine(vectors, expected) for side, vectors in arrays.items()}


TASKS = {"embed": embed, "generate": generate}
