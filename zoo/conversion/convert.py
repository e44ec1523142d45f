"""Conversion of a checkpoint: open, plan, write, verify the round trip, publish."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.checkpoint.digests import MODEL_CARD
from zoo.conversion.checks import FileStates, check_constant, equal_values, require_bitwise_equal
from zoo.conversion.dtypes import align_codes, cast, cast_pieces, parse_dtype
from zoo.conversion.infer_head import (
    ConversionPlan,
    plan_conversion,
    require_computable,
    require_hub_outputs,
    require_label_outputs,
    with_labels,
)
from zoo.conversion.model_tensors import check_rules_of_plugin
from zoo.conversion.open import OpenCheckpoint, lazy_arrays, open_source
from zoo.conversion.report import ConversionReport
from zoo.conversion.sentence_modules import check_modules, open_modules, write_modules
from zoo.conversion.tokenizer import SourceTokenizer, unique_vocabulary
from zoo.conversion.writers import LAYOUTS, LayoutWriter
from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.families.config import Config
from zoo.families.global_tokens import with_global_tokens
from zoo.hub.source import CheckpointDir
from zoo.hub.upload.plan import CardMetadata
from zoo.io.digests.background import BackgroundHasher
from zoo.io.digests.files import FileDigest
from zoo.io.files import decode_text, read_regular
from zoo.io.limits import MAX_YAML_BYTES
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import check_target
from zoo.io.progress import progress
from zoo.io.tensors.formats import DTYPE_NAMES, TensorInfo, TensorReader, TensorToWrite
from zoo.io.untrusted import parsing
from zoo.sentence_models.pair_templates import check_pairs
from zoo.weights import TensorCopy, TensorMapping

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    NumpyArray = NDArray[np.generic[Any]]
    Array = NumpyArray | FileArray


LOG = logging.getLogger("zoo")


def convert(
    source: CheckpointDir,
    path: Path | None,  # ``None`` only with ``dry_run``
    *,
    to: Literal["zoo", "hub"] = "zoo",
    head: str | None = None,
    dtype: str | None = None,
    init_head: bool = False,
    labels: Sequence[str] | None = None,
    allow_pickle: bool = False,
    ignore_crc: bool = False,
    tokenizer: CheckpointDir | None = None,
    force: bool = False,
    licence: str | None = None,
    global_tokens: str | None = None,
    dry_run: bool = False,
    starting: Callable[[], object] | None = None,
) -> ConversionReport:
    """Convert a checkpoint, verify the round trip, and publish the result.

    Args:
        source: the checkpoint, in the Hub's layout or the zoo's.
        path: the directory to write; ``None`` is allowed only with ``dry_run``.
        to: the layout to write.
        head: the head to convert to; by default the one whose rules match all tensors.
        dtype: the dtype of floating-point weights; by default they keep theirs.
        init_head: whether a head that the source lacks gets random weights.
        labels: the names of the outputs of the new head.
        allow_pickle: whether PyTorch's pickle files are read. No code in them is executed.
        ignore_crc: whether to read files whose checksums do not match.
        tokenizer: the directory of the tokenizer; by default ``source``.
        force: whether to overwrite an earlier output.
        licence: the licence to record; by default the one that the source states.
        global_tokens: the tokens with global attention, see ``with_global_tokens``.
        dry_run: whether to match tensors by the headers of the files, and to write nothing.
        starting: called before weights are read.
    """
    code = parse_dtype(dtype)
    sources = [source.directory]
    if tokenizer is not None:
        sources.append(tokenizer.directory)
    if path is not None and not dry_run:
        check_target(path, force=force, sources=sources)
    states = FileStates(sources)
    opened = open_source(source, allow_pickle=allow_pickle, ignore_crc=ignore_crc)
    opened = replace(opened, config=with_labels(opened.config, labels))
    config = with_global_tokens(opened.family, opened.config, global_tokens)
    opened = replace(opened, config=config)
    with opened.reader:
        plan = plan_conversion(opened, head, init=init_head)
        if labels is not None:
            require_label_outputs(plan)
        if to == "hub":
            require_hub_outputs(plan)
        opened = plan.opened
        check_rules_of_plugin(opened.family, plan.config, plan.head)
        plan.score_activation  # noqa: B018 (one that is not implemented is refused at once)
        source_tokenizer = opened.read_tokenizer(plan.config, tokenizer)
        check_pairs(
            plan.pairs,
            None if source_tokenizer is None else source_tokenizer.info,
            getattr(plan.config, "vocab_size", 0),
            str(source.directory),
        )
        reads_text = source_tokenizer is not None
        if not reads_text:
            reads_text = opened.family.text_tokenizer(plan.config) is not None
        require_computable(plan, code)
        check_modules(plan)
        modules = open_modules(opened, allow_pickle=allow_pickle)
        layout = LAYOUTS[to](opened, plan, source_tokenizer, code)
        report = ConversionReport.from_plan(
            plan, layout.written_codes(), code, modules=modules, tokenizer=reads_text
        )
        facts = source_card_facts(source)
        report = replace(
            report,
            licence=licence or report.licence or facts.licence,
            languages=report.languages or facts.languages,
            tags=report.tags or facts.tags,
        )
        for name in report.replaced_heads:
            LOG.warning(
                "warning: %s: the weights of the head %s are random: the trained head in %s is not "
                "read",
                source.reference,
                plan.head,
                name,
            )
        if dry_run:
            return report
        if path is None:
            raise UsageError("an output directory is needed", "give -o")
        if starting is not None:
            starting()
        report = replace(report, equal_copies=check_values(opened, plan))
        with (
            atomic_directory(path, force=force, sources=sources) as staging,
            contextlib.closing(BackgroundHasher()) as digests,
        ):
            conversion = _Conversion(opened, plan, layout, report, modules)
            report = conversion.write(staging, path, digests)
            with digests.reuse():
                check_readable(staging, path, plan, source_tokenizer)
            paths = [opened.source.directory / name for name in opened.files_read()]
            if tokenizer is not None:
                paths += [tokenizer.directory / name for name in tokenizer.files.names_read]
            paths += opened.reader.files
            for reader in modules.values():
                paths += reader.files
            states.check(paths)
            return report


def source_card_facts(source: CheckpointDir) -> CardMetadata:
    """Return what the model card of a source states, if it has one that can be read."""
    card = source.directory / MODEL_CARD
    try:
        if not source.restricted:
            return CardMetadata.read(source.directory)
        if MODEL_CARD not in source.digests:
            return CardMetadata()
        text = decode_text(read_regular(card, "model card", MAX_YAML_BYTES), card)
        return CardMetadata.parse(text, card)
    except (UsageError, VerificationError, SourceError):
        return CardMetadata()


def check_values(opened: OpenCheckpoint, plan: ConversionPlan) -> dict[str, bool]:
    """Check that tied tensors are equal, and the values of constants and of dropped buffers."""
    reader = opened.reader
    mapping = plan.mapping
    codes = {name: info.dtype for name, info in reader.tensors.items()}
    equal_copies = {}
    for copy, owner in {**mapping.ties, **mapping.unused}.items():
        equal_copies[copy] = equal_values(
            reader.lazy(copy), codes[copy], reader.lazy(owner), codes[owner]
        )
    for alias, owner in mapping.ties.items():
        if not equal_copies[alias]:
            names = [alias, owner]
            if codes[alias] != codes[owner]:
                names = [f"{name} ({DTYPE_NAMES[codes[name]]})" for name in names]
            raise VerificationError(
                f"{opened.source.directory}: {' and '.join(names)} differ, but the configuration "
                "ties them",
                _tie_hint(opened, plan, alias),
            )
    for name, constant in mapping.constants.items():
        check_constant(reader, name, constant, str(opened.source.directory))
    for name, drop in mapping.drops.items():
        if drop.value_check is not None and not drop.value_check(reader.read(name)):
            raise VerificationError(
                f"{opened.source.directory}: {name} is left out as {drop.reason}, but holds "
                "different values",
                "nothing was written",
            )
    return equal_copies


def _tie_hint(opened: OpenCheckpoint, plan: ConversionPlan, alias: str) -> str:
    """Return the remedy for tied tensors that differ: no tie, where the family supports that."""
    family = opened.family
    untied = {**family.to_hub(plan.config), "tie_word_embeddings": False}
    try:
        weights = family.weights(family.from_hub(untied).config, plan.head)
    except VerificationError:
        is_always_tied = True
    else:
        is_always_tied = alias in weights.aliases()
    if is_always_tied:
        return "the model has one tensor for both; --head none converts it without its head"
    return "set tie_word_embeddings to false in config.json if they are not"


@dataclass(frozen=True)
class _Conversion:
    opened: OpenCheckpoint
    plan: ConversionPlan
    layout: LayoutWriter
    report: ConversionReport
    modules: Mapping[str, TensorReader]  # folder of a module -> its weights

    def write(self, staging: Path, published: Path, digests: BackgroundHasher) -> ConversionReport:
        directory = self.opened.source.directory
        names = self.opened.files_read()
        sources = [directory / name for name in names]
        sources += self.opened.reader.files
        for reader in self.modules.values():
            sources += reader.files
        for path in sources:
            digests.start(path)
        outputs = self._outputs()
        total = sum(output.info.nbytes for output in outputs)
        with progress("writing", total, bytes_=True) as advance:
            weights = self.layout.write_tensors(staging, outputs, advance, digests.create)
        module_files = write_modules(
            self.modules,
            staging,
            self.layout.dtype,
            metadata=self.layout.metadata,
            create=digests.create,
            head_files=self.layout.head_files,
        )
        side_files = self.layout.write_side_files(staging, self.report)
        files = [*weights, *module_files, *side_files]
        for path in files:
            digests.start(path)
            digests.sync(path)
        self._check_round_trip(weights)
        source_digests = self._with_sha256(digests.collect(sources, directory))
        output_digests = digests.collect(files, staging)
        report = self.report.finished(published, source_digests, output_digests)
        digests.wait_for_disk()
        self.layout.write_manifest(staging, report)
        return report

    def _outputs(self) -> list[TensorToWrite]:
        """Return all tensors to write: copied, initialized and constant ones."""
        outputs = []
        for copy in self.plan.mapping.copies:
            outputs += self._copied(copy)
        for entry in self.plan.mapping.initialized:
            outputs += self._initialized(entry)
        outputs += self.layout.constants(self.report.main_dtype)
        return outputs

    def _with_sha256(self, sources: dict[str, FileDigest]) -> dict[str, FileDigest]:
        """Compare digests with the download's, and add the SHA-256 of the Hub."""
        source = self.opened.source
        for name, expected_digest in source.digests.items():
            if name not in sources:
                continue
            if expected_digest.blake3 != sources[name].blake3:
                path = source.directory / name
                if source.repo:
                    raise VerificationError(
                        f"{path} is not what was downloaded",
                        "fetch it again",
                    )
                raise VerificationError(f"{path} is not what was looked up", "try again")
            sources[name].sha256 = expected_digest.sha256
        return sources

    def _copied(self, copy: TensorCopy) -> list[TensorToWrite]:
        entry = self.plan.entries[copy.entry.target]

        def pieces(which: int, code: str) -> "Iterator[Array]":
            for part in self.layout.chunks(entry, copy.names, which):
                yield from cast_pieces(part, copy.dtype, code, entry.target)

        tensors = zip(self.layout.names(entry), self.layout.dtypes(copy), strict=True)
        return [
            TensorToWrite(name, TensorInfo(code, shape), partial(pieces, k, code))
            for k, ((name, shape), code) in enumerate(tensors)
        ]

    def _initialized(self, entry: TensorMapping) -> list[TensorToWrite]:
        code = self.layout.dtype or self.report.main_dtype
        array = cast(init_tensor(entry, self.plan.config), "F32", code, entry.target)
        parts = zip(self.layout.names(entry), self.layout.split(entry, array), strict=True)
        return [
            TensorToWrite(name, TensorInfo(code, shape), partial(list, (part,)))
            for (name, shape), part in parts
        ]

    def _check_round_trip(self, files: Sequence[Path]) -> None:
        """Rebuild the tensors of the source from the written files, and compare bit by bit.

        Where the dtypes differ, the comparison is in the source's dtype, or in the one that the
        user asked for.
        """
        copies = self.plan.mapping.copies
        checking = progress("checking", len(copies), unit="tensors")
        with self.layout.open_tensors(files) as written, checking as advance:
            for copy in copies:
                entry = self.plan.entries[copy.entry.target]
                names = [name for name, _ in self.layout.names(entry)]
                rebuilt = self.layout.rebuild_hub(entry, lazy_arrays(written, names))
                originals, codes = self.opened.stored_tensors(entry, copy)
                written_codes = align_codes(self.layout.dtypes(copy), len(originals))
                for part, source, source_code, written_code in zip(
                    rebuilt, originals, codes, written_codes, strict=True
                ):
                    if self.layout.dtype:
                        expected = part
                        actual = source
                        actual_code = source_code
                        target_code = written_code
                    else:
                        expected = source
                        actual = part
                        actual_code = written_code
                        target_code = source_code
                    change = None
                    if actual_code != target_code:
                        change = partial(
                            cast, stored=actual_code, target=target_code, name=entry.target
                        )
                    require_bitwise_equal(entry.target, expected, actual, change)
                advance(1)


