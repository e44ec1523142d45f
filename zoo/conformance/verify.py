"""Verification of models, exports, texts, corpora and runs on disk against their manifests."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from zoo.checkpoint import Checkpoint, check_tokenizer, is_checkpoint, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.checkpoint.records import MappingRecord
from zoo.conversion.checks import bitwise_equal
from zoo.conversion.infer_head import identity_map
from zoo.conversion.model_tensors import ties_message, untied_tables
from zoo.conversion.open import lazy_arrays
from zoo.errors import PluginError, UsageError, VerificationError, ZooError, first_names
from zoo.exporting.targets import ONNX
from zoo.io.digests.checks import Check, run_check
from zoo.io.progress import progress
from zoo.weights import match_tensors

REFERENCE = "transformers"
REMEDY = "make it again"


def verify(path: Path, *, reference: bool = True) -> Iterator[Check]:
    """Check a directory that a command wrote, and yield the result of each check."""
    from zoo.cleaning.records import is_cleaned
    from zoo.cleaning.verify import verify_cleaned_texts
    from zoo.data.corpus import is_corpus
    from zoo.data.verify import verify_corpus
    from zoo.training.state.verify import (
        is_run,
        is_run_checkpoint,
        verify_run,
        verify_run_checkpoint,
    )

    if is_checkpoint(path):
        yield from verify_model(path, reference=reference)
    elif is_corpus(path):
        yield from verify_corpus(path)
    elif is_cleaned(path):
        yield from verify_cleaned_texts(path)
    elif is_run(path):
        yield from verify_run(path)
    elif is_run_checkpoint(path):
        yield from verify_run_checkpoint(path)
    else:
        raise UsageError(
            f"{path} is not a converted checkpoint, export, corpus, run or cleaned texts",
            "`zoo convert` makes a checkpoint",
        )


def verify_model(path: Path, *, reference: bool) -> Iterator[Check]:
    """Check a converted model or an export; see ``verify``."""
    digests = run_check("digests", partial(check_digests, path))
    try:
        checkpoint = load_checkpoint(path)
    except (UsageError, PluginError):
        if digests.outcome == "ok":
            raise
        yield digests  # a flipped bit may have changed the name of the family
        return
    yield digests
    stages: list[tuple[str, Callable[[Checkpoint], str]]] = [
        ("mapping", check_mapping),
        ("round trip", check_round_trip),
        ("ties", check_ties),
    ]
    if checkpoint.is_adapter:
        stages = [("adapter", check_adapter)]
        reference = False
    if checkpoint.is_export:
        graphs = checkpoint.export_target == ONNX
        files = ("graphs", check_graphs) if graphs else ("files", check_runtime_files)
        stages = [files, ("export gate", check_export)]
        reference = False
        if checkpoint.model.tokenizer is not None:
            stages.append(("tokenizer", check_tokens))
    sound = digests.outcome == "ok"
    shaped = True  # whether the tensors fit the configuration
    for name, stage in stages:
        if not shaped:
            yield Check(name, "not run", "see mapping")
            continue
        result = run_check(name, partial(stage, checkpoint))
        sound = sound and result.outcome == "ok"
        shaped = name != "mapping" or result.outcome == "ok"
        yield result
    if reference:
        yield _reference(checkpoint) if sound else Check(REFERENCE, "not run", "see above")


def check_adapter(checkpoint: Checkpoint) -> str:
    """Check that an adapter fits its base, which has the digest of its record."""
    from zoo.conversion.cache import with_its_base
    from zoo.inference.load_model import load_model

    model = load_model(with_its_base(checkpoint, offline=True))
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"it fits its base: {count:,} parameters, none missing, none left over"


def check_mapping(checkpoint: Checkpoint) -> str:
    """Check that the tensors on disk fit the configuration and head."""
    with checkpoint.open_weights() as reader:
        mapping = match_tensors(identity_map(checkpoint.weights), reader.tensors)
        mapping.raise_if_incomplete(str(checkpoint.path), "convert it again")
    check_tokenizer(checkpoint)
    unread = checkpoint.read_part("account", MappingRecord).unread_files
    left = f"; not read of the source: {first_names(sorted(unread))}" if unread else ""
    return f"{len(mapping.copies)} tensors, none missing, none left over{left}"


def check_round_trip(checkpoint: Checkpoint) -> str:
    """Check that each tensor comes back from the Hub's layout bit for bit."""
    entries = checkpoint.weights.entries()
    with (
        checkpoint.open_weights() as reader,
        progress("checking", len(entries), unit="tensors") as advance,
    ):
        for entry in entries:
            if entry.target in reader.tensors:
                (tensor,) = lazy_arrays(reader, [entry.target])
                back = entry.op.from_hub(entry.op.to_hub(tensor), entry.shape)
                if not bitwise_equal(back, tensor):
                    raise VerificationError(f"{entry.target} does not come back bit for bit")
            advance(1)
    return "every tensor to the Hub's layout and back, bit for bit"


