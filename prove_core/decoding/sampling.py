"""Which requests may sample, and with which seed."""

import struct
from hashlib import blake2b

from prove_core.errors import RequestError
from prove_core.types import DecodingParams, Mode, SamplingParams

EXACT_MODES = tuple(mode for mode in Mode if mode not in (Mode.MARS, Mode.PROVE))


def check_samples(params: DecodingParams, sampling: SamplingParams | None) -> None:
    """Raises RequestError naming the field if tokens are to be drawn in a mode that would not draw them exactly.

    `mars` and `prove` commit proposals on a threshold: drawn ones would follow no distribution that anybody asked for.
    """
    if sampling is not None and sampling.draws and params.mode not in EXACT_MODES:
        names = " or ".join(mode.value for mode in EXACT_MODES)
        asked = "temperature above 0 (it is 1 if only top_p, top_k or min_p is given)"
        raise RequestError(f"{asked} needs decoding.mode {names}, not '{params.mode.value}'", "temperature")


def check_logprobs(params: DecodingParams, sampling: SamplingParams | None) -> None:
    """Raises RequestError if log-probabilities are asked for where tokens are committed that no model has read yet."""
    if sampling is not None and sampling.logprobs is not None and params.mode not in EXACT_MODES:
        names = " or ".join(mode.value for mode in EXACT_MODES)
        raise RequestError(f"logprobs needs decoding.mode {names}, not '{params.mode.value}'", "logprobs")


def choice_seed(seed: int, choice: int) -> int:
    """The seed (0 .. 2^64 - 1) of a request's choice; the first has the request's own."""
    if choice == 0:
        return seed
    digest = blake2b(struct.pack("<QQ", seed, choice), digest_size=8, person=b"choice").digest()
    return int.from_bytes(digest, "little")
