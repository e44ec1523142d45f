"""The gate: a target's own runtime runs what was written, and is compared with torch."""

import contextlib
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import VerificationError
from zoo.exporting.card import export_card, runtime_facts
from zoo.exporting.layout import unreadable_elsewhere, write_hub_files
from zoo.exporting.quantization.agreement import (
    TARGET,
    Summary,
    TextBatch,
    agreement,
    make_samples,
    require_different_scores,
    summaries,
)
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.quantization.search import DropError, select_quantized_layers
from zoo.exporting.quantization.texts import read_texts, why_no_texts
from zoo.exporting.quantization.variants import QUICK_BATCHES
from zoo.exporting.ranking import ranking_agreement
from zoo.exporting.report import (
    Agreement,
    ExportReport,
    OutputDifference,
    ShapeCheck,
    TokenizerAgreement,
)
from zoo.exporting.targets.base import (
    TOKEN_TYPES,
    ExportSettings,
    ExportTarget,
    WrittenModel,
    find_comparison_problem,
)
from zoo.exporting.targets.generated import GeneratedSequences
from zoo.exporting.validate import (
    ReferenceBatch,
    difference,
    require_equal,
    run_reference,
    shape_check,
    worst,
)
from zoo.exporting.weights import HALF_PRECISIONS, check_weights, require_fits
from zoo.families.onnx import EMBEDDING, OnnxSpec
from zoo.families.random_inputs import axis_lengths
from zoo.inference import load_session
from zoo.inference.load_model import load_model
from zoo.inference.session import Session
from zoo.inference.torch_session import TorchSession
from zoo.io.numbers import format_percent
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import check_unicode
from zoo.io.progress import progress
from zoo.sentence_models.numpy_modules import pool
from zoo.sentence_models.pooling import Pooling
from zoo.version import package_version

Arrays = Mapping[str, NDArray[Any]]
HIDDEN = "last_hidden_state"
MASK = "attention_mask"
NO_TRACED_SHAPE = (0, 0)  # no shape is left out of the comparison
MAX_TEXTS_SHOWN = 8  # Number of texts in a message.
Value = TypeVar("Value")


def export_model(
    target: ExportTarget, checkpoint: Checkpoint, directory: Path, settings: ExportSettings
) -> ExportReport:
    """Write a model, compare it with torch in the target's runtime, and publish it.

    Args:
        target: the target, with its options.
        checkpoint: a checkpoint with weights.
        directory: directory to write.
        settings: what to write, and what is accepted.

    Returns:
        the record of the export, which the manifest of the directory holds as well.

    Raises:
        UsageError: the target cannot hold the model, or its runtime is missing.
        VerificationError: the outputs differ from torch's; nothing was written.
    """
    check_unicode(directory.absolute(), "the directory of the export")
    precision = target.resolve_precisions(settings.precisions)[0]
    target.require_held(checkpoint, settings)
    problem = find_comparison_problem(target, checkpoint, unverified=settings.unverified)
    plan = settings.quantization
    if plan is None:
        plan = QuantizationPlan(max_drop=target.precisions[precision].max_drop)
    output = atomic_directory(
        directory, force=settings.force, sources=[checkpoint.path], managed=settings.managed
    )
    with output as staging, progress("exporting"):
        weights = check_weights(checkpoint)
        if target.runs_weights:  # another model has other weights
            require_fits(checkpoint, precision)
        written = target.write(checkpoint, staging, precision) or WrittenModel(checkpoint)
        with contextlib.closing(written):
            report = written.report_type(
                target=target.name,
                title=target.title,
                dtype=precision,
                validated=False,
                files=[],
                bytes=0,
                versions={"torch": package_version("torch") or "unknown", **target.versions()},
                weights=weights,
                unreadable_elsewhere=unreadable_elsewhere(written.checkpoint),
                unverified=problem,
                **written.details,
            )
            if problem is None:
                _compare(target, checkpoint, written, staging, report, plan, settings)
                report.validated = True
            written.add_variants(staging, report, settings)
            _publish(target, written, staging, report)
    return report


def _compare(
    target: ExportTarget,
    checkpoint: Checkpoint,
    written: WrittenModel[Any],
    folder: Path,
    report: ExportReport,
    plan: QuantizationPlan,
    settings: ExportSettings,
) -> None:
    """Compare what was written with torch, record it, and raise an error if they differ."""
    if why_no_texts(checkpoint) is None:
        allowed = settings.allow_tokenizer_differences
        compare_tokenizers(target, checkpoint, folder, report, allowed=allowed)
    if target.runs_weights:
        reference = TorchReference.from_written(written, target, report, plan)
        reference.compare(folder, report)
    else:
        compare_rankings(target, checkpoint, written, folder, report, plan)


