"""Fields of a request that say how a token is chosen: OpenAI's, and those that vLLM adds."""

import re
import secrets
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from prove_core.errors import RequestError
from prove_core.types import SamplingParams
from services.api.chat import Strict
from services.api.errors import from_validation
from services.api.refusals import invalid
from services.config.limits import MOST_BIASES

GREEDY_BELOW = 1e-5  # vLLM's: so near 0 a draw is the argmax, and numbers may overflow
_TOKEN_ID = r"^(0|[1-9][0-9]{0,9})$"  # one way to write each: two keys for one id would hide one of the biases

Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Biases = Annotated[dict[str, Bias], Field(max_length=MOST_BIASES)]
BiasesByDigits = Annotated[dict[Annotated[str, Field(pattern=_TOKEN_ID)], Bias], Field(max_length=MOST_BIASES)]


def _token_id_keys(bias: object) -> object:
    if isinstance(bias, dict):
        for key in bias:
            if not (isinstance(key, str) and re.fullmatch(_TOKEN_ID, key)):
                raise invalid(f"has a key that is not a token id in plain decimal digits: {key!r:.40}")
    return bias


class SamplingOptions(Strict):
    """Temperature and what cuts, moves or seeds its draws. Greedy unless one of them asks for a draw."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31, description="0 and -1: all.")
    min_p: Probability | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Default: another one for each request.")
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, ge=1e-2, le=2)
    logit_bias: Annotated[
        Biases | None, BeforeValidator(_token_id_keys, json_schema_input_type=BiasesByDigits | None)
    ] = None
    logprobs: bool | None = Field(None, description="Report each token's log-probability.")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="And those of so many of the likeliest tokens.")

    @property
    def effective_temperature(self) -> float:
        """0 is greedy. Not given, it is 0, but OpenAI's 1 where a field is given that only draws have a use for."""
        if self.temperature is not None:
            return self.temperature if self.temperature >= GREEDY_BELOW else 0.0
        cuts = (self.top_p or 1.0) < 1 or (self.top_k or 0) > 0 or (self.min_p or 0.0) > 0
        return 1.0 if cuts else 0.0

    def sampling(self, prompt_length: int) -> SamplingParams | None:
        """These options for a prompt of so many tokens; None for plain greedy decoding."""
        adjustments = SamplingParams(
            prompt_length,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            logit_bias=tuple((int(token), value) for token, value in (self.logit_bias or {}).items() if value),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )
        if not self.effective_temperature:
            return adjustments if adjustments.adjusts or self.logprobs else None
        return replace(
            adjustments,
            temperature=self.effective_temperature,
            top_p=self.top_p or 1.0,
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            seed=secrets.randbits(64) if self.seed is None else self.seed % 2**64,
        )

    def check_biased_ids(self, vocabulary: int) -> None:
        """Raises RequestError for a bias on an id that the tokenizer, which has `vocabulary` ids, lacks."""
        for token in map(int, self.logit_bias or ()):
            if token >= vocabulary:
                raise RequestError(f"logit_bias: {token} is not a token id (there are {vocabulary})", "logit_bias")


def checked_sampling(options: dict[str, Any]) -> SamplingOptions:
    """Options by name, checked as a request's are. Raises RequestError that names the offending one."""
    try:
        return SamplingOptions.model_validate(options)
    except ValidationError as error:
        refusal = from_validation(error)
        raise RequestError(str(refusal), refusal.param) from None
