"""Two small tokenizers of the two families there are: byte-level BPE, and sentencepiece with byte fallback."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|mask|>"]
CORPUS = ["the quick brown fox jumps over the lazy dog", "assistant user system end stop", "the end of the user"] * 4


@cache
def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level(chat_template: str | None = CHATML) -> PreTrainedTokenizerBase:
    """As of GPT-2, Llama 3, Qwen: every string has a faithful encoding; characters outside the corpus span tokens."""
    return _wrap(_byte_level(), chat_template)


def fullwidth_specials() -> PreTrainedTokenizerBase:
    """Byte-level with NFKC and a special token sought in normalized text, which has several spellings."""
    tokenizer = Tokenizer.from_str(_byte_level().to_str())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_special_tokens([AddedToken("<|stop|>", normalized=True, special=True)])
    return _wrap(tokenizer, CHATML)


@cache
def _sentencepiece() -> Tokenizer:
    pieces = ["<unk>", *SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz.!"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e"), ("e", "n"), ("en", "d")]
    pieces += [left + right for left, right in merges]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    return tokenizer


def sentencepiece(chat_template: str | None = CHATML) -> PreTrainedTokenizerBase:
    """As of Llama 2, Mistral, Gemma: a word brings its space, the first one is stripped, rare characters are bytes."""
    return _wrap(_sentencepiece(), chat_template)


def _wrap(tokenizer: Tokenizer, chat_template: str | None) -> PreTrainedTokenizerBase:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Ids of a text, nothing added."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def decode(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """The whole text of ids at once, the reference for incremental decoding."""
    text: str = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
