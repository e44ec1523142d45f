"""Special tokens of a pretrained model in the Hub's layout."""

from pathlib import Path

import pytest

from tests.training.runs import run_training
from zoo.conversion.convert import convert
from zoo.hub.reference import resolve
from zoo.hub.source import locate_or_download

transformers = pytest.importorskip("transformers", reason="compares with the library")
pytestmark = pytest.mark.usefixtures("shared_home")


@pytest.mark.parametrize("family", ["gpt", "roberta", "t5"])
def test_texts_begin_and_end_with_the_tokens_of_its_vocabulary(family: str, tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", family, max_steps=1)
    hub = tmp_path / "hub"
    convert(locate_or_download(resolve(str(run / "model"))), hub, to="hub")
    config = transformers.AutoConfig.from_pretrained(hub)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    assert config.eos_token_id == tokenizer.eos_token_id is not None
    assert getattr(config, "bos_token_id", None) == tokenizer.bos_token_id
