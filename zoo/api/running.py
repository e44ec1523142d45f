"""``zoo.run``."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.api.arguments import (
    AnyPath,
    AnyPaths,
    OutputSuffix,
    as_path,
    as_reference,
    checked,
    require_backend,
)
from zoo.api.running_files import has_output_folder, ray_options, run_files
from zoo.api.task_models import MODEL_OPTIONS, open_model
from zoo.errors import UsageError
from zoo.io.paths import as_paths
from zoo.io.remote.cache import fetch_text
from zoo.plugins.tasks import find_tasks, load_part

if TYPE_CHECKING:
    from zoo.data.many_files.folder import JobResult
    from zoo.inference.task import Task
    from zoo.tasks.table import TaskInput

InputFormat = Literal["auto", "text", "jsonl", "csv", "tsv", "parquet"]
Text = str | tuple[str, str]


@dataclass(frozen=True)
class TaskResults(Sequence[dict[str, Any]]):
    """Results of ``zoo.run``, one for each text; or the file or folder that has them.

    Attributes:
        task: verb of the task.
        results: keys and values of each text; empty if they were written to a file.
        output: the file or folder, or ``None``.
        rows: number of results.
        files: counts of the files of a folder, or ``None``.
        truncated: number of texts of ``output`` that were longer than the model allows.
    """

    task: str
    results: tuple[dict[str, Any], ...]
    output: Path | None
    rows: int
    files: "JobResult | None" = None
    truncated: int = 0

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.results)

    def _repr_html_(self) -> str:
        """Return the results as a table, for notebooks."""
        from zoo.report.cells import fields_cell, table_cell

        if self.output is not None:
            return fields_cell(self.task, {"output": self.output, "rows": self.rows})
        header = list(dict.fromkeys(key for result in self.results for key in result))
        rows = []
        for result in self.results:
            rows.append([result.get(key, "") for key in header])
        return table_cell(self.task, header, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return what ``zoo run --json`` prints."""
        if self.output is not None:
            value = {
                "task": self.task,
                "output": str(self.output),
                "rows": self.rows,
                "truncated": self.truncated,
            }
            if self.files is not None:
                value["files"] = self.files.to_dict()
            return value
        return {"task": self.task, "results": list(self.results)}


