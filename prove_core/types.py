"""The messages of one propose / verify / commit cycle. Ids and probabilities only: logits never travel."""

from dataclasses import dataclass, replace
from enum import StrEnum

TokenIds = tuple[int, ...]


class Mode(StrEnum):
    """How a request is decoded (`decoding.mode`)."""

    AR = "ar"
    MARS = "mars"
    PROVE = "prove"
    LOSSLESS = "lossless"
    FUSED = "fused"
    AUTO = "auto"
    SPECULATIVE = "speculative"


class Gate(StrEnum):
    """Which score of a proposed token is compared with `theta` in mode `prove`."""

    PRODUCT = "product"
    VERIFIER = "verifier"
    CONFIDENCE = "confidence"
    LOGISTIC = "logistic"


@dataclass(frozen=True, slots=True)
class GateWeights:
    """The fitted regression of gate `logistic`: a bias, and a weight each of log c, log v and "the verifier agrees"."""

    bias: float
    log_confidence: float
    log_probability: float
    agrees: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The chance that a draft proposed with confidence c matches: the logistic of bias + slope * log(c / (1 - c))."""

    bias: float
    slope: float


IDENTITY = Calibration(0.0, 1.0)


class Role(StrEnum):
    """The two models of a cycle."""

    PROPOSER = "proposer"
    VERIFIER = "verifier"


@dataclass(frozen=True, slots=True)
class Commit:
    """Cut the session's tokens to `keep`, then append `append`: the absolute state of the committed sequence.

    Idempotent by `cycle`: a replica that has already applied this cycle ignores it. `keep == 0` opens (or re-opens)
    the session, with `append` the whole committed sequence.
    """

    session: str
    cycle: int
    keep: int
    append: TokenIds


@dataclass(frozen=True, slots=True)
class Propose:
    """One proposer pass: the committed tokens, then `block_size - 1` placeholders. Answer: `Proposal`."""

    block_size: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way for a block to go on: `tokens`, one at least, in the place of what follows its first `accepted` ones.

    It begins otherwise than the block does there, and than other alternatives in that place.
    `confidences[i]` is that of `tokens[i]`, given that those before it match, where a proposer makes it.
    """

    accepted: int
    tokens: TokenIds
    confidences: tuple[float, ...] = ()


Alternatives = tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class Verify:
    """One pass over the committed tokens, then the realized `block`, and `alternatives` to it. Answer: `Reading`."""

    block: TokenIds
    alternatives: Alternatives = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """`length` serial passes beyond the committed tokens, one token each. Answer: `Drafted`."""

    length: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A guess that verification stops after `accepted` tokens of a block: `placeholders` go on from there."""

    accepted: int
    placeholders: int


@dataclass(frozen=True, slots=True)
class Fuse:
    """Verify `block` and `alternatives` to it, and propose what follows it wherever it may stop, in one pass.

    Answer: `Fused`.
    """

    block: TokenIds
    branches: tuple[Branch, ...]
    alternatives: Alternatives = ()


@dataclass(frozen=True, slots=True)
class Continue:
    """Propose what follows `block` for each stop that `branches` name, in one pass. Answer: `Continued`.

    The proposer can do so while another model reads the block. A branch without placeholders asks for the AR token in
    its place alone.
    """

    block: TokenIds
    branches: tuple[Branch, ...]


Call = Propose | Verify | Draft | Fuse | Continue


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a row's choice, and ids with theirs, best first: as many as the request asks for.

    Natural logarithms, of the distribution that the row chooses from before temperature and cuts: biases, penalties and
    bans count.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


Logprobs = tuple[TokenLogprob, ...]
"""One for each row of tokens that has an output, or none at all where nobody asks for them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """d_1..d_B and c_1..c_B: each row's choice and its probability (float32 softmax at temperature 1).

    Here and in the other answers a choice is the argmax, or what the request's sampling makes of the row. `logprobs` is
    of d_1 alone, the AR token. `alternatives` are to the block d_2..d_B, likeliest first.
    """

    tokens: TokenIds
    confidences: tuple[float, ...]
    logprobs: Logprobs = ()
    alternatives: Alternatives = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model makes of a block d of length n read after the committed tokens.

    `argmax[i]` (n + 1 of them) is its own choice in the place of d[i]; the last one follows the whole block.
    `probabilities[i]` (n of them) is p(d[i] | committed, d[:i]). `behind[k][i]` is its choice after the first i + 1
    tokens of alternative k: none if that was not read, none at all if there was no room.
    """

    argmax: TokenIds
    probabilities: tuple[float, ...]
    logprobs: Logprobs = ()
    behind: tuple[TokenIds, ...] = ()


@dataclass(frozen=True, slots=True)
class Drafted:
    """The model's own continuation of the committed tokens, serially decoded."""

    tokens: TokenIds


@dataclass(frozen=True, slots=True)
class Fused:
    """`argmax` and `behind` as in `Reading`, and `drafts` behind what matches and the model's own token after that.

    They are of the branch there, and of what earlier ones said of places further on. `alternatives` are to them.
    `kept`: rows behind them are kept to say more in the next pass.
    """

    argmax: TokenIds
    drafts: TokenIds
    confidences: tuple[float, ...]
    logprobs: Logprobs = ()
    behind: tuple[TokenIds, ...] = ()
    alternatives: Alternatives = ()
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Continued:
    """A proposal for each branch of the call, in order; none at all where the KV pool had no room for them."""

    proposals: tuple[Proposal, ...]


