"""Reading a finished directory back before it is published."""

from pathlib import Path

from zoo.convert.infer_head import ConversionPlan, plan_conversion
from zoo.convert.open import open_source
from zoo.convert.tokenizer import SourceTokenizer, read_source_tokenizer, unique_vocabulary
from zoo.errors import VerificationError, ZooError
from zoo.families.config import Config
from zoo.hub.source import CheckpointDir
from zoo.io.untrusted import parsing


def check_readable(
    staging: Path, published: Path, plan: ConversionPlan, tokenizer: SourceTokenizer | None
) -> None:
    """Check that a directory says of the model what was meant, when it is read as any other.

    Args:
        staging: the finished directory.
        published: the name that it gets, for messages.
        plan: what was written.
        tokenizer: the tokenizer that was written, if any.

    Raises:
        VerificationError: it cannot be read, or says something else.
    """
    try:
        opened = open_source(CheckpointDir(staging, str(published)))
        with opened.reader:
            again = plan_conversion(opened, plan.head)
            _check_config(again.config, plan.config)
            if opened.pooling != plan.opened.pooling:
                raise VerificationError(f"pooling is {opened.pooling}, not {plan.opened.pooling}")
            if tokenizer is not None and opened.family.text_tokenizer(plan.config) is None:
                _check_tokenizer(
                    read_source_tokenizer(again.opened, None, again.config), tokenizer, staging
                )
    except ZooError as error:
        what = error.what.replace(str(staging), published.name)
        raise VerificationError(
            f"{plan.opened.source.directory}: what it was converted to cannot be read back: {what}",
            "nothing was written",
        ) from error


def _check_config(again: Config, meant: Config) -> None:
    for name in meant.__struct_fields__:
        one, other = getattr(again, name), getattr(meant, name)
        if one != other:
            raise VerificationError(f"{name} is {one!r:.80}, not {other!r:.80}")


def _check_tokenizer(again: SourceTokenizer | None, meant: SourceTokenizer, staging: Path) -> None:
    if again is None:
        raise VerificationError("the tokenizer is missing")
    if _vocabulary(again.json, staging) != _vocabulary(meant.json, staging):
        raise VerificationError("the tokenizer has another vocabulary")


def _vocabulary(json: bytes, staging: Path) -> dict[str, int]:
    from tokenizers import Tokenizer as Backend

    path = staging / "tokenizer.json"
    with parsing(path, "a tokenizer"):
        backend = Backend.from_str(json.decode())
    return unique_vocabulary(backend, str(path))
