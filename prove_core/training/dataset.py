"""Training data: JSONL, a prompt and its `answer` a line, in the forms of `prove_core.text.data`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prove_core.errors import DataError
from prove_core.text.data import Chat, DataTokenizer, check_ids, parse_answer, parse_prompt
from prove_core.text.jsonl import Record, parse_file
from prove_core.types import TokenIds


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the answer to it (mostly the model's own), as token ids (chat template applied, EOS included)."""

    prompt: TokenIds
    answer: TokenIds

    @property
    def tokens(self) -> TokenIds:
        """The whole clean sequence."""
        return self.prompt + self.answer


def read_examples(
    paths: Sequence[Path], *, vocabulary: int, shortest: int = 3, text: DataTokenizer | None = None
) -> list[Example]:
    """Read every example of `paths` whose answer has at least `shortest` tokens (a block needs that many).

    `text` tokenizes prompts and answers that are text; without it they must be ids. Raises DataError naming file and
    line for anything that is not an example, and when nothing is left; CheckpointError when a prompt is text and the
    checkpoint has no chat template.
    """

    def parse(record: Record) -> Example:
        prompt, answer = parse_prompt(record), parse_answer(record)
        if text is not None:
            prompt, answer = text.prompt(prompt), text.answer(answer)
        if isinstance(prompt, Chat) or isinstance(answer, str):
            raise ValueError("`prompt` and `answer` must be token ids here")
        return Example(check_ids(prompt, "prompt", vocabulary), check_ids(answer, "answer", vocabulary))

    examples = [example for path in paths for _, example in parse_file(path, parse)]
    kept = [example for example in examples if len(example.answer) >= shortest]
    if not kept:
        names = ", ".join(str(path) for path in paths)
        raise DataError(f"no example with an answer of {shortest} tokens or more in {names or 'no files'}")
    return kept
