"""Verifying a checkpoint on disk: every claim of its manifest, checked again."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.convert.heads import as_stored
from zoo.convert.prove import same_bits
from zoo.convert.write import digest
from zoo.errors import VerificationError
from zoo.io.checks import Check, run_check
from zoo.paths import inside
from zoo.progress import progress
from zoo.weights import account_for

REFERENCE = "transformers"


def verify(path: Path, *, reference: bool = True) -> Iterator[Check]:
    """Check a checkpoint directory; yields each result as it is known.

    Args:
        path: a directory in our layout.
        reference: compare outputs with the reference library, where it is installed.

    Raises:
        SourceError, VerificationError: it cannot be read at all.
    """
    checkpoint = load_checkpoint(path)
    stages: list[tuple[str, Callable[[Checkpoint], str]]] = [("digests", check_digests)]
    if checkpoint.graph is None:
        stages += [
            ("account", check_account),
            ("round trip", check_round_trip),
            ("ties", check_ties),
        ]
    else:
        stages += [("export gate", check_export)]
    sound = True
    for name, stage in stages:
        result = run_check(name, partial(stage, checkpoint))
        sound = sound and result.outcome == "ok"
        yield result
    if checkpoint.graph is None and reference:
        yield _reference(checkpoint) if sound else Check(REFERENCE, "not run", "see above")


def check_digests(checkpoint: Checkpoint) -> str:
    """Compare every file with the manifest, both ways.

    Raises:
        VerificationError: a file is missing, changed, or not in the manifest.
    """
    known = checkpoint.manifest.files
    for name, before in known.items():
        path = inside(checkpoint.path, name, str(checkpoint.path / "zoo.json"))
        if not path.is_file():
            raise VerificationError(f"{path} is in the manifest and not in the directory")
        now = digest(path)
        if (now.bytes, now.blake3) != (before.bytes, before.blake3):
            raise VerificationError(
                f"{path} is not what was written: {now.bytes} bytes now, "
                f"{before.bytes} then, or other contents"
            )
    files = (p.relative_to(checkpoint.path) for p in checkpoint.path.rglob("*") if p.is_file())
    strays = sorted({str(path) for path in files} - {*known, "zoo.json"})
    if strays:
        raise VerificationError(
            f"{checkpoint.path} holds files that are not in the manifest: {', '.join(strays)}"
        )
    return f"{len(known)} files are what was written"


def check_account(checkpoint: Checkpoint) -> str:
    """Compare the tensors on disk with those of the configuration and head.

    Raises:
        VerificationError: a tensor is missing, left over or of another shape.
    """
    with checkpoint.open_weights() as reader:
        account = account_for(as_stored(checkpoint.weights), reader.tensors)
        account.require_closed(str(checkpoint.path), "convert it again")
    return f"{len(account.moves)} tensors, none missing, none left over"


def check_round_trip(checkpoint: Checkpoint) -> str:
    """Take each tensor to the Hub's layout and back.

    Raises:
        VerificationError: one does not come back bit for bit.
    """
    entries = checkpoint.weights.entries()
    with checkpoint.open_weights() as reader, progress("round trip", len(entries)) as advance:
        for entry in entries:
            if entry.target in reader.tensors:
                ours = reader.read(entry.target)
                back = entry.op.to_ours(entry.op.to_hub(ours), entry.shape)
                if not same_bits(back, ours):
                    raise VerificationError(f"{entry.target} does not come back bit for bit")
                reader.release(entry.target)
            advance(1)
    return "every tensor to the Hub's layout and back, bit for bit"


def check_ties(checkpoint: Checkpoint) -> str:
    """Build the model: what it stores once is what the file stores once.

    Raises:
        VerificationError: the model has parameters that the file lacks, or the reverse.
    """
    from zoo.backends.torch import load_model

    model = load_model(checkpoint)
    unique = {name for name, _ in model.named_parameters()}
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    with checkpoint.open_weights() as reader:
        stored = set(reader.tensors)
    if unique != stored:
        raise VerificationError(f"the model and the file differ in {sorted(unique ^ stored)[:6]}")
    aliases = checkpoint.weights.aliases()
    tied = f"; {', '.join(sorted(aliases))} tied on the Hub" if aliases else ""
    return f"{len(every)} parameters, {len(unique)} stored{tied}"


def check_export(checkpoint: Checkpoint) -> str:
    """Read the result of the export gate from the manifest.

    Raises:
        VerificationError: the graph did not pass it.
    """
    export = checkpoint.manifest.export or {}
    if export.get("validated") is not True:
        raise VerificationError(
            f"{checkpoint.path} holds a graph that did not pass the gate", "export it again"
        )
    return "the graph passed the gate when it was exported"


def _reference(checkpoint: Checkpoint) -> Check:
    if not checkpoint.family.has_reference(checkpoint.config, checkpoint.head_name):
        return Check(REFERENCE, "not run", "it has no class that computes the same")
    if importlib.util.find_spec(REFERENCE) is None:
        return Check(REFERENCE, "not run", "it is not installed; pip install 'plm-zoo[dev]'")
    return run_check(REFERENCE, partial(check_reference, checkpoint))


def check_reference(checkpoint: Checkpoint) -> str:
    """Compare outputs with the reference library, layer by layer.

    In float32, and where that differs in float64, too: models that are sensitive to rounding may
    differ in the one, wrong ones differ in both.

    Raises:
        VerificationError: an output differs by more than 1e-9 of its largest magnitude in float64,
            and by more than 1e-5 in float32; the first layer that diverges is named.
    """
    import torch

    from zoo.backends.torch import load_model
    from zoo.testing.oracle import compare_with_reference

    for dtype, accepted in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        model = load_model(checkpoint, dtype=dtype)
        found = compare_with_reference(
            checkpoint.family, checkpoint.config, checkpoint.head_name, model, tolerance=accepted
        )
        name, worst = max(found.outputs.items(), key=lambda item: item[1].relative)
        line = f"largest difference {worst.relative:.1e} of the largest magnitude, in {name}"
        if worst.relative <= accepted:
            return line if dtype is torch.float32 else f"{line}, in float64; float32 rounds more"
    raise VerificationError(f"{line}; the first layer that diverges: {found.first_diverging}")
