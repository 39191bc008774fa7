"""Mode `prove` with both models at work: what the proposer does while the verifier reads a block. Pure functions.

Where the gate will stop is not known yet, so the proposer goes on from the stops that are likeliest, each with a whole
block: what it finds behind the stop that comes true is just what it would have proposed afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from prove_core.decoding.acceptance import Evidence, gate_score
from prove_core.types import Branch, Continued, DecodingParams, Proposal, TokenIds

_MEMORY = 0.9  # weight of the past in what is known of the gate, per cycle

_NEVER_SURE = 0.02  # the chance of a candidate that nothing but experience speaks against


@dataclass(frozen=True, slots=True)
class Foresight:
    """What a cycle of mode `prove` leaves to the next: its proposal, if there is one already, and how the gate was.

    `rejected` of the candidates were, where `doubts` is the sum of their 1 - c: both fading sums over this completion.
    """

    proposal: Proposal | None = None
    rejected: float = 0.5
    doubts: float = 1.0

    def judged(self, confidences: Sequence[float], accepted: int) -> "Foresight":
        """After the gate has passed the first `accepted` of candidates with these confidences."""
        seen = confidences[: accepted + 1]
        return Foresight(
            rejected=_MEMORY * self.rejected + (accepted < len(confidences)),
            doubts=_MEMORY * self.doubts + sum(1 - confidence for confidence in seen),
        )

    def chance(self, params: DecodingParams, confidence: float) -> float:
        """That the gate passes a candidate, whatever the verifier may say of it: none if not even its best would do."""
        if gate_score(params.gate, Evidence(confidence, 1.0, True), params.gate_weights) <= params.theta:
            return 0.0
        return max(_NEVER_SURE, 1 - (1 - confidence) * self.rejected / max(self.doubts, 1e-6))


def stop_chances(confidences: Sequence[float]) -> list[float]:
    """For a = 0..K the chance that exactly the first a drafts match, if each matches with its confidence."""
    reach = [*accumulate(confidences, mul)]
    return [here - further for here, further in zip([1.0, *reach], [*reach, 0.0], strict=True)]


def foreseen_stops(
    params: DecodingParams, block: TokenIds, confidences: Sequence[float], room: int, foresight: Foresight
) -> tuple[Branch, ...]:
    """The likeliest stops for which whole blocks fit into a pass of `overlap_rows` rows, by ascending place.

    `room` is how many tokens may still be committed, those of `block` included.
    """
    chances = stop_chances([foresight.chance(params, confidence) for confidence in confidences])
    likeliest = sorted(range(min(len(block) + 1, room)), key=lambda accepted: (-chances[accepted], accepted))
    rows = params.overlap_rows - 1 - len(block)
    branches = []
    for accepted in likeliest:
        placeholders = min(params.block_size, room - accepted) - 1
        if placeholders > rows or not chances[accepted]:
            break
        rows -= placeholders
        branches.append(Branch(accepted, placeholders))
    return tuple(sorted(branches, key=lambda branch: branch.accepted))


def proposal_at(accepted: int, branches: Sequence[Branch], continued: Continued | None) -> Proposal | None:
    """What was proposed behind the stop that came true, if anything was."""
    if continued is None:
        return None
    places = [branch.accepted for branch in branches]
    return dict(zip(places, continued.proposals, strict=False)).get(accepted)
