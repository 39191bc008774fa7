"""Whether two checkpoints speak in the same token ids, so that one may verify or draft for the other."""

from transformers import PreTrainedTokenizerBase

from prove_core.errors import IncompatibleModels
from prove_core.model.info import CheckpointInfo


def check_compatible(proposer: CheckpointInfo, verifier: CheckpointInfo) -> None:
    """Raise IncompatibleModels unless every id that either may emit is the same token in the other.

    The placeholder is exempt (it is never emitted), and so is the width of the logits beyond the tokenizer.
    """
    left, right = _tokens(proposer), _tokens(verifier)
    exempt = {proposer.placeholder_id, verifier.placeholder_id}
    shared = range(min(proposer.vocab_size, verifier.vocab_size))
    different = [i for i in shared if i not in exempt and left.get(i) != right.get(i)]
    if different:
        first = different[0]
        raise _refusal(
            proposer,
            verifier,
            f"{len(different)} of {len(shared)} ids differ, id {first} is {left.get(first)!r} and {right.get(first)!r}",
        )
    for owner, tokens in ((proposer, left), (verifier, right)):
        extra = [token for i, token in tokens.items() if i >= len(shared) and i not in exempt]
        if extra:
            raise _refusal(proposer, verifier, f"{owner.name} alone has {len(extra)} more tokens, such as {extra[0]!r}")


def _tokens(info: CheckpointInfo) -> dict[int, str]:
    """Tokens by id, as far as the model has embeddings."""
    tokenizer: PreTrainedTokenizerBase = info.tokenizer
    return {i: token for token, i in tokenizer.get_vocab().items() if i < info.vocab_size}


def _refusal(proposer: CheckpointInfo, verifier: CheckpointInfo, how: str) -> IncompatibleModels:
    return IncompatibleModels(
        f"{proposer.name} and {verifier.name} have different tokenizers ({how}): choose two checkpoints of one family"
    )
