"""Conversions of the golden files, to the layout of zoo and back to the Hub's."""

import json
from pathlib import Path
from typing import Any

from tools.same_results.context import Context, Results
from tools.same_results.records import digest_of, layout, tensors_digest

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
NO_TENSORS = ("elmo",)  # its files hold outputs only


def collect(context: Context) -> Results:
    """Yield digests of the tensors and configurations of both directions."""
    for golden in sorted(GOLDEN.glob("*/*.safetensors")):
        if golden.parent.name not in NO_TENSORS:
            name = f"{golden.parent.name}/{golden.stem}"
            yield name, converted(context, golden, context.work / "conversions" / name)
    for adapter in sorted((GOLDEN / "adapterhub").iterdir()):
        key = f"adapterhub/{adapter.name}"
        yield key, adapter_converted(context, key, adapter)


def converted(context: Context, golden: Path, folder: Path) -> dict[str, Any]:
    """Return digests of a golden file's model after conversion, and after export to the Hub."""
    head = hub_directory(golden, folder / "source")
    ours = folder / "ours"
    hub = folder / "hub"
    refusal = context.attempt("convert", folder / "source", "-o", ours, "--head", head, "--offline")
    if refusal is not None:  # for example an untied head whose configuration declares it tied
        return refusal
    context.env.zoo("convert", ours, "--to", "hub", "-o", hub)
    config = json.loads((hub / "config.json").read_text())
    return {
        "zoo": tensors_digest(ours),
        "hub": tensors_digest(hub),
        "config": digest_of(config),
        "layouts": digest_of([layout(path, context.clean) for path in (ours, hub)]),
    }


def hub_directory(golden: Path, folder: Path) -> str:
    """Write weights and configuration of a golden file as a Hub directory; return its head."""
    from safetensors import safe_open
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    with safe_open(golden, "np") as file:
        facts = file.metadata()
        names = [name for name in file.keys() if name.startswith("weights/")]  # noqa: SIM118
        weights = {name.removeprefix("weights/"): file.get_tensor(name) for name in names}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(facts["config"])
    return str(facts["head"])


def adapter_converted(context: Context, key: str, adapter: Path) -> Any:
    """Return a digest of a golden adapter's tensors, or why it was refused."""
    out = context.work / "conversions" / key
    out.parent.mkdir(parents=True, exist_ok=True)
    words = ("convert", adapter / "adapter", "--base", adapter / "base", "--allow-pickle")
    return context.attempt(*words, "-o", out) or tensors_digest(out)
