"""Log-likelihoods of texts: scores, perplexities, and comparisons of minimal pairs."""

from zoo.families.tasks import TaskColumn, TaskOption, TaskSpec
from zoo.tasks.options import DOCUMENT_FILES, SKIP_INVALID, TEXT_COLUMNS

EXAMPLES = """\b
Examples:
  zoo run score REF "a text" "another text"
  zoo run score REF --context "The river" " runs." " sings."
  zoo run score REF --input continuations.jsonl > scores.jsonl

JSON lines have the key "text", or the keys "context" and "continuation"; other keys are copied to
the output. Log-probabilities are in nats. Contexts longer than the model allows lose their
beginning; "truncated" is the number of tokens that were cut."""

TASKS = (
    TaskSpec(
        "score",
        "Compute log-likelihoods of texts, or of continuations of a context.",
        predict="zoo.tasks.likelihood.score:Score",
        run_options=(
            TaskOption("context", "Score the texts as continuations of this one.", metavar="TEXT"),
        ),
        examples=EXAMPLES,
    ),
    TaskSpec(
        "perplexity",
        "Predict each token from those before it.",
        columns=TEXT_COLUMNS,
        file_patterns=DOCUMENT_FILES,
        evaluate="zoo.tasks.likelihood.perplexity:Perplexity",
        eval_options=(
            TaskOption(
                "stride",
                "Tokens between the windows of a long text.  [default: half a window]",
                int,
                minimum=1,
                metavar="N",
            ),
        ),
    ),
    TaskSpec(
        "pseudo-perplexity",
        "Predict each token from all others.",
        columns=TEXT_COLUMNS,
        file_patterns=DOCUMENT_FILES,
        evaluate="zoo.tasks.likelihood.perplexity:PseudoPerplexity",
    ),
    TaskSpec(
        "minimal-pairs",
        "Prefer the acceptable of two sentences.",
        columns={name: TaskColumn(name) for name in ("paradigm", "good", "bad")},
        evaluate="zoo.tasks.likelihood.minimal_pairs:MinimalPairs",
        eval_options=(SKIP_INVALID,),
    ),
)
