"""The command ``zoo mine-negatives``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.many_files import shard_option
from zoo.cli.options import (
    Function,
    backend_options,
    common_options,
    count_option,
    hub_options,
    reference_argument,
    seed_option,
    shared_option,
)
from zoo.cli.output import note, result
from zoo.cli.parameter_types import REFERENCE, FiniteRange, InputFile, OutputPath
from zoo.cli.task_options import add_options
from zoo.tasks.options import (
    CORPUS_PROMPTS,
    CORPUS_TEXT,
    MAX_SEQ_LEN,
    QUERY_PROMPTS,
    QUERY_TEXT,
    SCORE_POOLING,
    WINDOWS,
)

if TYPE_CHECKING:
    from zoo.inference.embed import Role
    from zoo.tasks.retrieval.mining import Mined
    from zoo.tasks.retrieval.scoring import Prompt

FORMATS = ("triplet", "n-tuple", "labeled-pair", "labeled-list")


def number_option(name: str, description: str) -> Callable[[Function], Function]:
    """Return an option that takes a number."""
    return click.option(name, type=FiniteRange(), metavar="X", help=description)


def corpus_text_option(function: Function) -> Function:
    """Add the option for the column of further texts."""
    add_options(function, [CORPUS_TEXT])
    return function


def prompt_options(function: Function) -> Function:
    """Add the options for prompts of queries and texts."""
    add_options(function, [*QUERY_PROMPTS, *CORPUS_PROMPTS])
    return function


def window_options(function: Function) -> Function:
    """Add the options for texts that are longer than the model allows."""
    add_options(function, [MAX_SEQ_LEN, WINDOWS, SCORE_POOLING])
    return function


@click.command(
    epilog="""\b
Examples:
  zoo mine-negatives REF --input pairs.tsv --pair answer -o triplets.jsonl
  zoo mine-negatives REF --input faq.csv --query-text question --pair answer \\
      --corpus articles.csv --corpus-text body -o triplets.jsonl
  zoo mine-negatives REF --input pairs.tsv --pair answer --num-negatives 5 \\
      --relative-margin 0.05 --output-format n-tuple -o mined.jsonl
  zoo mine-negatives REF --input pairs.tsv --pair answer --output-scores \\
      --scorer ms-marco-minilm-l6-v2 --output-format n-tuple -o scored.jsonl
  zoo mine-negatives REF --input tables/ --pair answer -o mined/ --shard 1/4