def _publish(
    target: ExportTarget, written: WrittenModel[Any], folder: Path, report: ExportReport
) -> None:
    """Write configuration, tokenizer, model card and manifest next to the runtime's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    report.files = [path.relative_to(folder).as_posix() for path in files]
    report.bytes = sum(path.stat().st_size for path in files)
    checkpoint = written.checkpoint
    facts = written.card_facts(report)
    if facts is None:
        quantized = target.runs_weights and target.precisions[report.dtype].tolerance is None
        snippets = target.snippets(checkpoint)
        facts = runtime_facts(report, target.library, snippets, quantized=quantized)
    write_hub_files(
        checkpoint,
        folder,
        dtype=report.dtype if report.dtype in HALF_PRECISIONS else "float32",
        card=export_card(checkpoint, report, facts),
        record=report.to_dict(),
        tensors=report.tensors,
        more=written.config_keys(report),
    )


class TorchReference:
    """What torch computes of a model in float32, before the weights are freed.

    Args:
        written: the model, as the target wrote it.
        target: the target.
        plan: texts, metric and accepted loss of a quantized model.
        spec: inputs and outputs that are compared.
        batches: random tokens of several shapes, with torch's outputs.
        samples: batches of texts.
        outputs: torch's outputs for ``samples``.
        generated: what torch generates; ``None`` for a model that does not generate.
        metric: torch's metric on labelled data, if the plan has one.
    """

    def __init__(
        self,
        written: WrittenModel[Any],
        target: ExportTarget,
        plan: QuantizationPlan,
        spec: OnnxSpec,
        batches: Sequence[ReferenceBatch],
        samples: Sequence[TextBatch],
        outputs: Sequence[Arrays],
        generated: GeneratedSequences | None,
        metric: float,
    ) -> None:
        self.written = written
        self.checkpoint = written.checkpoint
        self.target = target
        self.plan = plan
        self.spec = spec
        self.batches = list(batches)
        self.samples = samples
        self.outputs = outputs
        self.generated = generated
        self.metric = metric

    @classmethod
    def from_written(
        cls,
        written: WrittenModel[Any],
        target: ExportTarget,
        report: ExportReport,
        plan: QuantizationPlan,
    ) -> "TorchReference":
        """Run a model in torch on random tokens of all lengths, and on texts."""
        checkpoint = written.checkpoint
        spec = checkpoint.onnx_spec
        samples: list[TextBatch] = []
        if written.compares_texts:
            samples = make_samples(checkpoint, [*probe_texts(), *read_texts(plan.eval_file)])
        if not target.reads_token_types:
            spec = replace(spec, inputs=without_token_types(spec.inputs))
            samples = [
                replace(sample, inputs=without_token_types(sample.inputs)) for sample in samples
            ]
        model = load_model(checkpoint, torch.float32)
        rows, tokens = report.traced or NO_TRACED_SHAPE
        batches = run_reference(model, spec, checkpoint.config, (rows, tokens))
        outputs = []
        for sample in samples:
            tensors = {}
            for name, array in sample.inputs.items():
                tensors[name] = torch.from_numpy(np.ascontiguousarray(array))
            with torch.inference_mode():
                outputs.append({name: value.numpy() for name, value in model(**tensors).items()})
        generated = None
        if target.generates and checkpoint.head.has_cache:
            generated = GeneratedSequences.from_model(checkpoint, model, samples)
        metric = 0.0
        is_quantized = target.precisions[report.dtype].tolerance is None
        if plan.metric is not None and is_quantized:
            metric = plan.metric.measure(load_session(checkpoint, "cpu"))[1]
        return cls(written, target, plan, spec, batches, samples, outputs, generated, metric)

    def compare(self, folder: Path, report: ExportReport) -> None:
        """Run the written files in their runtime, and raise an error if they differ from torch."""
        target = self.target
        max_drop = self.plan.max_drop
        precision = target.precisions[report.dtype]
        session = self._open(folder, report.dtype)
        unknown_outputs = {*session.outputs} - {*self.spec.outputs, EMBEDDING}
        if unknown_outputs or not session.outputs:
            raise VerificationError(
                f"{target.title} returns {', '.join(session.outputs) or 'nothing'}, where the "
                f"model returns {', '.join(self.spec.outputs)}"
            )
        if report.tolerance is None:
            report.tolerance = precision.tolerance
        report.reason = precision.reason
        self._leave_out_short(session.min_tokens)
        if report.tolerance is None:
            agreement_of_all = self._agreement(session)
            if not agreement_of_all.drop <= max_drop:
                del session  # it may map the files
                report.kept = self._keep(folder, report.dtype, agreement_of_all)
                session = self._open(folder, report.dtype)
        report.checks = self._checks(session)
        report.max_rel = max(check.worst for check in report.checks)
        report.argmax_agreement = worst(report.checks)["argmax_agreement"]
        if report.tolerance is not None:
            require_equal(report.checks, report.tolerance, target.title)
        if self.written.compares_texts:
            report.agreement = self._agreement(session)
            if report.tolerance is None:
                report.max_drop = max_drop
                require_agreement(report.agreement, max_drop, report.dtype)
        if self.generated is not None:
            report.generation = self.generated.compare(session, report.tolerance)

    def _open(self, folder: Path, dtype: str) -> Session:
        """Open written files with as many threads as torch has."""
        return self.target.open(self.checkpoint, folder, dtype, torch.get_num_threads())

    def _checks(self, session: Session) -> list[ShapeCheck]:
        """Compare a session with torch on random tokens, and on texts."""
        checks: list[ShapeCheck] = []
        with progress("comparing", len(self.batches), unit="batches") as advance:
            for number, batch in enumerate(self.batches):
                runs = self.written.runs(session, batch.inputs, batch.lengths, number)
                for past, outputs in runs:
                    checks.append(self._check(session, batch, outputs, past))
                    del outputs  # logits of a large vocabulary are freed before the next ones
                advance(1)
        for sample, outputs in zip(self.samples, self.outputs, strict=True):
            # Texts are compared as a batch where the outputs are of tokens of one length.
            if set(sample.inputs) == set(self.spec.inputs) and TARGET not in sample.inputs:
                lengths = sample.mask.sum(1).tolist()
                batch = ReferenceBatch(lengths, sample.inputs, outputs)
                check = self._check(session, batch, session.run(batch.inputs, session.outputs))
                check.texts = why_no_texts(self.checkpoint) is None
                checks.append(check)
        return checks

    def _agreement(self, session: Session, *, quick: bool = False) -> Agreement:
        """Return the agreement on texts, or on labelled data; ``quick`` takes fewer of them."""
        count = QUICK_BATCHES if quick else len(self.samples)
        names = session.outputs
        pooling = self.checkpoint.model.pooling
        weights = self.checkpoint.module_weights()
        expected: list[Summary] = []
        for sample, outputs in zip(self.samples[:count], self.outputs[:count], strict=True):
            run = partial(self._session_outputs, outputs, names, sample.mask)
            expected += summaries(run, [sample], self.spec, pooling, weights)
        metric = self.plan.metric
        if metric is None:
            require_different_scores(expected)
        actual = summaries(session.run, self.samples[:count], self.spec, pooling, weights)
        result = agreement(expected, actual, self.spec, self.checkpoint)
        result.random_tokens = why_no_texts(self.checkpoint) is not None
        if metric is None or quick:  # the cosine orders layers
            return result
        name, value = metric.measure(session)
        return result.with_metric(name, self.metric, value)

    def _keep(self, folder: Path, dtype: str, agreement_of_all: Agreement) -> list[str]:
        """Write the model again with the layers that lose most in higher precision.

        Args:
            folder: directory of the export, whose files are replaced.
            dtype: name of the precision.
            agreement_of_all: agreement of the model whose layers are all quantized.

        Returns:
            names of the layers in higher precision, the most sensitive first.
        """
        max_drop = self.plan.max_drop
        model = self.target.mixed_precision(self.checkpoint, dtype)
        if model is None:
            reason = f"{self.target.title} has one precision"
            require_agreement(agreement_of_all, max_drop, dtype, reason)
        assert model is not None, "or an error was raised"
        with contextlib.closing(model):
            selection = select_quantized_layers(
                model,
                partial(self._agreement_of_files, dtype),
                partial(self._agreement_of_files, dtype, quick=True),
                max_drop,
                dtype,
            )
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            model.write(folder, selection.quantized)
        return selection.higher_precision

    def _agreement_of_files(self, dtype: str, folder: Path, *, quick: bool = False) -> Agreement:
        """Return the agreement of written files; infinitely bad where they have no outputs."""
        session = self._open(folder, dtype)
        try:
            return self._agreement(session, quick=quick)
        except VerificationError:  # such as outputs that are not finite
            return Agreement(texts=0, measure="outputs", drop=math.inf)

    def _leave_out_short(self, min_tokens: int) -> None:
        """Leave out rows that the runtime does not run."""
        self.batches = [batch for batch in self.batches if min(batch.lengths) >= min_tokens]
        samples: list[TextBatch] = []
        outputs: list[Arrays] = []
        for sample, sample_outputs in zip(self.samples, self.outputs, strict=True):
            rows = sample.mask.sum(1) >= min_tokens
            if rows.any():
                inputs = {name: array[rows] for name, array in sample.inputs.items()}
                targets = None if sample.targets is None else sample.targets[rows]
                samples.append(TextBatch(inputs, sample.mask[rows], targets))
                outputs.append({name: array[rows] for name, array in sample_outputs.items()})
        self.samples = samples
        self.outputs = outputs

    def _check(
        self, session: Session, batch: ReferenceBatch, actual: Arrays, past: int = 0
    ) -> ShapeCheck:
        lengths = axis_lengths(self.spec, batch.lengths)
        mask = batch.inputs[MASK].astype(bool) if MASK in batch.inputs else None
        expected = self._session_outputs(batch.outputs, session.outputs, mask)
        axes = {**self.spec.outputs, EMBEDDING: ("batch", "size")}
        outputs: dict[str, OutputDifference] = {}
        for name in session.outputs:
            outputs[name] = difference(name, expected[name], actual[name], lengths, axes[name])
        return shape_check(batch.lengths, outputs, past)

    def _session_outputs(
        self,
        outputs: Arrays,
        names: Sequence[str],
        mask: NDArray[np.bool_] | None,
        _inputs: Arrays | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return torch's outputs under a session's names: an embedding is the pooled output."""
        results = {name: outputs[name] for name in names if name != EMBEDDING}
        if EMBEDDING in names:
            assert mask is not None, "a model with an embedding has a mask"
            pooling = self.checkpoint.model.pooling or Pooling()
            results[EMBEDDING] = pool(outputs[HIDDEN], mask, pooling)
        return results


