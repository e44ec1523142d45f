"""The gate: a target's own runtime runs what was written, and is compared with torch."""

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import UsageError, VerificationError
from zoo.exporting.card import export_card
from zoo.exporting.layout import unreadable_elsewhere, write_hub_files
from zoo.exporting.quantization.agreement import (
    TARGET,
    Summary,
    TextBatch,
    agreement,
    make_samples,
    read_texts,
    require_different_scores,
    summaries,
    why_no_texts,
)
from zoo.exporting.quantization.search import DropError, select_quantized_layers
from zoo.exporting.quantization.variants import QUICK_BATCHES, QuantizationPlan
from zoo.exporting.report import (
    Agreement,
    ExportReport,
    OutputDifference,
    ShapeCheck,
    TokenizerAgreement,
)
from zoo.exporting.targets.base import TOKEN_TYPES, ExportSettings, ExportTarget
from zoo.exporting.targets.generated import Generated
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
UNTRACED = (0, 0)  # no shape is left out of the comparison
SHOWN = 8  # texts of a message


def export_to(
    target: ExportTarget, checkpoint: Checkpoint, directory: Path, settings: ExportSettings
) -> ExportReport:
    """Write a model for a runtime, compare it with torch, and publish it if they agree."""
    check_unicode(directory.absolute(), "the directory of the export")
    precision = target.resolve_precisions(settings.precisions)[0]
    target.require_held(checkpoint)
    target.check_settings(checkpoint, settings)
    if missing := target.writer_problem():
        raise UsageError(f"{target.title} is not available: {missing}", target.install)
    problem = target.model_problem(checkpoint.family, checkpoint.config, checkpoint.head_name)
    if problem is not None and not settings.unverified:
        raise UsageError(
            f"{target.title} cannot be compared with torch: {problem}",
            "add --unverified to write the model all the same",
        )
    problem = problem or target.runtime_problem()
    if problem is not None and not settings.unverified:
        raise UsageError(
            f"{target.title} is not available, so nothing can be compared with torch: {problem}",
            f"{target.runtime_install()}, or add --unverified",
        )
    plan = settings.quantization or QuantizationPlan()
    output = atomic_directory(
        directory, force=settings.force, sources=[checkpoint.path], managed=settings.managed
    )
    with output as staging, progress("exporting"):
        weights = check_weights(checkpoint)
        require_fits(checkpoint, precision)
        details = target.write(checkpoint, staging, precision)
        report = target.report_type(
            target=target.name,
            title=target.title,
            dtype=precision,
            validated=False,
            files=[],
            bytes=0,
            versions={"torch": package_version("torch") or "unknown", **target.versions()},
            weights=weights,
            unreadable_elsewhere=unreadable_elsewhere(checkpoint),
            unverified=problem,
            **(details or {}),
        )
        if problem is None:
            if target.has_tokenizer and why_no_texts(checkpoint) is None:
                compare_tokenizers(
                    target,
                    checkpoint,
                    staging,
                    report,
                    allowed=settings.allow_tokenizer_differences,
                )
            TorchReference.of(checkpoint, target, report, plan).compare(
                target, staging, report, plan
            )
            report.validated = True
        target.add_variants(checkpoint, staging, report, settings)
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        report.files = [path.relative_to(staging).as_posix() for path in files]
        report.bytes = sum(path.stat().st_size for path in files)
        write_hub_files(
            checkpoint,
            staging,
            dtype=precision if precision in HALF_PRECISIONS else "float32",
            card=export_card(
                checkpoint,
                report,
                target.card_facts(report),
                target.usage(checkpoint, report),
            ),
            record=report.to_dict(),
            tensors=report.tensors,
            more=target.hub_keys(report),
        )
    return report


