"""What can be known to be wrong before any replica starts: checkpoints that are missing or do not go together."""

import logging
from collections.abc import Mapping

from prove_core.engine.memory import check_pool
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.progress import SILENT, Progress
from prove_core.types import Role
from services.config.settings import ModelSettings, Settings

logger = logging.getLogger(__name__)


def read_checkpoints(settings: Settings, progress: Progress = SILENT) -> CheckpointInfo:
    """The proposer's tokenizer and facts; built-in checkpoints are fetched first.

    Raises CheckpointError, UnsupportedModel, or IncompatibleModels when the verifier's tokenizer differs: in one line.
    """
    info = read_info(settings.proposer.engine.model, progress)
    if settings.verifier is not None:
        check_compatible(info, read_info(settings.verifier.engine.model, progress))
    return info


def configured_pools(settings: Settings) -> dict[Role, int]:
    """Tokens of the KV pools whose size the configuration gives."""
    sizes = {role: part.engine.cache.tokens for role, part in _roles(settings).items()}
    return {role: tokens for role, tokens in sizes.items() if tokens != "auto"}


def check_sizes(settings: Settings, context: int, pools: Mapping[Role, int]) -> None:
    """Refuse KV `pools` (tokens by role) too small for a session of `context` tokens; warn of those that will starve.

    And of a queue that is too short for such a session. Raises TooLittleMemory.
    """
    longest = settings.admission.most_waiting
    if longest is not None and longest < context:
        logger.warning(
            f"requests of more than admission.max_queued_tokens ({longest}) are refused,"
            f" though the context holds {context} tokens: raise it to that"
        )
    for role, part in _roles(settings).items():
        warning = check_pool(pools[role], context, part.max_ongoing_requests, role.value) if role in pools else None
        if warning is not None:
            logger.warning(warning)


def _roles(settings: Settings) -> dict[Role, ModelSettings]:
    roles = {Role.PROPOSER: settings.proposer, Role.VERIFIER: settings.verifier}
    return {role: part for role, part in roles.items() if part is not None}
