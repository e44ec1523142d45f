"""Generation of a target text for a source text: translation, summarization, text to text."""

from zoo.families.tasks import TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import (
    EVAL_METRIC,
    GENERATION,
    LABEL_COLUMNS,
    LABELLED,
    METRIC,
    NEW_TOKENS,
    NUM_BEAMS,
    PAIR,
)

PREFIX = TaskOption(
    "prefix", "Text before each source of seq2seq.", metavar="TEXT", setting="data.prefix"
)
PAIR_PREFIX = TaskOption(
    "pair_prefix",
    "Text between the two texts of a source.",
    metavar="TEXT",
    setting="data.pair_prefix",
)
SRC_LANG = TaskOption(
    "src_lang",
    "Language of the sources, such as en_XX.  [default: the tokenizer's]",
    metavar="CODE",
    setting="task_args.src_lang",
)
TGT_LANG = TaskOption(
    "tgt_lang",
    "Language of the targets.  [default: that of the settings of generation, or of the sources]",
    metavar="CODE",
    setting="task_args.tgt_lang",
)

TASKS = (
    TaskSpec(
        "seq2seq",
        "Generate a target text for a source text, such as a translation.",
        synonyms=("text2text-generation", "translation", "summarization"),
        heads=("seq2seq-lm",),
        predict="zoo.tasks.seq2seq.predict:Seq2SeqGeneration",
        train="zoo.tasks.seq2seq.train:SEQ2SEQ",
        evaluate="zoo.tasks.seq2seq.evaluate:Seq2SeqEvaluation",
        run_options=(*GENERATION, SRC_LANG, TGT_LANG),
        train_options=(PREFIX, PAIR_PREFIX, SRC_LANG, TGT_LANG, METRIC),
        settings=("data.mixing_limit",),
        columns={**LABEL_COLUMNS, "label": TaskColumn("label")},
        eval_options=(
            *LABELLED,
            PAIR,
            PREFIX,
            PAIR_PREFIX,
            NUM_BEAMS,
            NEW_TOKENS,
            SRC_LANG,
            TGT_LANG,
            EVAL_METRIC,
        ),
    ),
)
