"""Every export target in every precision, of encoders, classifiers, decoders and both together."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.same_results.context import Context, Names, Results
from tools.same_results.finetuning import Case, command
from tools.same_results.records import (
    digest,
    digest_of,
    layout,
    require_cases,
    rounded,
    sorted_keys,
)

TEXTS = ("the good day", "a weak day 3")
FEW = ("--eval", "sentences")  # texts that quantized models are compared on
LOOSE = ("--allow-tokenizer-differences", "--offline")
# Words of options of quantized exports, which may lose any part of their quality.
QUANTIZED = ("int8", "--int8", "int4", "--int4", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "mxfp4")
# model -> what runs it
COMMANDS: Mapping[str, Sequence[Any]] = {
    "sentences": ("embed",),
    "bert": ("embed",),
    "classifier": ("classify",),
    "gpt": ("generate", "--max-new-tokens", 5),
    "t5": ("seq2seq", "--max-new-tokens", 5),
}
# ONNX has its precisions and forms as options: model and options of each export.
ONNX: Mapping[str, Sequence[tuple[str, Sequence[Any]]]] = {
    "float32": (
        ("bert", ()),
        ("sentences", ("--pooled", "--dim", 8)),
        ("classifier", ("--optimize",)),
        ("gpt", ()),
        ("gpt", ("--no-cache", "--opset", 18)),
        ("t5", ()),
    ),
    "float16": (("bert", ("--dtype", "float16")),),
    "int8": (
        ("bert", ("--dtype", "int8", *FEW)),
        ("sentences", ("--pooled", "--int8", *FEW)),
        ("classifier", ("--int8", "--eval", "samples")),
        ("classifier", ("--int8", "static", "--calibration", "sentences", *FEW)),
        ("bert", ("--only", "int8", *FEW)),
        ("t5", ("--int8", *FEW)),
    ),
    "int4": (("gpt", ("--int4", "--block-size", 64, *FEW)),),
}
# target -> models that are exported in every precision, and in the first one only
OTHERS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "openvino": (("bert",), ("classifier", "sentences", "gpt")),
    "ctranslate2": (("bert",), ("gpt", "t5", "classifier")),
    "gguf": (("bert",), ("gpt", "t5", "classifier")),
    "static": (("sentences",), ("gpt",)),
}
# options that one target has, on its default precision
OPTIONS: Mapping[str, Sequence[Sequence[Any]]] = {
    "openvino": (("--opset", 17), ("--int8",), ("--adapter-inputs",)),
    "ctranslate2": (("--pooled",),),
    "gguf": (("--only", "int8"),),
    "static": (("--dim", 8, "--sif-coefficient", 0, *FEW), ("--dim", 8, *FEW)),
}
FLOATS = ("float32", "float16", "bfloat16")
VOLATILE = ("seconds", "bytes", "versions", "machine", "created", "file_bytes", "size")


def check(names: Names) -> None:
    """Check that every target has models, and every precision of ONNX options."""
    targets = names["targets"]
    require_cases("the export target", targets, {"onnx", *OTHERS})
    require_cases("the precision of ONNX", targets["onnx"], ONNX)


def collect(context: Context) -> Results:
    """Yield the results of all targets."""
    targets = context.names["targets"]
    for target, precisions in targets.items():
        if target == "onnx":
            for precision in precisions:
                for model, options in ONNX[precision]:
                    yield from exported(context, target, model, *options)
            continue
        models, default_models = OTHERS[target]
        for precision in precisions:
            texts = () if precision in FLOATS and target != "static" else FEW
            for model in models:
                yield from exported(context, target, model, "--dtype", precision, *texts)
        for model in default_models:
            yield from exported(context, target, model)
        for options in OPTIONS.get(target, ()):
            yield from exported(context, target, models[0], *options)
    yield from of_adapters(context)


def model_of(context: Context, name: str) -> Path:
    """Return the model that a name of ``COMMANDS`` stands for."""
    if name == "bert":
        return context.backbone("bert")
    if name in ("gpt", "t5"):
        return context.model(name)
    cases = {
        "classifier": ("text-classification", Case()),
        "sentences": ("sentence-embedding", Case(columns=("--pair", "other"))),
    }
    task, case = cases[name]
    run = context.once(
        f"exported/{name}",
        lambda path: context.env.zoo(*command(context, task, case), "-o", path),
    )
    return run / "model"


def exported(context: Context, target: str, model: str, *options: Any) -> Results:
    """Yield the record of an export, and what the runtime computes with it."""
    words = [context.files.get(str(word), word) for word in options]
    name = " ".join([target, model, *map(str, options)])
    out = context.work / "exports" / name.replace(" ", "-")
    out.parent.mkdir(exist_ok=True)
    unverified = ("--unverified",) if target == "gguf" else ()
    source = model_of(context, model)
    max_drop = ("--max-drop", 1) if set(words) & set(QUANTIZED) else ()
    arguments = (
        "export",
        source,
        "--to",
        target,
        *words,
        *max_drop,
        *LOOSE,
        *unverified,
        "-o",
        out,
    )
    result = context.json(*arguments)
    if "exit code" in result:
        yield name, result
        return
    yield name, export_record(context, out, result)
    task, *task_options = COMMANDS[model]
    if target != "gguf":
        yield f"run {name}", context.output("run", task, out, *TEXTS, *task_options)


def export_record(context: Context, out: Path, result: Any) -> dict[str, Any]:
    """Return what a record holds of an export."""
    report = without_volatile(json.loads((out / "zoo.json").read_text())["export"])
    graphs = {
        path.relative_to(out).as_posix(): graph_record(path) for path in sorted(out.rglob("*.onnx"))
    }
    files = [path for path in out.rglob("*.gguf")]
    return {
        "report": digest_of(report),
        "numbers": rounded(numbers(report)),
        "graphs": graphs,
        "weights": {path.name: digest(path.read_bytes()) for path in files},
        "layout": digest_of(layout(out, context.clean)),
        "keys": digest_of(sorted_keys(result)),
    }


def without_volatile(value: Any) -> Any:
    """Return a report without times, sizes and versions."""
    if isinstance(value, dict):
        names = [name for name in value if name not in VOLATILE]
        return {name: without_volatile(value[name]) for name in names}
    if isinstance(value, list):
        return [without_volatile(entry) for entry in value]
    return value


def numbers(report: Any) -> dict[str, Any]:
    """Return the differences and agreements of a report."""
    names = ("max_rel", "max_abs", "drop", "agreement", "kept", "precision", "dtype")
    return {name: report[name] for name in names if name in report}


def graph_record(path: Path) -> list[str]:
    """Return names and shapes of a graph's inputs and outputs, and a digest of the outputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    entries = [*session.get_inputs(), *session.get_outputs()]
    shapes = digest(" ".join(f"{entry.name}{entry.type}{entry.shape}" for entry in entries))
    inputs = session.get_inputs()
    if any(entry.type != "tensor(int64)" for entry in inputs):
        return [shapes]  # with a key-value cache; ``zoo run`` runs it
    rng = np.random.default_rng(0)
    feeds = {}
    for entry in inputs:
        sizes = enumerate(entry.shape)
        shape = [size if isinstance(size, int) else 2 + place for place, size in sizes]
        feeds[entry.name] = rng.integers(0, 2, shape)
        if "mask" in entry.name:
            feeds[entry.name] = np.ones(shape, np.int64)
    outputs = session.run(None, feeds)
    return [shapes, digest(b"".join(output.tobytes() for output in outputs))]


def of_adapters(context: Context) -> Results:
    """Yield exports with an adapter: merged, and as inputs of the graph."""
    case = Case(options=("--adapter", "lora"))
    run = context.once(
        "exported/adapter",
        lambda path: context.env.zoo(*command(context, "text-classification", case), "-o", path),
    )
    for options in ((), ("--adapter-inputs",)):
        name = " ".join(["onnx", "adapter", *options])
        out = context.work / "exports" / name.replace(" ", "-")
        adapter = ("--adapter", run / "model", *options)
        arguments = ("export", context.model("bert"), *adapter, *LOOSE, "-o", out)
        result = context.json(*arguments)
        if "exit code" in result:
            yield name, result
            continue
        yield name, export_record(context, out, result)
