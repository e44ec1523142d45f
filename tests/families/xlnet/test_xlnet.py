"""XLNet: the conformance checks, and the outputs of the reference library."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from zoo.conformance.hf_reference import reference_model
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.testing import ReferenceTests
from zoo_xlnet import XLNet
from zoo_xlnet.config import SIZES, XLNetConfig

DTYPES = pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
CONFIG = replace(SIZES["tiny"], hidden_size=48, intermediate_size=40)
TOKENS = 12
TARGETS = 4
SEGMENTS = torch.tensor([0] * 5 + [1] * 6 + [2]).expand(2, TOKENS)


class TestXLNet(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = XLNet()
    golden = Path(__file__).parents[2] / "golden" / "xlnet"
    settings = ({}, {"clamp_len": 20})
    row_lengths = (70, 40, 6)

    @property
    def config(self) -> XLNetConfig:
        """``tiny`` with less width, for speed."""
        return CONFIG

    @DTYPES
    def test_gradients_equal_the_reference(
        self, head: str, dtype: torch.dtype, bound: float
    ) -> None:
        """Gradients of all parameters agree relative to the largest, in the Hub's layout."""
        model = self.family.model(self.config, head).to(dtype).eval()
        randomize_weights(model)
        rules = self.family.weights(self.config, head)
        state = model.state_dict()
        reference: Any = reference_model(self.family, self.config, head, state)
        inputs = random_inputs(self.family.onnx(self.config, head), self.config, (9, 9))
        for module in (model, reference):
            outputs = module(**inputs)
            names = self.family.heads()[head].outputs
            sum(((outputs[name] - 1) ** 2).sum() for name in names).backward()
        gradients = {name: parameter.grad for name, parameter in reference.named_parameters()}
        for entry in rules.entries():
            (source,) = entry.sources
            gradient: Any = model.get_parameter(entry.target).grad
            ours = entry.op.to_hub(gradient.numpy())[0]
            theirs = gradients[rules.written(source)]
            if theirs is None:  # the vector in place of <mask>, of which there is none
                assert not ours.any() and source == "transformer.mask_emb"
                continue
            difference = (torch.from_numpy(ours.copy()) - theirs).abs().max()
            assert difference <= bound * max(1.0, float(theirs.abs().max())), source

    @DTYPES
    def test_masked_tokens_are_predicted(self, dtype: torch.dtype, bound: float) -> None:
        """``<mask>`` is the query stream of the reference, which no token attends to."""
        model, reference = _models(dtype)
        ids = _ids()
        ids[:, [2, 7, 8]] = CONFIG.mask_token_id
        is_mask = ids == CONFIG.mask_token_id
        hidden = is_mask[:, None].expand(-1, TOKENS, -1).to(dtype)
        every_place = torch.eye(TOKENS, dtype=dtype).expand(2, -1, -1)
        with torch.no_grad():
            ours = model(ids, None, SEGMENTS)["logits"]
            theirs = reference(
                ids, token_type_ids=SEGMENTS, perm_mask=hidden, target_mapping=every_place
            ).logits
        _assert_close(ours[is_mask], theirs[is_mask], bound)

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("past", [0, 7])
    @DTYPES
    def test_two_streams_equal_the_reference(
        self, dtype: torch.dtype, bound: float, past: int, reverse: bool
    ) -> None:
        """Predictions in a random order, with memory and with a row in reverse order."""
        model, reference = _models(dtype, bi_data=reverse)
        generator = torch.Generator().manual_seed(1)
        hidden = torch.rand(2, TOKENS, TOKENS, generator=generator) < 0.5
        targets = torch.tensor([[1, 3, 10, 5], [0, 11, 4, 2]])
        mapping = torch.nn.functional.one_hot(targets, TOKENS).to(dtype)
        memory = torch.randn(CONFIG.num_layers, 2, past, 48, generator=generator).to(dtype)
        with torch.no_grad():
            ours, inputs = model.encode_targets(
                _ids(),
                SEGMENTS,
                hidden,
                targets,
                memory=list(memory) if past else None,
                direction=torch.tensor([0, 1]) if reverse else None,
            )
            theirs = reference.transformer(
                _ids(),
                token_type_ids=SEGMENTS,
                perm_mask=hidden.to(dtype),
                target_mapping=mapping,
                mems=[states.transpose(0, 1) for states in memory] if past else None,
                output_hidden_states=True,
            )
        _assert_close(ours, theirs.last_hidden_state, bound)
        for states, expected in zip(inputs, theirs.hidden_states[::2], strict=False):
            _assert_close(states, expected, bound)

    @pytest.mark.parametrize(("mem_len", "reuse_len"), [(8, None), (8, 5), (None, None)])
    @DTYPES
    def test_memory_equals_the_reference(
        self, dtype: torch.dtype, bound: float, mem_len: int | None, reuse_len: int | None
    ) -> None:
        """Three segments of a text, each with the memory of those before."""
        model, reference = _models(dtype, mem_len=mem_len, reuse_len=reuse_len)
        memory = None
        mems = None
        for seed in range(3):
            with torch.no_grad():
                ours, memory = model.encode_with_memory(
                    _ids(seed), token_type_ids=SEGMENTS, memory=memory
                )
                theirs = reference.transformer(
                    _ids(seed), token_type_ids=SEGMENTS, mems=mems, use_mems=True
                )
            mems = theirs.mems
            _assert_close(ours, theirs.last_hidden_state, bound)
            for states, expected in zip(memory, mems, strict=True):
                _assert_close(states, expected.transpose(0, 1), bound)


