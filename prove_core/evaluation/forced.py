"""Teacher forcing through an engine: what its model makes of a text that somebody else wrote."""

from typing import cast

from prove_core.engine.engine import Engine
from prove_core.engine.local import call
from prove_core.types import CallRequest, Commit, Reading, TokenIds, Verify

PIECE = 64  # a pass of any engine has room for such a block, however small its `max_rows`


def read_forced(engine: Engine, session: str, prompt: TokenIds, text: TokenIds) -> Reading:
    """The reading of `text` after `prompt`: one Verify call, or for a text beyond `PIECE` tokens as few as it takes.

    Frees the session at the end. Raises what the engine answers.
    """
    argmax: TokenIds = ()
    probabilities: tuple[float, ...] = ()
    commit = Commit(session, 1, 0, prompt)
    try:
        for start in range(0, max(1, len(text)), PIECE):
            block = text[start : start + PIECE]
            reading = cast(Reading, call(engine, CallRequest(commit, Verify(block))).answer)
            argmax = argmax[:start] + reading.argmax  # each reading ends with what would follow its block
            probabilities += reading.probabilities
            commit = Commit(session, commit.cycle + 1, len(prompt) + start, block)
        return Reading(argmax, probabilities)
    finally:
        engine.release(session)
