"""Options that several tasks declare."""

from dataclasses import replace
from pathlib import Path

from zoo.families.tasks import TaskColumn, TaskOption

TEXT = TaskOption("text", "Column of the text.  [default: text]", metavar="COL")
PAIR = TaskOption("pair", "Column of the second text.", metavar="COL")
# Columns of tables of queries and of texts that are searched or ranked.
QUERY_TEXT = TaskOption(
    "query_text",
    "Column of the queries.  [default: text, sentence or the only one]",
    metavar="COL",
)
CORPUS_TEXT = TaskOption(
    "corpus_text",
    "Column of the texts to search.  [default: text, sentence or the only one]",
    metavar="COL",
)
LABEL = TaskOption("label", "Column of the label.  [default: label]", metavar="COL")
SKIP_INVALID = TaskOption(
    "skip_invalid", "Leave out rows that cannot be used, and count them.", bool
)
SEED = TaskOption("seed", "Seed of replacements and of intervals.  [default: 0]", int, metavar="N")
EVAL_METRIC = TaskOption(
    "metric",
    "Also report this metric: of generated texts, such as bleu, or of a plugin; may be repeated.",
    metavar="NAME[:SETTING=VALUE,...]",
    multiple=True,
)
METRIC = replace(EVAL_METRIC, setting="metrics")  # Of training.
MAX_SEQ_LEN = TaskOption(
    "max_seq_len",
    "Tokens per row.  [default: 64; of questions 384; of choices and texts the model's limit]",
    int,
    minimum=3,
    metavar="N",
)
DOC_STRIDE = TaskOption(
    "doc_stride",
    "Tokens that windows over a long context or text share.  [default: 128; texts are truncated]",
    int,
    minimum=0,
    metavar="N",
    setting="task_args.doc_stride",
)
WINDOWS = TaskOption(
    "doc_stride",
    "Read long texts in windows that share N tokens.  [default: truncate them]",
    int,
    minimum=0,
    metavar="N",
)
WINDOW_POOLING = TaskOption(
    "window_pooling",
    "Pool windows: their mean, their max, or the first one only.  [default: mean]",
    choices=("mean", "max", "first"),
)
EVAL_WINDOW_POOLING = replace(
    WINDOW_POOLING,
    help="Pool windows: their mean, their max, or the first one only.  [default: mean; of "
    "reranker and retrieval the best window, max]",
)
SCORE_POOLING = replace(
    WINDOW_POOLING,
    help="Score a text by its best window (max), their mean, or the first one only.  "
    "[default: max]",
)
PASSAGES = (
    TaskOption(
        "chunks",
        "Embed passages, each as a row with document, start and end: sentences, paragraphs, or "
        "runs of tokens.  [default: texts]",
        choices=("sentences", "tokens", "paragraphs"),
    ),
    TaskOption(
        "chunk_size",
        "Largest number of tokens of a passage.  [default: one sentence or paragraph, or 256 "
        "tokens]",
        int,
        minimum=1,
        metavar="N",
    ),
    TaskOption(
        "late_chunking",
        "Read each text as a whole, and pool the tokens of its passages, which have the context "
        "of the text.",
        bool,
        default=False,
    ),
)
NEGATIVES = TaskOption(  # of training
    "negative",
    "Column of texts unlike the first, for embeddings.",
    metavar="COL",
    multiple=True,
    setting="data.negatives",
)
EVAL_NEGATIVES = TaskOption(
    "negative",
    "Column of texts that do not belong to the first; may be repeated.",
    metavar="COL",
    multiple=True,
)
# Columns of tables: texts or pairs with a label, texts that belong together, and documents.
LABEL_COLUMNS = {
    "text": TaskColumn("text"),
    "pair": TaskColumn(required=False),
    "label": TaskColumn("label", "class"),
}
PAIR_COLUMNS = {
    "text": TaskColumn("text"),
    "pair": TaskColumn(),
    "label": TaskColumn("label", "number", required=False),
}
TEXT_COLUMNS = {"text": TaskColumn("text")}
DOCUMENT_FILES = ("*.txt", "*.txt.gz", "*.txt.zst")  # of plain text
LABELLED = (SEED, TEXT, LABEL, SKIP_INVALID)  # of evaluations on tables with labels
PROMPTS = (
    TaskOption(
        "prompt_name",
        "Prompt of the model, such as query.  [default: its default prompt, if any]",
        flag="--prompt",
        metavar="PROMPT",
    ),
    TaskOption(
        "prompt",
        'Put this text before each text, in place of a prompt of the model; "" for none.',
        flag="--prompt-text",
        metavar="TEXT",
    ),
)
# Prompts of models that compare queries with texts.
QUERY_PROMPTS = (
    replace(PROMPTS[0], help="Prompt of the queries.  [default: the model's, if any]"),
    replace(PROMPTS[1], help="Text before each query, in place of a prompt of the model."),
)
CORPUS_PROMPTS = (
    TaskOption(
        "corpus_prompt_name",
        "Prompt of the texts.  [default: the model's for documents, if any]",
        flag="--corpus-prompt",
        metavar="PROMPT",
    ),
    TaskOption(
        "corpus_prompt",
        "Text before each text, in place of a prompt of the model.",
        flag="--corpus-prompt-text",
        metavar="TEXT",
    ),
)
REPRESENTATION = TaskOption(
    "representation",
    "Representation of texts, of a model that has several: dense, sparse or multi-vector.  "
    "[default: dense]",
    metavar="NAME",
)
# Of models that compare queries with texts.
REPRESENTATIONS = replace(
    REPRESENTATION,
    help="Representation of texts, of a model that has several: dense, sparse or multi-vector. "
    "Several of them, each with a weight, score a text by their weighted mean.  [default: dense]",
    metavar="NAME[=WEIGHT]",
    multiple=True,
)
DIM = TaskOption(
    "dim",
    "Keep the first N numbers of each embedding, as Matryoshka models allow; embeddings of "
    "unit length are scaled to it again.",
    int,
    minimum=1,
    metavar="N",
)
VECTORS = (
    DIM,
    TaskOption("normalize", "Scale embeddings to unit length.", bool, default=False),
    TaskOption(
        "output_dtype",
        "Dtype of the embeddings; int8 scales each one's largest number to 127, which keeps "
        "cosines, and binary packs the signs of eight numbers into a byte.  [default: the dtype "
        "of the computation]",
        choices=("float32", "float16", "int8", "binary"),
    ),
)
# Of evaluations that generate.
NUM_BEAMS = TaskOption("num_beams", "Number of beams.", int, minimum=1, metavar="N")
NEW_TOKENS = TaskOption(
    "max_new_tokens",
    "Largest number of tokens to generate.  [default: as many as the longest target; of prompts "
    "the model's, or 20]",
    int,
    minimum=1,
    metavar="N",
)
GENERATION = (
    TaskOption(
        "max_new_tokens",
        "Maximum number of new tokens.  [default: the model's, or 20]",
        int,
        minimum=1,
    ),
    TaskOption("min_new_tokens", "Minimum number of new tokens.", int, minimum=0),
    TaskOption("num_beams", "Number of beams.", int, minimum=1),
    TaskOption("length_penalty", "Exponent of the length that beam scores are divided by.", float),
    TaskOption("num_return_sequences", "Number of sequences for each text.", int, minimum=1),
    TaskOption(
        "repetition_penalty",
        "Over 1, against tokens that occurred.",
        float,
        minimum=0,
        exclusive=True,
    ),
    TaskOption("no_repeat_ngram_size", "Length of n-grams that occur only once.", int, minimum=0),
    TaskOption("do_sample", "Sample, or do not.", bool, flag="--do-sample/--no-do-sample"),
    TaskOption("temperature", "Sampling temperature.", float, minimum=0, exclusive=True),
    TaskOption("top_k", "Sample from the K most likely tokens.", int, minimum=1),
    TaskOption(
        "top_p",
        "Sample from the smallest set of tokens with this total probability.",
        float,
        minimum=0,
        maximum=1,
        exclusive=True,
    ),
    TaskOption("seed", "Random seed of the sampling.", int, minimum=0),
    TaskOption(
        "generation_config",
        "Further settings: keys of a generation_config.json.",
        Path,
        metavar="FILE",
    ),
    TaskOption("stream", "Write each piece of text as it is generated.", bool, default=False),
)