def _ids(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(10, CONFIG.vocab_size, (2, TOKENS), generator=generator)


def _models(dtype: torch.dtype, **changes: Any) -> tuple[Any, Any]:
    """Return our language model and the reference's with the same weights.

    Args:
        dtype: dtype of both, and of the reference's encodings of positions, which it converts in
            one of two places alone.
        **changes: settings of both.
    """
    reverse = changes.pop("bi_data", False)
    family = XLNet()
    config = replace(CONFIG, **changes)
    model: Any = family.model(config, "masked-lm").to(dtype).eval()
    randomize_weights(model)
    reference: Any = reference_model(family, config, "masked-lm", model.state_dict())
    reference.transformer.bi_data = reverse
    encodings = reference.transformer.relative_positional_encoding
    reference.transformer.relative_positional_encoding = lambda *args, **options: encodings(
        *args, **options
    ).to(dtype)
    return model, reference


def _assert_close(ours: Tensor, theirs: Tensor, bound: float) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= bound * float(theirs.abs().max())


def test_the_first_published_configuration_is_read() -> None:
    """The first revision of xlnet-large-cased has the names of the released code."""
    hub = {"n_token": 32000, "mem_len": None, "dropatt": 0.1, "init": "normal", "init_std": 0.02}
    translated = XLNet.config_map.from_hub({**hub, "max_position_embeddings": 512}, XLNetConfig)
    assert translated.config == SIZES["large"] and not translated.unknown


@pytest.mark.parametrize(
    ("key", "value"),
    [("attn_type", "uni"), ("summary_type", "first"), ("untie_r", False), ("d_head", 32)],
)
def test_other_architectures_are_refused(key: str, value: Any) -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=key):
        XLNet.config_map.from_hub({key: value}, XLNetConfig)


@pytest.mark.parametrize(
    ("size", "head", "parameters"),
    [
        ("base", "none", 116_718_336),
        ("base", "masked-lm", 116_750_336),
        ("large", "masked-lm", 360_300_800),
    ],
)
def test_parameter_counts_are_those_of_the_published(size: str, head: str, parameters: int) -> None:
    """The rules have as many parameters as the published checkpoints."""
    assert XLNet().weights(SIZES[size], head).parameters() == parameters


TEXTS = (
    "Hello, world! It's 1,000 \u00e9t\u00e9s.",
    "A second text, with ``quotes'' and  spaces",
    "<mask> is the capital",
)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``spiece.model``, trained by the command of the released README."""
    import sentencepiece

    folder = tmp_path_factory.mktemp("pieces")
    words = ["the", "cat", "sat", "on", "a", "mat", "hello", "world", "it", "is", "etes", "text"]
    lines = [" ".join(words[k % 7 :: 1 + k % 3]) + f" {k}, {k}00." for k in range(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "spiece"),
        vocab_size=120,
        character_coverage=0.99995,
        model_type="unigram",
        control_symbols="<cls>,<sep>,<pad>,<mask>,<eod>",
        user_defined_symbols='<eop>,.,(,),",-,\u2013,\u00a3,\u20ac',
        minloglevel=2,
    )
    return folder


@pytest.mark.parametrize("text", TEXTS[:2])
def test_tokens_are_those_of_the_released_code(pieces: Path, text: str) -> None:
    """``preprocess_text`` and ``encode_ids`` of prepro_utils.py, worked out here."""
    import unicodedata

    import sentencepiece

    from zoo.tokenizers import SourceFiles

    model = sentencepiece.SentencePieceProcessor(model_file=str(pieces / "spiece.model"))
    plain = " ".join(text.split()).replace("``", '"').replace("''", '"')
    letters = unicodedata.normalize("NFKD", plain)
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    expected = []
    for piece in model.encode(plain, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            expected += [*_split(model, piece[:-1].replace("\u2581", "")), ","]
            continue
        expected.append(piece)
    ids = [*map(model.piece_to_id, expected), *map(model.piece_to_id, ("<sep>", "<cls>"))]
    encoding = XLNet().tokenizer(SourceFiles(pieces)).encode(text)
    assert encoding.ids == ids
    assert encoding.type_ids == [0] * (len(ids) - 1) + [2]


def _split(model: Any, text: str) -> list[str]:
    return model.encode(text, out_type=str)  # type: ignore[no-any-return]


def test_special_tokens_are_at_the_end_of_a_pair(pieces: Path) -> None:
    """``A <sep> B <sep> <cls>``, of the types 0, 1 and 2; ``<mask>`` takes the space before it."""
    from zoo.tokenizers import SourceFiles

    tokenizer = XLNet().tokenizer(SourceFiles(pieces))
    encoding = tokenizer.encode("the <mask>", "cat")
    ids = encoding.ids
    types = encoding.type_ids
    mask, sep, cls = map(tokenizer.token_to_id, ("<mask>", "<sep>", "<cls>"))
    assert sep is not None
    first = ids.index(sep)
    assert ids[first - 1] == mask and ids[-2:] == [sep, cls]
    assert types == [0] * (first + 1) + [1] * (len(ids) - first - 2) + [2]
    assert (mask, sep, cls) == (6, 4, 3)