The table has a query and a text that belongs to it in each row. Negatives are other texts of the
table, and of --corpus."""
)
@reference_argument
@shared_option(
    "source", "Table of pairs, or - for standard input.", required=True, type=InputFile()
)
@shared_option(
    "text",
    "Column of the query.",
    synonyms=[QUERY_TEXT.flags],
    default="text",
    show_default=True,
)
@shared_option("pair", "Column of the query's own text.", default="pair", show_default=True)
@click.option(
    "--corpus",
    type=InputFile(),
    metavar="FILE",
    help="Table of further texts.",
)
@corpus_text_option
@shared_option(
    "output",
    "Table to write: .jsonl, .parquet, .csv or .tsv; or a folder, in which each table becomes one.",
    required=True,
    metavar="FILE|FOLDER",
    type=OutputPath(),
)
@shard_option
@click.option("--resume", is_flag=True, help="Leave files of a folder that are complete.")
@shared_option("force", "Replace the output file, or the files of a shard.")
@shared_option("excel_safe")
@click.option(
    "--scorer",
    type=REFERENCE,
    metavar="REF",
    help="Model that scores the closest texts again, such as a cross-encoder.",
)
@count_option("--num-negatives", "Negatives of a query.", default=3)
@count_option("--range-min", "Skip this number of the closest texts.", minimum=0, default=0)
@count_option("--range-max", "Rank of the last text that may become a negative.")
@number_option("--max-score", "Largest score of a negative.")
@number_option("--min-score", "Smallest score of a negative.")
@number_option(
    "--absolute-margin", "Least difference between the scores of the query's text and a negative."
)
@number_option("--relative-margin", "The same as a fraction of the magnitude of the text's score.")
@click.option(
    "--sampling-strategy",
    type=click.Choice(["top", "random"]),
    default="top",
    show_default=True,
    help="Take the closest texts that remain, or random ones.",
)
@prompt_options
@window_options
@seed_option
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    default="triplet",
    show_default=True,
    help="Columns of the result, as in sentence-transformers.",
)
@click.option("--output-scores", is_flag=True, help="Write the scores of texts and negatives.")
@backend_options
@hub_options
@common_options
def command(
    ref: str,
    source: str,
    text: str,
    pair: str,
    corpus: str | None,
    corpus_text: str | None,
    output: Path,
    shard: str | None,
    resume: bool,
    force: bool,
    excel_safe: bool,
    scorer: str | None,
    output_format: Any,
    output_scores: bool,
    max_seq_len: int | None,
    doc_stride: int | None,
    window_pooling: Any,
    revision: str | None,
    offline: bool,
    lock: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find hard negatives for pairs of texts, with margins against false ones.

    Texts that are closest to a query by the model's similarity, and are not its own, become
    negatives for `zoo finetune`. A margin leaves out texts that are as close as the query's own
    text, which are often answers that nobody marked.
    """
    from blake3 import blake3

    from zoo.conversion.cache import resolve_checkpoint
    from zoo.data.many_files.folder import JobFolder
    from zoo.data.many_files.plan import plan_files
    from zoo.data.many_files.shard import parse_shard
    from zoo.data.readers.documents import expand_paths
    from zoo.errors import UsageError
    from zoo.exporting.session import open_session
    from zoo.finetuning.embeddings.data import read_text_groups
    from zoo.inference.processing.windows import (
        NO_WINDOWS,
        WindowSettings,
        require_window_options,
    )
    from zoo.inference.task_warnings import collect_cut_texts
    from zoo.io.output.tables import table_writer
    from zoo.tasks.retrieval.data import read_texts
    from zoo.tasks.retrieval.mined_files import MinedFiles, MinedFormat
    from zoo.tasks.retrieval.mining import MiningOptions, mine_hard_negatives, mined_rows
    from zoo.tasks.retrieval.scoring import (
        Ranker,
        make_ranker,
        require_ranker,
        retrieval_prompts,
    )

    compute = {name: options.pop(name) for name in ("backend", "device", "dtype", "threads")}
    named = [option.name for option in (*QUERY_PROMPTS, *CORPUS_PROMPTS)]
    prompts = retrieval_prompts(**{name: options.pop(name) for name in named})
    mining = MiningOptions(**options)
    windows = WindowSettings(max_seq_len, doc_stride, window_pooling)
    require_window_options(doc_stride, window_pooling)
    models: dict[str, Any] = {}
    if windows != NO_WINDOWS:
        models["windows"] = [max_seq_len, doc_stride, window_pooling]

    def ranker(
        reference: str,
        *,
        pairs: bool,
        pinned: str | None,
        prompts: "Mapping[Role, Prompt]",
    ) -> Ranker:
        checkpoint = resolve_checkpoint(reference, revision=pinned, offline=offline, lock=lock)
        require_ranker(checkpoint, pairs=pairs)
        session = open_session(checkpoint, **compute, fastest=True)
        identity = blake3(checkpoint.identity).hexdigest()
        name = "scorer" if pairs else "model"
        models[name] = identity
        models[f"{name} backend"] = [session.backend, session.device, session.dtype]
        return make_ranker(checkpoint, session, None, prompts, windows)

    further = expand_paths([] if corpus is None else [corpus])

    def read_corpus() -> list[str]:
        if not further:
            return []
        # A text with its title would differ from the same text in a pair.
        numbered_texts = read_texts(further, corpus_text, use_ids=False, use_titles=False)
        # Files with one text a line may have empty lines.
        return [text for text in numbered_texts.values() if text]

    if output.is_dir() or not output.suffix:
        plan = plan_files([source], output)
        part = parse_shard(shard)
        folder = JobFolder(output, plan, "mine-negatives", shard=part, resume=resume, force=force)
        plan.require_columns(folder.jobs)
        file_format = MinedFormat(output_format, (text, pair), output_scores, excel_safe)
        files = MinedFiles(folder, mining, file_format, read_corpus())
        first_ranker = ranker(ref, pairs=False, pinned=revision, prompts=prompts)
        again = None if scorer is None else ranker(scorer, pairs=True, pinned=None, prompts={})
        with collect_cut_texts() as cut_texts:
            files_result, mined = files.run(models, first_ranker, again)
            _note_short(mined, mining.num_negatives)
        value = {
            "output": str(output),
            "rows": files_result.rows,
            "pairs": len(mined),
            "truncated": cut_texts.count,
            "files": files_result.to_dict(),
        }
        result(value, [f"wrote {files_result.summary}: {output}"], as_json=as_json)
        return
    for flag, is_given in (("shard", shard is not None), ("resume", resume)):
        if is_given:
            raise UsageError(f"--{flag} is for a folder as --output", "leave it out")
    sources = [*expand_paths([source]), *further]
    writer = table_writer(output, force=force, sources=sources, excel_safe=excel_safe)
    with writer as write, collect_cut_texts() as cut_texts:
        groups = read_text_groups([source], (text, pair))
        texts = read_corpus()
        again = None if scorer is None else ranker(scorer, pairs=True, pinned=None, prompts={})
        found = mine_hard_negatives(
            ranker(ref, pairs=False, pinned=revision, prompts=prompts),
            [(group.texts[0], group.texts[1]) for group in groups],
            mining,
            corpus=texts,
            scorer=again,
        )
        mined = list(found)
        count = 0
        for row in mined_rows(
            mined, output_format, (text, pair), mining.num_negatives, scores=output_scores
        ):
            write(row)
            count += 1
        if not count:
            raise UsageError(
                f"no pair has {mining.num_negatives} negatives"
                if output_format == "n-tuple"
                else "no pair has a negative",
                "give more texts with --corpus, a higher --range-max, or a smaller margin",
            )
        short = _note_short(mined, mining.num_negatives)
    value = {
        "output": str(output),
        "rows": count,
        "pairs": len(mined),
        "short": short,
        "truncated": cut_texts.count,
    }
    result(value, [f"{count:,} rows: {output}"], as_json=as_json)


def _note_short(mined: "Sequence[Mined]", num_negatives: int) -> int:
    """Say how many pairs have too few negatives, and return their number."""
    short = sum(len(item.negatives) < num_negatives for item in mined)
    if short:
        note(
            f"{short:,} of {len(mined):,} pairs have fewer than {num_negatives} negatives; "
            "a higher --range-max, or a smaller margin, finds more"
        )
    return short
