"""What can be known to be wrong before any replica starts: checkpoints that are missing or do not go together."""

from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.progress import SILENT, Progress
from services.settings import Settings


def read_checkpoints(settings: Settings, progress: Progress = SILENT) -> CheckpointInfo:
    """The proposer's tokenizer and facts; built-in checkpoints are fetched first.

    Raises CheckpointError, UnsupportedModel, or IncompatibleModels when the verifier's tokenizer differs: in one line.
    """
    info = read_info(settings.proposer.engine.model, progress)
    if settings.verifier is not None:
        check_compatible(info, read_info(settings.verifier.engine.model, progress))
    return info
