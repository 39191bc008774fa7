"""Which ways of decoding `prove bench modes` compares, and on how much."""

from dataclasses import dataclass

from prove_core.types import DecodingParams, Mode


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to decode: prompts, tokens of each completion, repeats, and numbers of requests in flight.

    `lossless` are block sizes, `fused` block sizes with rows per pass; `two_models`: those modes too, one in flight.
    """

    limit: int
    max_tokens: int
    repeats: int
    concurrency: tuple[int, ...]
    lossless: tuple[int, ...]
    fused: tuple[tuple[int, int], ...]
    two_models: bool

    def settings(self) -> dict[str, DecodingParams]:
        """By name: the modes of one model."""
        chosen = {"ar": DecodingParams(Mode.AR)}
        chosen |= {f"lossless_b{size}": DecodingParams(Mode.LOSSLESS, block_size=size) for size in self.lossless}
        chosen |= {
            f"fused_b{size}_rows{rows}": DecodingParams(Mode.FUSED, block_size=size, fused_rows=rows)
            for size, rows in self.fused
        }
        return chosen | {"auto": DecodingParams(Mode.AUTO)}

    def pairs(self) -> dict[str, DecodingParams]:
        """By name: the modes of two models, which run with one request in flight alone."""
        if not self.two_models or 1 not in self.concurrency:
            return {}
        defaults = DecodingParams()
        return {
            f"prove_theta{defaults.theta:g}": DecodingParams(Mode.PROVE),
            f"speculative_k{defaults.draft_length}": DecodingParams(Mode.SPECULATIVE),
        }


FULL = Plan(
    limit=8,
    max_tokens=96,
    repeats=5,
    concurrency=(1, 2, 4, 8, 16, 32, 64),
    lossless=(4, 6, 8),
    fused=((8, 8), (8, 12), (8, 16)),
    two_models=True,
)
QUICK = Plan(
    limit=3,
    max_tokens=40,
    repeats=3,
    concurrency=(1, 4, 16),
    lossless=(6, 8),
    fused=((8, 8), (8, 12)),
    two_models=False,
)
