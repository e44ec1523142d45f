"""Detection of tokens that were replaced."""

from zoo.families.tasks import TaskOption, TaskSpec
from zoo.tasks.options import DOCUMENT_FILES, MAX_SEQ_LEN, SEED, TEXT_COLUMNS

TASKS = (
    TaskSpec(
        "replaced-tokens",
        "Detect tokens that were replaced.",
        heads=("replaced-token-detection",),
        columns=TEXT_COLUMNS,
        file_patterns=DOCUMENT_FILES,
        evaluate="zoo.tasks.replaced_tokens.evaluate:ReplacedTokens",
        eval_options=(
            MAX_SEQ_LEN,
            SEED,
            TaskOption(
                "replace_prob",
                "Fraction of the tokens that is replaced.  [default: 0.1]",
                float,
                minimum=0,
                maximum=1,
                exclusive=True,
                metavar="P",
            ),
        ),
    ),
)
