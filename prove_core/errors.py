"""Every error the library raises on purpose, by what the caller can do about it."""


class ProveError(Exception):
    """Base of all errors raised on purpose. `str(error)` is one line that says what to do."""


class CheckpointError(ProveError):
    """A checkpoint, adapter or tokenizer cannot be had or read: wrong path, corrupt download, missing file."""


class UnsupportedModel(ProveError):
    """The checkpoint is readable but needs something that this engine would compute wrongly."""


class IncompatibleModels(ProveError):
    """Proposer and verifier cannot work together (different tokenizers)."""


class RequestError(ProveError):
    """A request that can never be served as it stands. `param` names the offending field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextLengthExceeded(RequestError):
    """Prompt and completion together do not fit into the model's context."""


class PoolExhausted(RequestError):
    """A sequence needs more KV pages than the whole pool has. No retry helps."""


class TooLittleMemory(ProveError):
    """The configured memory cannot hold what it must: weights, or the KV of one session of full length."""


class SessionLost(ProveError):
    """The replica does not hold the tokens that a commit builds on; open the session again with keep=0."""


class StaleCommit(ProveError):
    """A commit of an earlier cycle than the one already applied (a delayed or replayed frame)."""


class EngineStopped(ProveError):
    """The engine thread has ended; no further work is accepted."""


class PassFailed(ProveError):
    """A forward pass raised; the sessions in it keep their tokens and may be called again."""


class RanksLost(ProveError):
    """A rank of a tensor-parallel replica has failed or is gone: the replica must be replaced as a whole."""


class DataError(ProveError):
    """Training or evaluation data that cannot be used as it is; names the file and the line."""
