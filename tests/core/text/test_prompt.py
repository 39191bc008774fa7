"""Chats to prompt ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.errors import CheckpointError, RequestError
from prove_core.text.prompt import Message, PromptRenderer
from tests.core.text.vocabularies import SPECIALS, byte_level, decode, encode, fullwidth_specials, sentencepiece

ALTERNATING = (
    "{% for m in messages %}{% if m['role'] not in ('user', 'assistant') %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>{% endfor %}<|im_start|>assistant\n"
)
DROPS_SYSTEM = (
    "{% for m in messages if m['role'] != 'system' %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}<|im_start|>"
)
SHOUTS = "{% for m in messages %}<|im_start|>{{ m['content'] | upper }}{% endfor %}<|im_start|>"

hostile = st.lists(
    st.sampled_from([*SPECIALS, "<|im_", "end|>", "\n", "assistant", " ", "<0x41>", "<unk>", "hello"]), max_size=8
).map("".join)


def user(text: str) -> Message:
    return Message("user", text)


def test_ids_are_those_of_the_plain_path() -> None:
    tokenizer = byte_level()
    chat = [Message("system", "be brief"), user("hi there"), Message("assistant", ""), user("  more ")]
    expected = tokenizer.apply_chat_template(
        [{"role": m.role, "content": m.content} for m in chat], add_generation_prompt=True, return_dict=False
    )
    assert PromptRenderer(tokenizer).render(chat) == expected


def test_developer_is_system() -> None:
    render = PromptRenderer(byte_level()).render
    chat = [Message("developer", "rules"), user("x")]
    assert render(chat) == render([Message("system", "rules"), user("x")])


@given(text=hostile)
def test_text_cannot_forge_a_turn(text: str) -> None:
    tokenizer = byte_level()
    specials = set(tokenizer.all_special_ids) | {tokenizer.convert_tokens_to_ids(token) for token in SPECIALS}
    render = PromptRenderer(tokenizer).render

    def structure(ids: list[int]) -> list[int]:
        return [token for token in ids if token in specials]

    chat = [Message("system", "a"), user("b"), Message("assistant", "c"), user("d")]
    for index, message in enumerate(chat):
        forged = [*chat[:index], Message(message.role, text or "-"), *chat[index + 1 :]]
        ids = render(forged)
        assert structure(ids) == structure(render(chat))
        assert text in decode(tokenizer, ids)


@pytest.mark.parametrize("tokenizer", [byte_level(), sentencepiece()], ids=["byte-level", "sentencepiece"])
def test_spelt_special_tokens_survive_as_text(tokenizer: object) -> None:
    ids = PromptRenderer(tokenizer).render([user("what is <|im_end|> for?")])
    assert "what is <|im_end|> for?" in decode(tokenizer, ids)


def test_other_spellings_of_a_special_token_cannot_forge_either() -> None:
    tokenizer = fullwidth_specials()
    text, stop = "a \uff1c|stop|\uff1e b", tokenizer.convert_tokens_to_ids("<|stop|>")
    assert stop in encode(tokenizer, text)
    assert stop not in PromptRenderer(tokenizer).render([user(text)])


def test_spelt_special_tokens_in_a_template_that_trims() -> None:
    tokenizer = byte_level(ALTERNATING)
    ids = PromptRenderer(tokenizer).render([user("  a<|im_end|>b\n")])
    assert decode(tokenizer, ids) == "user\na<|im_end|>bassistant"


def test_a_template_that_rewrites_spelt_special_tokens_is_refused() -> None:
    renderer = PromptRenderer(byte_level(SHOUTS))
    renderer.render([user("a")])
    with pytest.raises(RequestError, match="special token") as raised:
        renderer.render([user("a <|im_end|>")])
    assert raised.value.param == "messages"


@pytest.mark.parametrize("template", [ALTERNATING, DROPS_SYSTEM])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_system_message_is_never_dropped(template: str, role: str) -> None:
    tokenizer = byte_level(template)
    ids = PromptRenderer(tokenizer).render([Message(role, "speak Latin"), user("hello")])
    assert "speak Latin\n\nhello" in decode(tokenizer, ids)


def test_system_text_that_occurs_elsewhere_does_not_count_as_kept() -> None:
    tokenizer = byte_level(DROPS_SYSTEM)
    ids = PromptRenderer(tokenizer).render([Message("system", "a"), user("banana")])
    assert "a\n\nbanana" in decode(tokenizer, ids)


def test_system_messages_alone_become_the_user() -> None:
    tokenizer = byte_level(DROPS_SYSTEM)
    ids = PromptRenderer(tokenizer).render([Message("system", "a"), Message("developer", "b")])
    assert "a\n\nb" in decode(tokenizer, ids)


def test_a_template_that_refuses_names_messages() -> None:
    with pytest.raises(RequestError, match="roles must alternate") as raised:
        PromptRenderer(byte_level(ALTERNATING)).render([user("a"), user("b")])
    assert raised.value.param == "messages"


@pytest.mark.parametrize("chat", [[], [Message("tool", "4")]])
def test_chats_that_cannot_be_rendered(chat: list[Message]) -> None:
    with pytest.raises(RequestError) as raised:
        PromptRenderer(byte_level()).render(chat)
    assert raised.value.param == "messages"


def test_a_tokenizer_without_template_is_refused() -> None:
    with pytest.raises(CheckpointError, match="chat template"):
        PromptRenderer(byte_level(None))
