"""Cleaning of files: the stages one after the other, and the directory that they end in."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from zoo.cleaning.apply_rules import ApplyRules, report_path
from zoo.cleaning.deduplicate import DEDUPLICATIONS, CleaningStage, Parts
from zoo.cleaning.executors import Executor
from zoo.cleaning.parts import (
    FilePiece,
    PartCounts,
    ReadTexts,
    WritePart,
    counts_path,
    cut_files,
    part_name,
)
from zoo.cleaning.records import (
    TEXTS,
    CleaningPlan,
    CleaningRecord,
    RuleReport,
    RuleSettings,
    StageCounts,
)
from zoo.cleaning.rules.base import CleaningRule
from zoo.data.readers.documents import ReaderConfig
from zoo.data.streams.shards import Shard
from zoo.data.streams.source import find_shards
from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.files import read_regular
from zoo.io.json import encode_json, parse_json_record
from zoo.io.limits import MAX_JSON_BYTES
from zoo.io.locks import lock_at_once
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.output.overwrite import CLEANING_RECORD, check_target
from zoo.io.output.staging import is_staged
from zoo.io.paths import readable_name
from zoo.io.progress import progress, progress_of_files
from zoo.version import __version__

FORMAT_VERSION = 1
PLAN = "plan.json"
LOCK = "lock"
WORK_FOLDERS = ("parts", "reports", "tasks", "work")
KEPT = "what is complete is kept, and --resume goes on with it"


@dataclass(frozen=True, kw_only=True)
class CleaningSpec:
    """What is cleaned, and how.

    Attributes:
        paths: files, directories and patterns.
        rules: the rules, in their order.
        deduplications: names of ``DEDUPLICATIONS``, in their order.
        reader: separation of files into texts.
        language: code of the language whose words and sentences are counted, such as ``en``.
    """

    paths: Sequence[str | Path]
    rules: Sequence[CleaningRule]
    deduplications: Sequence[str] = ()
    reader: ReaderConfig = field(default_factory=ReaderConfig)
    language: str = "en"


def clean(
    spec: CleaningSpec,
    target: Path,
    *,
    executor: Executor,
    force: bool = False,
    resume: bool = False,
) -> CleaningRecord:
    """Clean texts into a directory, and return its record.

    The directory depends on the files and the settings, and neither on the executor nor on the
    number of processes. It appears when it is complete. Until then, what was done is in
    ``NAME.part``.

    Args:
        spec: what is cleaned, and how.
        target: directory to write, with ``cleaning.json`` and the texts as compressed JSON lines.
        executor: what runs the tasks.
        force: whether to replace a directory that zoo wrote, and what an interrupted cleaning left.
        resume: whether to go on with what an interrupted cleaning left.

    Raises:
        UsageError: a setting does not fit, or the directory exists.
        SourceError: a file cannot be read.
        VerificationError: a task has failed, or a file changed meanwhile.
    """
    _require_language(spec.language)
    shards = find_shards(spec.paths)
    check_target(target, force=force, sources=[shard.file for shard in shards])
    work = target.with_name(f"{target.name}.part")
    pieces = cut_files(shards)
    if not pieces:
        names = ", ".join(readable_name(str(path)) for path in spec.paths)
        raise SourceError(f"there is no text in {names}", "give texts")
    plan = _make_plan(spec, shards, len(pieces))
    with _work_directory(work, plan, force=force, resume=resume), writing(work, KEPT):
        counts = _run_stages(spec, pieces, work, executor)
        if _make_plan(spec, shards, len(pieces)) != plan:
            raise VerificationError("a file changed while it was cleaned", "clean again")
        record = _publish(plan, work, target, counts, force=force)
    shutil.rmtree(work, ignore_errors=True)
    return record


def _require_language(language: str) -> None:
    from datatrove.utils.word_tokenizers import load_tokenizer_assignments

    languages = load_tokenizer_assignments()
    if language not in languages:
        hint = did_you_mean(language, list(languages)) or "give a code such as en or deu"
        raise UsageError(f"no words of the language {language!r} are known", hint)


def _make_plan(spec: CleaningSpec, shards: Sequence[Shard], parts: int) -> CleaningPlan:
    rule_files: dict[str, FileDigest] = {}
    files = [shard.file for shard in shards]
    with progress_of_files("hashing", files):
        sources = {readable_name(str(file)): hash_file(file) for file in files}
    for rule in spec.rules:
        for name in rule.files:
            rule_files[readable_name(name)] = hash_file(Path(name))
    rules = [
        RuleSettings(name=rule.name, settings=msgspec.to_builtins(asdict(rule)))
        for rule in spec.rules
    ]
    return CleaningPlan(
        zoo=FORMAT_VERSION,
        created_by=__version__,
        sources=sources,
        parts=parts,
        rules=rules,
        rule_files=rule_files,
        deduplications=list(spec.deduplications),
        reader=msgspec.to_builtins(spec.reader),
        language=spec.language,
    )


@contextlib.contextmanager
def _work_directory(work: Path, plan: CleaningPlan, *, force: bool, resume: bool) -> Iterator[None]:
    """Make or open the directory of what is being cleaned, which belongs to this process."""
    previous_plan = _read_plan(work)
    if work.exists() and not (force or resume):
        raise UsageError(
            f"{work} is an interrupted cleaning", "--resume continues it, --force begins again"
        )
    if resume and not work.exists():
        raise UsageError(f"{work} does not exist", "leave --resume out to begin")
    with writing(work):
        work.mkdir(parents=True, exist_ok=True)
    busy = UsageError(f"another process cleans into {work}", "wait for it")
    lock = lock_at_once(work / LOCK, busy)
    try:
        if resume:
            _require_same_plan(work, previous_plan, plan)
        else:
            for name in WORK_FOLDERS:
                shutil.rmtree(work / name, ignore_errors=True)
            atomic_write(work / PLAN, encode_json(plan))
        yield
    finally:
        lock.release()


def _read_plan(work: Path) -> CleaningPlan | None:
    """Return the plan of a directory of what is being cleaned; ``None`` if none was begun.

    Raises:
        UsageError: the directory holds anything else, which belongs to somebody else.
    """
    refusal = UsageError(f"{work} is not an interrupted cleaning", "give another -o")
    if work.is_symlink() or (work.exists() and not work.is_dir()):
        raise refusal
    names = {path.name for path in work.iterdir()} if work.exists() else set()
    names = {name for name in names if not is_staged(name)}
    if names - {PLAN, LOCK, *WORK_FOLDERS}:
        raise refusal
    path = work / PLAN
    if PLAN not in names:
        if names - {LOCK}:
            raise refusal
        return None
    try:
        return parse_json_record(read_regular(path, "plan", MAX_JSON_BYTES), path, CleaningPlan)
    except VerificationError as error:
        raise refusal from error


def _require_same_plan(work: Path, previous_plan: CleaningPlan | None, plan: CleaningPlan) -> None:
    if previous_plan is None:
        raise UsageError(f"{work} has not begun", "leave --resume out, and give --force")
    for name in CleaningPlan.__struct_fields__:
        if getattr(previous_plan, name) != getattr(plan, name):
            raise UsageError(
                f"{work} was begun with other {name}", "--force begins again, or give another -o"
            )


def _run_stages(
    spec: CleaningSpec, pieces: Sequence[FilePiece], work: Path, executor: Executor
) -> list[StageCounts]:
    """Run all stages; return how much text is left after the rules and each deduplication."""
    tasks = len(pieces)
    parts = work / "parts"
    rules = CleaningStage(
        name="rules",
        pipeline=[
            ReadTexts(pieces, spec.reader),
            ApplyRules(spec.rules, spec.language, work / "reports"),
            WritePart(parts / "0"),
        ],
        tasks=tasks,
    )
    _run_stage(rules, work / "tasks" / "0", executor)
    counts = [_count(rules.name, parts / "0", tasks)]
    for number, name in enumerate(spec.deduplications, 1):
        deduplicated = Parts(
            source=parts / str(number - 1),
            target=parts / str(number),
            work=work / "work" / str(number),
            tasks=tasks,
            language=spec.language,
        )
        for step, stage in enumerate(DEDUPLICATIONS[name]().stages(deduplicated)):
            folder = work / "tasks" / f"{number}-{step}"
            _run_stage(stage, folder, executor, f"{name}: ")
        counts.append(_count(name, deduplicated.target, tasks))
    return counts


def _run_stage(stage: CleaningStage, folder: Path, executor: Executor, prefix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with progress(f"cleaning {prefix}{stage.name}", stage.tasks, unit="tasks") as advance:
        executor.run(stage, folder, advance)


def _count(name: str, folder: Path, tasks: int) -> StageCounts:
    total = StageCounts(name=name, texts=0, characters=0)
    for task in range(tasks):
        path = counts_path(folder, task)
        counts = parse_json_record(read_regular(path, "counts", MAX_JSON_BYTES), path, PartCounts)
        total.texts += counts.texts
        total.characters += counts.characters
    return total


def _publish(
    plan: CleaningPlan, work: Path, target: Path, counts: list[StageCounts], *, force: bool
) -> CleaningRecord:
    """Move the last parts to the output, with the record."""
    tasks = plan.parts
    parts = work / "parts" / str(len(plan.deduplications))
    with atomic_directory(target, force=force) as staging:
        (staging / TEXTS).mkdir()
        digests = {}
        for task in range(tasks):
            name = f"{TEXTS}/{part_name(task)}"
            _link_or_copy(parts / part_name(task), staging / name)
            digests[name] = hash_file(staging / name)
        record = CleaningRecord(
            zoo=FORMAT_VERSION,
            created_by=__version__,
            plan=plan,
            rules=_merge_reports(work / "reports", tasks),
            stages=counts,
            files=digests,
            digest=NO_DIGEST,
        )
        content = add_digest(encode_json(record))
        (staging / CLEANING_RECORD).write_bytes(content)
    return parse_json_record(content, target / CLEANING_RECORD, CleaningRecord)


def _merge_reports(folder: Path, tasks: int) -> list[RuleReport]:
    reports: list[RuleReport] = []
    for task in range(tasks):
        path = report_path(folder, task)
        content = read_regular(path, "report", MAX_JSON_BYTES)
        task_reports = msgspec.json.decode(content, type=list[RuleReport])
        if not reports:
            reports = task_reports
            continue
        for report, task_report in zip(reports, task_reports, strict=True):
            report.add(task_report)
    return reports


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # The file system has no links.
        shutil.copyfile(source, target)