class TorchReference:
    """What torch computes in float32, before the weights are freed."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        spec: OnnxSpec,
        batches: Sequence[ReferenceBatch],
        samples: Sequence[TextBatch],
        outputs: Sequence[Arrays],
        generated: Generated | None = None,
        metric: float = 0.0,
    ) -> None:
        self.checkpoint = checkpoint
        self.spec = spec
        self.generated = generated
        self.metric = metric
        self.batches = list(batches)
        self.samples = samples
        self.outputs = outputs

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        target: ExportTarget,
        report: ExportReport,
        plan: QuantizationPlan,
    ) -> "TorchReference":
        """Run a model in torch on random tokens of all lengths, and on texts."""
        spec = checkpoint.onnx_spec
        samples = []
        if target.compares_texts:
            samples = make_samples(checkpoint, [*probe_texts(), *read_texts(plan.eval_file)])
        if not target.reads_token_types:
            spec = replace(spec, inputs={n: a for n, a in spec.inputs.items() if n != TOKEN_TYPES})
            samples = [
                replace(s, inputs={n: a for n, a in s.inputs.items() if n != TOKEN_TYPES})
                for s in samples
            ]
        model = load_model(checkpoint, torch.float32)
        rows, tokens = report.traced or UNTRACED
        batches = run_reference(model, spec, checkpoint.config, (rows, tokens))
        outputs = []
        for sample in samples:
            arrays = {name: np.ascontiguousarray(a) for name, a in sample.inputs.items()}
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            with torch.inference_mode():
                outputs.append({name: value.numpy() for name, value in model(**tensors).items()})
        generated = None
        if target.generates and checkpoint.head.has_cache:
            generated = Generated.of(checkpoint, model, samples)
        metric = 0.0
        is_quantized = target.precisions[report.dtype].tolerance is None
        if plan.metric is not None and is_quantized:
            metric = plan.metric.measure(load_session(checkpoint, "cpu"))[1]
        return cls(checkpoint, spec, batches, samples, outputs, generated, metric)

    def compare(
        self, target: ExportTarget, folder: Path, report: ExportReport, plan: QuantizationPlan
    ) -> None:
        """Run the written files in their runtime, and raise an error if they differ from torch."""
        precision = target.precisions[report.dtype]
        threads = torch.get_num_threads()
        session = target.open(self.checkpoint, folder, report.dtype, threads)
        unknown = {*session.outputs} - {*self.spec.outputs, EMBEDDING}
        if unknown or not session.outputs:
            raise VerificationError(
                f"{target.title} returns {', '.join(session.outputs) or 'nothing'}, where the "
                f"model returns {', '.join(self.spec.outputs)}"
            )
        if report.tolerance is None:
            report.tolerance = precision.tolerance
        report.reason = precision.reason
        self._leave_out_short(session.min_tokens)
        if report.tolerance is None:
            result = self._agreement(session, plan)
            if not result.drop <= plan.max_drop:
                del session  # it may map the files
                report.kept = self._keep(target, folder, report.dtype, plan, result)
                session = target.open(self.checkpoint, folder, report.dtype, threads)
        report.checks = self._checks(target, session)
        report.max_rel = max(check.worst for check in report.checks)
        report.argmax_agreement = worst(report.checks)["argmax_agreement"]
        if report.tolerance is not None:
            require_equal(report.checks, report.tolerance, target.title)
        if target.compares_texts:
            report.agreement = self._agreement(session, plan)
            if report.tolerance is None:
                report.max_drop = plan.max_drop
                require_agreement(report.agreement, plan.max_drop, report.dtype)
        if self.generated is not None:
            report.generation = self.generated.compare(session, report.tolerance)

    def _checks(self, target: ExportTarget, session: Session) -> list[ShapeCheck]:
        """Compare a session with torch on random tokens, and on texts."""
        checks: list[ShapeCheck] = []
        with progress("comparing", len(self.batches), unit="batches") as advance:
            for number, batch in enumerate(self.batches):
                for past, outputs in target.runs(session, batch.inputs, batch.lengths, number):
                    checks.append(self._check(session, batch, outputs, past))
                    del outputs  # logits of a large vocabulary are freed before the next ones
                advance(1)
        for sample, outputs in zip(self.samples, self.outputs, strict=True):
            # as a batch, where an output is of tokens of one length
            if set(sample.inputs) == set(self.spec.inputs) and TARGET not in sample.inputs:
                lengths = sample.mask.sum(1).tolist()
                batch = ReferenceBatch(lengths, sample.inputs, outputs)
                check = self._check(session, batch, session.run(batch.inputs, session.outputs))
                check.texts = why_no_texts(self.checkpoint) is None
                checks.append(check)
        return checks

    def _agreement(
        self, session: Session, plan: QuantizationPlan, *, quick: bool = False
    ) -> Agreement:
        """Return the agreement on texts, or on labelled data; ``quick`` takes fewer of them."""
        count = QUICK_BATCHES if quick else len(self.samples)
        names = session.outputs
        pooling = self.checkpoint.model.pooling
        weights = self.checkpoint.module_weights()
        expected: list[Summary] = []
        for sample, outputs in zip(self.samples[:count], self.outputs[:count], strict=True):
            expected += summaries(
                partial(self._named, outputs, names, sample.mask),
                [sample],
                self.spec,
                pooling,
                weights,
            )
        if plan.metric is None:
            require_different_scores(expected)
        actual = summaries(session.run, self.samples[:count], self.spec, pooling, weights)
        result = agreement(expected, actual, self.spec, self.checkpoint)
        result.random_tokens = why_no_texts(self.checkpoint) is not None
        if plan.metric is None or quick:  # the cosine orders layers
            return result
        name, value = plan.metric.measure(session)
        return result.with_metric(name, self.metric, value)

    def _keep(
        self,
        target: ExportTarget,
        folder: Path,
        dtype: str,
        plan: QuantizationPlan,
        result: Agreement,
    ) -> list[str]:
        """Write the model again with the layers that lose most in higher precision."""
        model = target.mixed_precision(self.checkpoint, dtype)
        if model is None:
            require_agreement(result, plan.max_drop, dtype, f"{target.title} has one precision")
        assert model is not None, "or an error was raised"
        try:
            selection = select_quantized_layers(
                model,
                partial(self._agreement_of_files, target, dtype, plan),
                partial(self._agreement_of_files, target, dtype, plan, quick=True),
                plan.max_drop,
                dtype,
            )
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            model.write(folder, selection.quantized)
        finally:
            model.close()
        return selection.higher_precision

    def _agreement_of_files(
        self,
        target: ExportTarget,
        dtype: str,
        plan: QuantizationPlan,
        folder: Path,
        *,
        quick: bool = False,
    ) -> Agreement:
        """Return the agreement of written files; infinitely bad where they have no outputs."""
        session = target.open(self.checkpoint, folder, dtype, torch.get_num_threads())
        try:
            return self._agreement(session, plan, quick=quick)
        except VerificationError:  # such as outputs that are not finite
            return Agreement(texts=0, measure="outputs", drop=math.inf)

    def _leave_out_short(self, least: int) -> None:
        """Leave out rows that the runtime does not run."""
        self.batches = [batch for batch in self.batches if min(batch.lengths) >= least]
        pairs = list(zip(self.samples, self.outputs, strict=True))
        self.samples = []
        self.outputs = []
        for sample, outputs in pairs:
            rows = sample.mask.sum(1) >= least
            if rows.any():
                inputs = {name: array[rows] for name, array in sample.inputs.items()}
                targets = None if sample.targets is None else sample.targets[rows]
                self.samples.append(TextBatch(inputs, sample.mask[rows], targets))
                self.outputs.append({name: array[rows] for name, array in outputs.items()})

    def _check(
        self, session: Session, batch: ReferenceBatch, actual: Arrays, past: int = 0
    ) -> ShapeCheck:
        real = axis_lengths(self.spec, batch.lengths)
        mask = batch.inputs[MASK].astype(bool) if MASK in batch.inputs else None
        expected = self._named(batch.outputs, session.outputs, mask)
        axes = {**self.spec.outputs, EMBEDDING: ("batch", "size")}
        outputs: dict[str, OutputDifference] = {
            name: difference(name, expected[name], actual[name], real, axes[name])
            for name in session.outputs
        }
        return shape_check(batch.lengths, outputs, past)

    def _named(
        self,
        outputs: Arrays,
        names: Sequence[str],
        mask: NDArray[np.bool_] | None,
        _inputs: Arrays | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return torch's outputs under a session's names: an embedding is the pooled output."""
        found = {name: outputs[name] for name in names if name != EMBEDDING}
        if EMBEDDING in names:
            assert mask is not None, "a model with an embedding has a mask"
            pooling = self.checkpoint.model.pooling or Pooling()
            found[EMBEDDING] = pool(outputs[HIDDEN], mask, pooling)
        return found


def require_agreement(result: Agreement, max_drop: float, dtype: str, why: str = "") -> None:
    """Check that a quantized model loses no more than is accepted."""
    if not result.drop <= max_drop:
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
    """Compare a runtime's tokenizer with the model's on the probe texts."""
    texts = [*probe_texts(), *read_texts(None)]
    tokenizer = load_text_tokenizer(checkpoint)
    expected = [list(text.ids) for text in tokenizer.encode(texts, max_tokens=None, offsets=False)]
    actual = target.tokens(checkpoint, folder, texts)
    different = [
        text for text, ours, theirs in zip(texts, expected, actual, strict=True) if ours != theirs
    ]
    report.tokenizer = TokenizerAgreement(texts=len(texts), different=different)
    if different and not allowed:
        raise VerificationError(
            f"{target.title} cuts {len(different)} of {len(texts)} texts differently from the "
            "model's tokenizer",
            "nothing was written; --allow-tokenizer-differences accepts it",
            [repr(text) for text in different[:SHOWN]],
        )