Answer = Proposal | Reading | Drafted | Fused | Continued


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a completion ends, in tokens. `stop_ids` are the checkpoint's EOS ids plus the request's own.

    Until `min_tokens` have been generated no model may choose one of `stop_ids`. With `ignore_eos` the caller leaves
    the EOS ids out of `stop_ids`.
    """

    max_tokens: int
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class DecodingParams:
    """The field `decoding` of a request, resolved against the server's defaults."""

    mode: Mode = Mode.AUTO
    gate: Gate = Gate.PRODUCT
    theta: float = 0.01
    tau: float = 0.9
    block_size: int = 8
    draft_length: int = 4
    fused_rows: int = 16
    overlap_rows: int = 0
    gate_weights: GateWeights | None = None
    trace: bool = False  # steps carry the candidates that were rejected


@dataclass(frozen=True, slots=True)
class Cost:
    """What part of a completion took: cycles begun, forward passes of each role, and seconds.

    `pass_seconds` in forward passes, `verify_seconds` of them in passes that only verify; `gate_seconds` in decisions;
    `queue_seconds` before the first pass of a call; `channel_seconds` of calls to another process, beyond all that.
    """

    cycles: int = 0
    proposer_passes: int = 0
    verifier_passes: int = 0
    pass_seconds: float = 0.0
    verify_seconds: float = 0.0
    gate_seconds: float = 0.0
    queue_seconds: float = 0.0
    channel_seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.cycles + other.cycles,
            self.proposer_passes + other.proposer_passes,
            self.verifier_passes + other.verifier_passes,
            self.pass_seconds + other.pass_seconds,
            self.verify_seconds + other.verify_seconds,
            self.gate_seconds + other.gate_seconds,
            self.queue_seconds + other.queue_seconds,
            self.channel_seconds + other.channel_seconds,
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Tokens committed by one decision of a cycle. `accepted` of the `drafted` candidates lead `tokens`.

    Candidates are the tokens that could have been rejected: a block's first token is the AR token and is none.
    `cost` is what was spent since the step before. `rejected`, filled for `trace` alone, are the candidates that stood
    where the accepted ones end. `logprobs` are of the `tokens`, if the request asks for them.
    """

    tokens: TokenIds
    drafted: int = 0
    accepted: int = 0
    cost: Cost = Cost()
    rejected: TokenIds = ()
    logprobs: Logprobs = ()

    def cut(self, kept: int) -> "Step":
        """The step with its first `kept` tokens. What was rejected beyond a cut is not the user's to see."""
        if kept >= len(self.tokens):
            return self
        accepted = min(self.accepted, kept)
        return replace(self, tokens=self.tokens[:kept], accepted=accepted, rejected=(), logprobs=self.logprobs[:kept])


@dataclass(frozen=True, slots=True)
class Floor:
    """`min_tokens` as a model sees it: no row that predicts a token below index `length` may choose a stop id."""

    length: int
    stop_ids: TokenIds


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a model chooses a token where that is not the plain argmax. Ranges and order of application are vLLM's.

    First the logits are adjusted: `repetition_penalty` (> 0; 1 is none) divides positive and multiplies negative ones
    of ids in the prompt or the completion; `frequency_penalty` times an id's count in the completion and
    `presence_penalty` for being there are subtracted; `logit_bias` is added. Then, if `temperature` > 0, they are
    divided by it and cut to the `top_k` best (0: all), to the smallest set with probability `top_p`, and to ids at
    least `min_p` times as probable as the best one. At temperature 0 the best adjusted logit is taken.

    `seed` (0 .. 2^64 - 1) and a token's index in its sequence decide the draw. The completion begins at index
    `prompt_length`. `logprobs`: report each token's log-probability, and those of so many of the likeliest ids.
    """

    prompt_length: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn rather than the best ones taken."""
        return self.temperature > 0

    @property
    def penalizes(self) -> bool:
        """Whether a choice depends on the tokens before it other than through the model."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def adjusts(self) -> bool:
        """Whether logits are changed before a choice."""
        return self.penalizes or bool(self.logit_bias)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call on one session of an engine, with the commit that rides on it. `sampling` None: plain argmax."""

    commit: Commit
    call: Call
    floor: Floor | None = None
    sampling: SamplingParams | None = None


@dataclass(frozen=True, slots=True)
class CallResult:
    """The answer to a `CallRequest`. Times in seconds; `pass_seconds` is forward passes alone, `passes` how many."""

    answer: Answer
    passes: int
    pass_seconds: float
    queue_seconds: float


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A whole completion by one model (any mode of one model), decoded inside the engine."""

    session: str
    prompt: TokenIds
    params: DecodingParams
    limits: Limits
    sampling: SamplingParams | None = None


class FinishReason(StrEnum):
    """Why a completion ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a completion. `cost` is what came after its last step: each step carries its own."""

    reason: FinishReason
    cost: Cost = Cost()