def init_tensor(entry: TensorMapping, config: Config, seed: int = 0) -> "NDArray[np.float32]":
    """Return the initial value of a parameter.

    Weights are normal with the standard deviation ``initializer_range`` of the configuration,
    biases are 0, and scales of norms are 1. The values depend only on the seed and the name of
    the parameter.
    """
    import numpy as np
    from blake3 import blake3

    if entry.target.endswith(".bias"):
        return np.zeros(entry.shape, np.float32)
    if len(entry.shape) == 1:
        return np.ones(entry.shape, np.float32)
    key = int.from_bytes(blake3(f"{seed}\0{entry.target}".encode()).digest(8))
    deviation = getattr(config, "initializer_range", 0.02)
    generator = np.random.Generator(np.random.Philox(key))
    return (generator.standard_normal(entry.shape) * deviation).astype(np.float32)


def check_readable(
    staging: Path, published: Path, plan: ConversionPlan, tokenizer: SourceTokenizer | None
) -> None:
    """Open a finished directory and compare its contents with the plan."""
    try:
        # The heads of a sentence encoder that were just written may be pickles.
        opened = open_source(CheckpointDir(staging, str(published)), allow_pickle=True)
        with opened.reader:
            result_plan = plan_conversion(opened, plan.head)
            for name in plan.config.__struct_fields__:
                value = getattr(result_plan.config, name)
                planned_value = getattr(plan.config, name)
                if value != planned_value:
                    raise VerificationError(f"{name} is {value!r:.80}, not {planned_value!r:.80}")
            if opened.pooling != plan.opened.pooling:
                raise VerificationError(f"pooling is {opened.pooling}, not {plan.opened.pooling}")
            if tokenizer is not None and opened.family.text_tokenizer(plan.config) is None:
                result_tokenizer = result_plan.opened.read_tokenizer(result_plan.config)
                if result_tokenizer is None:
                    raise VerificationError("the tokenizer is missing")
                vocabulary = _vocabulary(result_tokenizer.json, staging)
                if vocabulary != _vocabulary(tokenizer.json, staging):
                    raise VerificationError("the tokenizer has a different vocabulary")
    except ZooError as error:
        reason = error.what.replace(str(staging), published.name)
        raise VerificationError(
            f"{plan.opened.source.directory}: the result of its conversion cannot be read back: "
            f"{reason}",
            "nothing was written",
        ) from error


def _vocabulary(json: bytes, staging: Path) -> dict[str, int]:
    from tokenizers import Tokenizer as Backend

    path = staging / "tokenizer.json"
    with parsing(path, "a tokenizer"):
        backend = Backend.from_str(json.decode())
    return unique_vocabulary(backend, str(path))
