"""Where a session is best placed, and when an open one is worth moving. Pure.

Costs are counted in rows of forward passes: those queued, those of the prompt that the replica has not cached, and some
for each session that shares its passes from now on. A slow replica's rows cost more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SESSION_ROWS = 64  # what sharing passes with one more session comes to
LACK = 2  # a token without room costs the row that evicts another's KV and the row that reads it again
WORTH = 2.0  # a move must cost less than staying by this factor, so nothing moves to and fro


@dataclass(frozen=True, slots=True)
class Standing:
    """A replica as a candidate. `slowness` 1: as fast as the others; `room`: KV tokens that nobody has reserved.

    `matched`: leading tokens of the prompt whose KV it probably has.
    """

    replica: str
    slowness: float = 1.0
    queued_rows: int = 0
    sessions: int = 0
    room: int = 1 << 40
    matched: int = 0


def cost(standing: Standing, tokens: int, prompt: int) -> float:
    """Of placing a session there that reads `prompt` tokens first and needs KV for `tokens`, in rows."""
    unread = max(0, prompt - standing.matched)
    lacking = max(0, tokens - max(0, standing.room))
    shared = SESSION_ROWS * (standing.sessions + 1)
    return standing.slowness * (standing.queued_rows + unread + LACK * lacking + shared)


def ranked(standings: Iterable[Standing], tokens: int, prompt: int) -> list[str]:
    """Replicas from the best on; equals stay in their order."""
    return [best.replica for best in sorted(standings, key=lambda standing: cost(standing, tokens, prompt))]


def worth_moving(here: Standing, there: Standing, tokens: int) -> bool:
    """Whether one of the sessions counted in `here`, with `tokens` of context, should be read anew and go on there."""
    staying = here.slowness * (here.queued_rows + SESSION_ROWS * here.sessions)
    return tokens <= there.room and staying > WORTH * cost(there, tokens, tokens)
