"""Incremental decoding against decoding the whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from prove_core.text.detokenizer import Detokenizer
from tests.core.text.vocabularies import SPECIALS, byte_level, decode, encode, sentencepiece

TOKENIZERS = [pytest.param(byte_level(), id="byte-level"), pytest.param(sentencepiece(), id="sentencepiece")]
TRICKY = [
    "plain words, then more",
    "emoji 😀 and a family 👩‍👩‍👧‍👦 and flags 🇩🇪🇯🇵",
    "你好世界。こんにちは 안녕하세요",
    "combining e\u0301 a\u0308\u0323, zalgo z\u0351\u036b",
    "العربية עברית हिन्दी ไทย",
    "  leading and   inner   spaces\n\ttabs\r\n",
    "\x00\x7f\u00a0\u200b\ufeff\U0001d518",
]
# U+FFFD itself is left out: at the very end it cannot be told from an incomplete character.
code_points = st.integers(0, 0xD7FF) | st.integers(0xE000, 0xFFFC) | st.integers(0x10000, 0x10FFFF)
texts = st.lists(code_points.map(chr) | st.sampled_from("ab the.é你😀\u0301"), max_size=60).map("".join)


def deltas(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push(token) for token in ids]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("text", TRICKY)
def test_tricky_texts(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = encode(tokenizer, text)
    pieces = deltas(tokenizer, ids)
    assert "".join(pieces) == text == decode(tokenizer, ids)
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=texts)
def test_any_text_comes_back_in_pieces(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    pieces = deltas(tokenizer, encode(tokenizer, text))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(text=texts, data=st.data())
def test_a_cut_sequence_gives_the_complete_characters(
    tokenizer: PreTrainedTokenizerBase, text: str, data: st.DataObject
) -> None:
    ids = encode(tokenizer, text)
    cut = data.draw(st.integers(0, len(ids)))
    joined = "".join(deltas(tokenizer, ids[:cut]))
    assert text.startswith(joined)
    assert "\ufffd" not in joined


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(data=st.data())
def test_random_ids_never_fail(tokenizer: PreTrainedTokenizerBase, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) + 3), max_size=150))
    assert len(deltas(tokenizer, ids)) == len(ids)


@given(st.lists(st.integers(0, 60), max_size=50))
def test_broken_byte_sequences_read_as_the_whole_does(ids: list[int]) -> None:
    """Bytes that can never become a character show as U+FFFD, in their place; only an unfinished end is missing."""
    tokenizer = byte_level()
    symbols = [3 + 4 * index for index in ids]  # spread over the 256 bytes
    whole = decode(tokenizer, symbols)
    joined = "".join(deltas(tokenizer, symbols))
    assert whole.startswith(joined)
    assert set(whole[len(joined) :]) <= {"\ufffd"}


def test_a_character_appears_with_its_last_byte_and_no_later() -> None:
    tokenizer = byte_level()
    ids = encode(tokenizer, "a😀b")
    assert deltas(tokenizer, ids) == ["a", "", "", "", "😀", "b"]


def test_text_before_an_incomplete_character_is_not_held_back() -> None:
    """A token may hold a whole character and the start of the next."""
    tokenizer = byte_level()
    raw = tokenizer.backend_tokenizer
    raw = type(raw).from_str(raw.to_str())
    first, *rest = byte_symbols("你".encode())
    raw.add_tokens(["x" + first])
    wrapped = type(tokenizer)(tokenizer_object=raw)
    ids = [raw.token_to_id(token) for token in ("x" + first, *rest)]
    assert deltas(wrapped, ids) == ["x", "", "你"]


def byte_symbols(raw: bytes) -> list[str]:
    """GPT-2's table: printable Latin-1 stands for itself, other bytes are counted from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in raw]


def test_broken_bytes_after_a_character_made_of_bytes() -> None:
    """What `tokenizers.DecodeStream` raises on."""
    tokenizer = sentencepiece()
    emoji = [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in "😀".encode()]
    broken = tokenizer.convert_tokens_to_ids("<0xE4>")
    pieces = deltas(tokenizer, [*emoji, broken, tokenizer.convert_tokens_to_ids("a")])
    assert pieces[:5] == ["", "", "", "😀", ""]
    assert pieces[5].endswith("a")


def test_special_tokens_leave_no_text_and_keep_the_spaces_around() -> None:
    tokenizer = sentencepiece()
    special = tokenizer.convert_tokens_to_ids(SPECIALS[2])
    the = tokenizer.convert_tokens_to_ids("▁the")
    assert deltas(tokenizer, [the, special, the, special, special, the]) == ["the", "", " the", "", "", " the"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_endless_broken_bytes_cost_a_bounded_window(tokenizer: PreTrainedTokenizerBase) -> None:
    tokens = tokenizer.get_vocab()
    broken = tokens.get("<0xE4>", tokens.get("ä"))
    assert broken is not None
    detokenizer = Detokenizer(tokenizer)
    assert all(detokenizer.push(broken) == "" for _ in range(500))
    assert len(detokenizer._window) <= 64
    end = "".join(detokenizer.push(token) for token in encode(tokenizer, " the end"))
    assert end.endswith("the end")
