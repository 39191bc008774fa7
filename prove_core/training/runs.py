"""Whole training runs: from data files to an adapter or a checkpoint folder."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prove_core.errors import CheckpointError, DataError
from prove_core.model.adapters import AdapterFolder, base_record, check_base, read_adapter
from prove_core.model.info import read_info
from prove_core.model.layers import pick_layers, wanted_layers
from prove_core.model.loader import LoadedModel, load
from prove_core.model.progress import SILENT, Progress
from prove_core.model.source import Source, describe, resolve
from prove_core.text.data import DataTokenizer
from prove_core.training.ar_task import ArTask
from prove_core.training.block_task import BlockTask
from prove_core.training.config import Method, ProposerTraining, Run, VerifierTraining
from prove_core.training.dataset import Example, read_examples
from prove_core.training.export import export_adapter, export_checkpoint, export_verifier, load_proposer
from prove_core.training.influence import influences, most_influential
from prove_core.training.metrics import Listener
from prove_core.training.proposer import BlockProposer
from prove_core.training.trainer import Trainer

ADAPTER, CHECKPOINT, SETTINGS = "adapter", "model", "run.json"
_PROBES = 16  # examples that layers are chosen by
_MAY_CHANGE = {"checkpoint_seconds", "report_steps"}

Stop = Callable[[], bool]


def train_proposer(
    config: ProposerTraining,
    data: Sequence[Path],
    out: Path,
    progress: Progress = SILENT,
    listener: Listener | None = None,
    stop: Stop = lambda: False,
) -> Path | None:
    """Block training (paper appendix A, stage 2) in folder `out`; takes up a run that it finds there.

    Answers the folder of the result, `out`/adapter (LoRA) or `out`/model (full); None when `stop` said so before the
    end: the same call goes on later. Raises DataError, CheckpointError, UnsupportedModel.
    """
    start = None if config.warm_start is None else read_adapter(config.warm_start)
    loaded, source, examples = _begin(config, data, out, progress, start)
    if loaded.info.placeholder_id is None:
        raise CheckpointError(f"checkpoint {source.name!r} has no obvious placeholder token: set model.placeholder")
    if start is None:
        proposer = BlockProposer(loaded.model, config.adapter, method=config.method, seed=config.seed)
        proposer.start_from_tokens(examples)
    else:
        proposer = load_proposer(loaded.model, start.path, config.adapter)
        if proposer.method is not config.method:
            raise CheckpointError(f"{config.warm_start} is a {proposer.method.value} adapter: set method to that")
    trainer = Trainer(BlockTask(proposer, examples, config), examples, config, config.batch, out)
    if not trainer.run(listener, stop):
        return None
    if config.method is Method.FULL:
        tokenizer = loaded.info.tokenizer
        tokenizer.mask_token = tokenizer.convert_ids_to_tokens(loaded.info.placeholder_id)
        export_checkpoint(loaded.model, tokenizer, out / CHECKPOINT, proposer)
        return out / CHECKPOINT
    base, token = base_record(source), config.model.placeholder
    export_adapter(proposer, out / ADAPTER, base, layers=loaded.layers, placeholder=token)
    return out / ADAPTER


def train_verifier(
    config: VerifierTraining,
    data: Sequence[Path],
    out: Path,
    progress: Progress = SILENT,
    listener: Listener | None = None,
    stop: Stop = lambda: False,
) -> Path | None:
    """AR fine-tuning on answers (paper appendix A), otherwise as `train_proposer`."""
    loaded, source, examples = _begin(config, data, out, progress)
    layers = loaded.layers if config.pick is None else _pick(loaded, examples, config.pick, progress)
    task = ArTask(loaded.model, config)
    if not Trainer(task, examples, config, config.batch, out).run(listener, stop):
        return None
    if config.method is Method.FULL:
        export_checkpoint(loaded.model, loaded.info.tokenizer, out / CHECKPOINT)
        return out / CHECKPOINT
    export_verifier(task, out / ADAPTER, base_record(source), layers)
    return out / ADAPTER


def _pick(loaded: LoadedModel, examples: Sequence[Example], count: int, progress: Progress) -> tuple[int, ...]:
    progress.stage("choosing layers")
    values = influences(loaded.model, examples[:: max(1, len(examples) // _PROBES)])
    if count > len(values):
        raise CheckpointError(f"checkpoint {loaded.info.name!r} has {len(values)} layers: it cannot keep {count}")
    layers = most_influential(values, count)
    pick_layers(loaded.model, layers)
    return layers


def _begin(
    config: Run, data: Sequence[Path], out: Path, progress: Progress, start: AdapterFolder | None = None
) -> tuple[LoadedModel, Source, list[Example]]:
    """The model with the layers that the adapter `start` was trained on, if it is to go on from one."""
    source = resolve(config.model.checkpoint, progress)
    if source.adapter is not None or config.model.adapter is not None:
        raise CheckpointError("training starts from a checkpoint without an adapter: name the base alone")
    layers = config.model.layers
    if start is not None:
        check_base(start, source)
        layers = wanted_layers(layers, start, describe(source).text.num_hidden_layers, source.name)
    progress.stage("reading the data")
    info = read_info(config.model, progress)
    text = DataTokenizer(info.tokenizer, info.eos_ids)
    examples = read_examples(data, vocabulary=info.vocab_size, text=text)
    _claim(config, data, out)  # once the data is known to be good: a folder is claimed for good
    model = config.model.model_copy(update={"layers": layers})
    return load(model, progress, attention="sdpa"), source, examples


def _claim(config: Run, data: Sequence[Path], out: Path) -> None:
    """Note in `out` what the run is, or check that it is the same. Raises CheckpointError, DataError."""
    settings = config.model_dump(mode="json", exclude=_MAY_CHANGE)
    wanted = {"kind": type(config).__name__, "settings": settings, "data": [_digest(path) for path in data]}
    path = out / SETTINGS
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        if found != wanted:
            raise CheckpointError(f"{out} holds a run with other {_difference(found, wanted)}: choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=2), encoding="utf-8")


def _difference(found: object, wanted: Mapping[str, object]) -> str:
    if not isinstance(found, dict):
        return "settings"
    return " and ".join(key for key, value in wanted.items() if found.get(key) != value) or "settings"


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
