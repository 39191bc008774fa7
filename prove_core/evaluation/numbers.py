"""Numbers that answers end with: GSM8K's way of judging a text."""

import re
from decimal import Decimal

MARK = "####"  # GSM8K writes the result of an answer after it (arXiv 2110.14168)

# Thousands in groups, or plain digits. A minus is a sign only where what stands before it makes it no difference.
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(rf"(?:(?<![\w)\]])-)?\$?(?:{_WHOLE}(?:\.[0-9]+)?|\.[0-9]+)")
_DECORATION = str.maketrans("", "", "$,")


def last_number(text: str) -> Decimal | None:
    """The last number of a text, whole or with a fraction, after any `$` and without commas between thousands."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].translate(_DECORATION)) if found else None


def stated_result(answer: str) -> Decimal | None:
    """The number after the last `####` of a reference answer; None where there is none."""
    _, mark, result = answer.rpartition(MARK)
    return last_number(result) if mark else None
