"""From configuration to a started engine."""

from dataclasses import dataclass

import torch

from prove_core.attention.base import LayerSpec
from prove_core.attention.choose import choose_attention
from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.config import EngineConfig
from prove_core.decoding.controller import Controller
from prove_core.engine.engine import Engine
from prove_core.engine.measure import measure_passes
from prove_core.engine.scheduler import widest
from prove_core.engine.sizing import limit_memory, sized
from prove_core.kv.storage import KVStorage
from prove_core.model.fuse import fuse_projections
from prove_core.model.graphs import CudaRecorder
from prove_core.model.info import CheckpointInfo
from prove_core.model.kernels import use_kernels
from prove_core.model.loader import LoadedModel, load, pick_device
from prove_core.model.native.choose import native_forward
from prove_core.model.native.forward import NativeForward
from prove_core.model.null import NullRunner
from prove_core.model.packed import pack_linears
from prove_core.model.parallel import LeadingRunner, follow
from prove_core.model.probe import probe
from prove_core.model.progress import SILENT, Progress
from prove_core.model.ranks import Ranks
from prove_core.model.runner import ModelRunner
from prove_core.model.shapes import PassKind, pass_shapes
from prove_core.model.threads import ThreadChoice, thread_choice
from prove_core.model.tiled import settle_cublas
from prove_core.model.window import Runner

NULL_CHECKPOINT = "null"  # no model at all: measures what everything but the passes costs
_NULL_VOCABULARY = 50_000
_RECORDED_ROWS = 256  # of the largest pass that is recorded: beyond it launching kernels no longer counts


@dataclass(frozen=True, slots=True)
class BuiltEngine:
    """A started engine and what its checkpoint says of itself (None for the null checkpoint)."""

    engine: Engine
    info: CheckpointInfo | None


def build_engine(
    config: EngineConfig,
    *,
    name: str,
    progress: Progress = SILENT,
    plans: bool = True,
    memory_fraction: float | None = None,
    ranks: Ranks | None = None,
) -> BuiltEngine:
    """Load the checkpoint, allocate the KV pool and start the engine thread.

    `plans`: measure passes first, for about a second, as mode `auto` needs; without, it decodes as `ar`.
    `memory_fraction`: the share of its device's memory that a GPU engine must keep to, and that a pool of size `auto`
    fills. `ranks`: lead these, of which all others are in `follow_engine` with the same configuration. Raises
    CheckpointError, UnsupportedModel or TooLittleMemory, in one line, for what cannot be served.
    """
    if config.model.checkpoint == NULL_CHECKPOINT:
        return BuiltEngine(_started(Engine(_null_runner(config), config, name=name)), None)
    config, loaded, own = _prepared(config, progress, memory_fraction, ranks)
    runner: Runner = own if ranks is None else LeadingRunner(own, ranks)
    most = widest(config.scheduler)
    controller = Controller(max_rows=most, proposes=False)
    if plans and loaded.info.placeholder_id is not None:
        progress.stage("measuring passes")
        cost = measure_passes(runner, config.cache.pages, config.cache.page_size)
        controller = Controller(cost, loaded.info.calibration, max_rows=most)
    return BuiltEngine(_started(Engine(runner, config, name=name, controller=controller)), loaded.info)


def follow_engine(config: EngineConfig, ranks: Ranks, *, memory_fraction: float | None = None) -> None:
    """Load this rank's share and take part in the passes of the engine that rank 0 builds, until it closes.

    Raises as `build_engine`, and RuntimeError when rank 0 is gone.
    """
    _, _, runner = _prepared(config, SILENT, memory_fraction, ranks)
    follow(runner, ranks)


def _prepared(
    config: EngineConfig, progress: Progress, memory_fraction: float | None, ranks: Ranks | None
) -> tuple[EngineConfig, LoadedModel, ModelRunner]:
    """The loaded model in its runner, and the configuration with nothing left open."""
    if config.model.threads is not None:
        torch.set_num_threads(config.model.threads)
    limit_memory(pick_device(config.model.device), memory_fraction)
    if config.model.deterministic:
        settle_cublas()
    loaded = load(config.model, progress, ranks=ranks)
    config = sized(config, loaded, memory_fraction, ranks)
    if ranks is not None:
        config = _of_ranks(config)
    return config, loaded, model_runner(config, loaded, progress)


def _of_ranks(config: EngineConfig) -> EngineConfig:
    """Without what knows nothing of ranks: compiled passes, and recorded ones, of which each rank may lack others."""
    kernels = "torch" if config.model.kernels == "auto" else config.model.kernels
    return config.model_copy(
        update={"model": config.model.model_copy(update={"kernels": kernels}), "cuda_graphs": "off"}
    )


def _started(engine: Engine) -> Engine:
    engine.start()
    return engine


def model_runner(config: EngineConfig, loaded: LoadedModel, progress: Progress = SILENT) -> ModelRunner:
    """The runner of an engine over a loaded model, which it changes in place, with a KV storage of its own."""
    specs = probe(loaded.model)
    fuse_projections(loaded.model)
    storage = _storage(config, specs, loaded.model.dtype, loaded.model.device)
    deterministic = config.model.deterministic
    native = native_forward(loaded.model, specs, storage, loaded.rows, config.model.kernels)
    if native is None:
        pack_linears(loaded.model)
    backend = native or choose_attention(config.attention, storage, specs, deterministic=deterministic)
    flashinfer = backend.flashinfer if isinstance(backend, FlashInferAttention) and not deterministic else None
    if flashinfer is not None:
        use_kernels(loaded.model, flashinfer)
    runner = ModelRunner(
        loaded.model,
        specs,
        storage,
        backend,
        banned=loaded.info.banned_ids,
        placeholder_id=loaded.info.placeholder_id,
        placeholder_table=loaded.placeholder_table,
        rows=loaded.rows,
        sequential=loaded.sequential,
        recall=loaded.recall,
        deterministic=deterministic,
        threads=_threads(config, loaded, native),
    )
    if config.cuda_graphs == "auto" and flashinfer is not None:
        kinds = [PassKind.PLAIN] if loaded.info.placeholder_id is None else list(PassKind)
        shapes = pass_shapes(min(config.scheduler.max_rows, _RECORDED_ROWS), kinds, storage.pages)
        runner.record(shapes, CudaRecorder(), progress)
    return runner


def _threads(config: EngineConfig, loaded: LoadedModel, native: NativeForward | None) -> ThreadChoice | None:
    """None where their number is fixed: torch's kernels may split a sum by threads, and then its bits depend on it."""
    fixed = config.model.threads is not None or (config.model.deterministic and native is None)
    if fixed or loaded.model.device.type != "cpu":
        return None
    return thread_choice(torch.get_num_threads())


def _null_runner(config: EngineConfig) -> NullRunner:
    spec = LayerSpec(
        index=0, query_heads=1, kv_heads=1, head_dim=1, value_dim=1, scaling=1.0, window=None, softcap=None
    )
    storage = _storage(config, [spec], torch.float32, torch.device("cpu"))
    return NullRunner(storage, [spec], vocabulary=_NULL_VOCABULARY)


def _storage(config: EngineConfig, specs: list[LayerSpec], dtype: torch.dtype, device: torch.device) -> KVStorage:
    shapes = [spec.shape for spec in specs]
    return KVStorage(shapes, pages=config.cache.pages, page_size=config.cache.page_size, dtype=dtype, device=device)