@checked
def run(
    task: str,
    ref: AnyPath,
    texts: str | Iterable[Text] = (),
    *,
    input: AnyPaths = (),
    format: InputFormat = "auto",
    text: str | None = None,
    pair: str | None = None,
    output: AnyPath | None = None,
    output_suffix: OutputSuffix | None = None,
    shard: str | None = None,
    engine: Literal["ray"] | None = None,
    actors: int | None = None,
    cpus_per_actor: int | None = None,
    resume: bool = False,
    force: bool = False,
    excel_safe: bool = False,
    max_seq_len: int | None = None,
    max_batch_tokens: int | None = None,
    batch_size: int | None = None,
    adapter: AnyPaths = (),
    global_tokens: str | None = None,
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
    **options: Any,
) -> TaskResults:
    """Run a task on texts or on a file; ``zoo run`` does the same.

    ``zoo.load`` is better for several calls, since it loads the model once.

    Args:
        task: name, verb or synonym of the task, such as ``embed``.
        ref: the model, see ``zoo.load``.
        texts: a text, or several, or pairs of texts.
        input: file of texts, one a line, JSON lines, CSV, TSV or Parquet, in place of ``texts``;
            or several, as a folder, a pattern or a list: each becomes a file of ``output``.
        format: format of the file; ``auto`` looks at the ending and the first line.
        text: column, or key, of the text.
        pair: column, or key, of the second text.
        output: file to write: ``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``, or vectors as
            ``.npy``; by default the results are returned. Of several inputs, a folder.
        output_suffix: ending of the files of the folder, such as ``.parquet``; by default the one
            of the input's tables, and ``.jsonl`` for other files.
        shard: part of the files to compute: ``K/N`` for every N-th file from the K-th on,
            ``slurm`` for the task of an array, or ``kubernetes/N`` for the pod of an indexed job.
        engine: ``ray`` to run the task on many files in actors of Ray; by default in this process.
        actors: number of actors, each with a model; by default 1.
        cpus_per_actor: number of CPUs that Ray reserves for an actor, and its threads; by default
            1.
        resume: continue an interrupted output.
        force: replace the output.
        excel_safe: in CSV and TSV, precede by ``'`` what a spreadsheet would compute.
        max_seq_len: length that texts are truncated to.
        max_batch_tokens: largest number of tokens per batch, with padding.
        batch_size: largest number of texts per batch; by default as many as are fastest.
        adapter: directory of an adapter to apply, or several.
        global_tokens: tokens with global attention in place of the model's, see ``zoo.convert``.
        backend: where the model runs; ``auto`` is the fastest that ``zoo bench`` measured here.
        device: device, such as ``cuda:1``.
        dtype: dtype of the computation.
        threads: number of CPU threads.
        revision: branch, tag or commit of a Hub repository.
        offline: open no connection.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.
        **options: options of the task, with underscores, such as ``top_k``.

    Returns:
        a sequence with the result of each text; or ``output`` and ``rows``, and of several inputs
        ``files``.

    Raises:
        UsageError: the task or an option is unknown, the head does not support it, or the output
            exists.
        SourceError: the model or the file is not available.
        VerificationError: a file is damaged, or an interrupted output was changed.

    Example:
        >>> zoo.run("fill-mask", "runs/books/model", "A [MASK] sat.", top_k=1)[0]  # doctest: +SKIP
        {'text': 'A [MASK] sat.', 'masks': [{'position': 2, 'predictions':
        [{'token': 'cat', 'score': 0.41}]}]}
    """
    from zoo.data.many_files.shard import parse_shard
    from zoo.inference.task_warnings import collect_cut_texts
    from zoo.tasks.table import require_output, run_options, write_results

    require_backend(backend)
    target = as_path(output, "output")
    sources = list(map(fetch_text, as_paths(input)))
    task_options = run_options(task, options)
    task_options |= {
        "max_seq_len": max_seq_len,
        "max_batch_tokens": max_batch_tokens,
        "batch_size": batch_size,
    }
    text_list = list_of_texts(task, texts)
    all_options = {
        **task_options,
        "file_format": format,
        "text": text,
        "pair": pair,
        "adapter": as_paths(adapter),
        "global_tokens": global_tokens,
        "backend": backend,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "revision": revision,
        "offline": offline,
        "lock": as_path(lock, "file"),
    }
    verb = find_tasks(task, "predict")[0].command
    ray = ray_options(engine, actors, cpus_per_actor)
    if has_output_folder(
        text_list, sources, target, shard=shard, suffix=output_suffix, engine=engine
    ):
        assert target is not None, "has_output_folder checks it"
        with collect_cut_texts() as cut_texts:
            result = run_files(
                task,
                as_reference(ref),
                sources,
                target,
                all_options,
                shard=parse_shard(shard),
                suffix=output_suffix,
                resume=resume,
                force=force,
                excel_safe=excel_safe,
                ray=ray,
            )
        return TaskResults(verb, (), target, result.rows, result, cut_texts.count)
    source = sources[0] if sources else None
    if target is None:
        for flag, value in (("resume", resume), ("force", force), ("excel-safe", excel_safe)):
            if value:
                raise UsageError(f"--{flag} is for --output FILE", "leave it out")
    else:
        require_output(
            task, target, resume=resume, force=force, excel_safe=excel_safe, source=source
        )
    all_options["source"] = source
    with collect_cut_texts() as cut_texts:
        runner, task_input = open_task(
            task, as_reference(ref), text_list, all_options, digests=target is not None
        )
        if target is None:
            results = tuple(runner.run(task_input.records))
            return TaskResults(verb, results, None, len(results))
        rows = write_results(
            runner, task_input, target, resume=resume, force=force, excel_safe=excel_safe
        )
    return TaskResults(verb, (), target, rows, truncated=cut_texts.count)


def list_of_texts(task: str, texts: str | Iterable[Text]) -> list[Any]:
    """Return texts as a list; for a task on pairs, the texts of all pairs one after another."""
    text_list: list[Any] = [texts] if isinstance(texts, str) else list(texts)
    if text_list == ["-"]:
        raise UsageError('the text "-" stands for standard input', "name a file as `input`")
    task_class: type[Task] = load_part(find_tasks(task, "predict")[0], "predict")
    if task_class.keys.text is not None:
        return text_list
    flat_texts: list[Any] = []
    for item in text_list:
        if isinstance(item, tuple):
            flat_texts += item
        else:
            flat_texts.append(item)
    return flat_texts


def open_task(
    name: str, ref: str, texts: Sequence[str], options: dict[str, Any], *, digests: bool = False
) -> "tuple[Task, TaskInput]":
    """Open the input and the model of a task.

    Args:
        name: name, verb or synonym of the task.
        ref: reference to the model.
        texts: the texts; empty for a file.
        options: options of the task, of the model and of the input; they are removed one by one.
        digests: take the digest of the input, which a resumed output compares.
    """
    from zoo.tasks import make_task
    from zoo.tasks.table import open_input

    columns = {key: options.pop(key) for key in ("source", "file_format", "text", "pair")}
    model_options = {key: options.pop(key) for key in MODEL_OPTIONS}
    task_input = open_input(name, texts, **columns, options=options, digests=digests)
    checkpoint, session = open_model(name, ref, model_options, task_input.options)
    return make_task(name, checkpoint, session, **task_input.options), task_input
