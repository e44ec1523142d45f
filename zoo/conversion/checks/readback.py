"""Verification of a finished directory before it is published, by reading it back."""

from pathlib import Path

from zoo.conversion.infer_head import ConversionPlan, plan_conversion
from zoo.conversion.open import open_source
from zoo.conversion.tokenizer import SourceTokenizer, unique_vocabulary
from zoo.errors import VerificationError, ZooError
from zoo.hub.source import CheckpointDir
from zoo.io.untrusted import parsing


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