def without_token_types(inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Return inputs without token types, for a runtime that does not read them."""
    return {name: value for name, value in inputs.items() if name != TOKEN_TYPES}


def compare_rankings(
    target: ExportTarget,
    checkpoint: Checkpoint,
    written: WrittenModel[Any],
    folder: Path,
    report: ExportReport,
    plan: QuantizationPlan,
) -> None:
    """Check that a model that was made from another one ranks texts as that one does."""
    report.reason = target.precisions[report.dtype].reason
    report.max_drop = plan.max_drop
    texts = [*probe_texts(), *read_texts(plan.eval_file)]
    derived = target.open(written.checkpoint, folder, report.dtype)
    original = TorchSession(checkpoint, dtype="float32")
    report.agreement = ranking_agreement(checkpoint, original, written.checkpoint, derived, texts)
    require_agreement(report.agreement, plan.max_drop, "distillation")


def require_agreement(result: Agreement, max_drop: float, dtype: str, why: str = "") -> None:
    """Check that a quantized model loses no more than is accepted."""
    if result.drop <= max_drop:
        return
    uniform = f"; {why} for all layers, so none can be kept in a higher one" if why else ""
    raise DropError(
        f"{dtype} changes the {result.measure} by {format_percent(result.drop)}, where "
        f"{format_percent(max_drop)} is accepted{uniform}",
        "nothing was written; --max-drop accepts more",
    )


def probe_texts() -> list[str]:
    """Return texts in many scripts, which tokenizers tend to cut differently."""
    text = resources.files("zoo.tokenizers").joinpath("probe.txt").read_text("utf-8")
    return [line for line in text.split("\n") if line.strip()]


def compare_tokenizers(
    target: ExportTarget,
    checkpoint: Checkpoint,
    folder: Path,
    report: ExportReport,
    *,
    allowed: bool,
) -> None:
    """Compare a runtime's own tokenizer, if it has one, with the model's on the probe texts."""
    texts = [*probe_texts(), *read_texts(None)]
    runtime_texts = target.tokens(checkpoint, folder, texts)
    if runtime_texts is None:
        return
    tokenizer = load_text_tokenizer(checkpoint)
    encoded_texts = tokenizer.encode(texts, max_tokens=None, offsets=False)
    different = []
    for text, encoded, runtime_ids in zip(texts, encoded_texts, runtime_texts, strict=True):
        if list(encoded.ids) != runtime_ids:
            different.append(text)
    report.tokenizer = TokenizerAgreement(texts=len(texts), different=different)
    if different and not allowed:
        raise VerificationError(
            f"{target.title} cuts {len(different)} of {len(texts)} texts differently from the "
            "model's tokenizer",
            "nothing was written; --allow-tokenizer-differences accepts it",
            [repr(text) for text in different[:MAX_TEXTS_SHOWN]],
        )