def check_ties(checkpoint: Checkpoint) -> str:
    """Check that the model and the file have the same tensors, tied ones once."""
    # These are parameters and persistent buffers; constants of the configuration are in neither.
    from zoo.inference.torch_session import load_model
    from zoo.training.state.state_dict import unique_state_dict

    model = load_model(checkpoint)
    unique = set(unique_state_dict(model))
    every = set(model.state_dict())
    with checkpoint.open_weights() as reader:
        stored = set(reader.tensors)
    if unique != stored:
        raise VerificationError(f"the model and the file differ in {sorted(unique ^ stored)[:6]}")
    tables = untied_tables(checkpoint.family, checkpoint.config, checkpoint.head_name)
    if tables:
        raise VerificationError(ties_message(tables), "correct the family, and convert again")
    copies = {alias for names in checkpoint.weights.copies().values() for alias in names}
    aliases = checkpoint.weights.aliases().keys() - copies
    tied = f"; {', '.join(sorted(aliases))} tied on the Hub" if aliases else ""
    return f"{len(every)} parameters, {len(unique)} stored{tied}"


def check_graphs(checkpoint: Checkpoint) -> str:
    """Check the operators of the graphs, and the digests of all files that they refer to."""
    from zoo.inference.exported import check_files

    count = check_files(checkpoint)
    return f"{count} {'file' if count == 1 else 'files'}, operators that zoo exports"


def check_runtime_files(checkpoint: Checkpoint) -> str:
    """Check the digests of the files of an export, and that its runtime opens them."""
    from zoo.exporting.session import open_session
    from zoo.exporting.targets import find_target

    session = open_session(checkpoint)
    return f"{find_target(session.backend).title} opens them"


def check_tokens(checkpoint: Checkpoint) -> str:
    """Check that the tokenizer's tokens and types have rows in the model's tables."""
    check_tokenizer(checkpoint)
    return "every token and token type has a row in the model's tables"


def check_export(checkpoint: Checkpoint) -> str:
    """Check that the manifest records a successful comparison with torch."""
    export = checkpoint.manifest.export or {}
    if reason := export.get("unverified"):
        raise VerificationError(
            f"{checkpoint.name} was not compared with torch when it was exported: {reason}",
            "export it again where its runtime is installed",
        )
    if export.get("validated") is not True:
        raise VerificationError(
            f"{checkpoint.name} did not pass the gate when it was exported", "export it again"
        )
    return "it passed the gate when it was exported"


def _reference(checkpoint: Checkpoint) -> Check:
    if not checkpoint.family.has_reference(checkpoint.config, checkpoint.head_name):
        return Check(REFERENCE, "not run", "it has no class that computes the same")
    from zoo.conformance.hf_reference import ReferenceUnavailable, reference_class

    try:
        reference_class(checkpoint.family, checkpoint.config, checkpoint.head_name)
        return Check(REFERENCE, "ok", check_reference(checkpoint))
    except ReferenceUnavailable as error:
        return Check(REFERENCE, "not run", str(error))
    except ZooError as error:
        return Check(REFERENCE, "failed", str(error))


def check_reference(checkpoint: Checkpoint) -> str:
    """Compare the outputs with the reference library's, module by module."""
    # The comparison is in float32, and if it fails in float64: models that amplify rounding errors
    # may differ in float32, wrong ones differ in both.
    import torch

    from zoo.conformance.comparison import compare_with_reference
    from zoo.inference.torch_session import load_model

    for dtype, accepted in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        model = load_model(checkpoint, dtype=dtype)
        comparison = compare_with_reference(
            checkpoint.family, checkpoint.config, checkpoint.head_name, model, tolerance=accepted
        )
        name, worst = max(comparison.outputs.items(), key=lambda item: item[1].relative)
        line = f"largest difference {worst.relative:.1e} of the largest magnitude, in {name}"
        if worst.relative <= accepted:
            return line if dtype is torch.float32 else f"{line}, in float64; float32 rounds more"
    raise VerificationError(f"{line}; {comparison.place}")
