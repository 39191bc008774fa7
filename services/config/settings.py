"""The whole application's configuration: one YAML file, checked before anything starts."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from prove_core.config import EngineConfig, Frozen, ModelConfig
from prove_core.decoding.gate_file import FILE, read_gate, weights_from
from prove_core.errors import DataError
from prove_core.model.builtin import BUILTINS
from prove_core.types import DecodingParams, Gate, GateWeights, Mode
from services.admission.settings import AdmissionSettings
from services.config.limits import RequestLimits
from services.config.observability import MetricsSettings, Observed
from services.config.yaml_config import SettingsError, explain, read_yaml, to_json
from services.scaling.settings import Autoscaling, ProposerAutoscaling, RouterAutoscaling, VerifierAutoscaling
from services.security.settings import SecuritySettings
from services.sessions.healing import Healing
from services.telemetry.settings import LoggingSettings, TracingSettings

__all__ = ["Settings", "SettingsError", "load_settings"]

MAX_PORT = 65535
CHECKPOINTS = {"proposer": "default-proposer", "verifier": "default-verifier"}  # of a role that names none
CHECKPOINT_PATH = ("engine", "model", "checkpoint")


class Resources(Frozen):
    """What one replica takes of the cluster, in Ray's terms. Its actor must fit the placement group's first bundle."""

    num_cpus: float = Field(default=1.0, ge=0)
    num_gpus: float = Field(default=0.0, ge=0)
    placement_group_bundles: list[dict[str, float]] | None = Field(default=None, min_length=1)
    placement_group_strategy: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "STRICT_PACK"

    @model_validator(mode="after")
    def _fits_first_bundle(self) -> Self:
        first = self.placement_group_bundles[0] if self.placement_group_bundles else None
        if first is not None and (self.num_cpus > first.get("CPU", 0) or self.num_gpus > first.get("GPU", 0)):
            raise ValueError(f"num_cpus and num_gpus must fit the first bundle {first}")
        return self

    @property
    def bundle(self) -> dict[str, float]:
        """What the replica's own process takes, as a bundle."""
        taken = {"CPU": self.num_cpus, "GPU": self.num_gpus}
        return {name: amount for name, amount in taken.items() if amount > 0}


class Deployment(Frozen):
    """What every role's deployment has."""

    replicas: int = Field(default=1, ge=1)
    autoscaling: Autoscaling | None = None
    resources: Resources = Resources()
    max_ongoing_requests: int = Field(default=256, ge=1, description="Requests (or sessions) at once per replica.")
    drain_s: float = Field(
        default=20.0,
        ge=0,
        description="A replica that must go has so long to finish what it has. Sessions then move; a Router's end.",
    )

    @model_validator(mode="after")
    def _one_way_to_count(self) -> Self:
        if self.autoscaling is not None and "replicas" in self.model_fields_set:
            raise ValueError("replicas and autoscaling exclude each other")
        return self

    @property
    def bundles(self) -> list[dict[str, float]] | None:
        """The placement group of one replica; None: a single process that needs none."""
        return self.resources.placement_group_bundles

    @property
    def cpus(self) -> float:
        """CPUs that all replicas ask for at least."""
        each = self.bundles or [self.resources.bundle]
        return self.replicas * sum(bundle.get("CPU", 0) for bundle in each)


class RouterSettings(Deployment):
    """The ingress: HTTP, text, and the two-model cycle."""

    resources: Resources = Resources(num_cpus=0.0)
    max_ongoing_requests: int = Field(default=1024, ge=1)
    autoscaling: RouterAutoscaling | None = None


class ModelSettings(Deployment):
    """A role with a model: the proposer or the verifier."""

    tensor_parallel: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes (`ranks`) that share out each replica's model, one per bundle of its placement group;"
        " without `placement_group_bundles` each takes num_cpus and num_gpus.",
    )
    memory_fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of a GPU that each replica's process keeps to, and that a pool of size `auto` fills;"
        " null: no limit, and 0.9 of a GPU or 0.25 of the main memory for the pool.",
    )
    engine: EngineConfig

    @model_validator(mode="after")
    def _a_bundle_per_rank(self) -> Self:
        given = self.resources.placement_group_bundles
        if self.tensor_parallel > 1 and given is not None and len(given) != self.tensor_parallel:
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} needs as many placement_group_bundles, not {len(given)}"
            )
        if self.tensor_parallel > 1 and given is None and not self.resources.bundle:
            raise ValueError(f"tensor_parallel {self.tensor_parallel} needs num_cpus or num_gpus to place its ranks by")
        return self

    @property
    def bundles(self) -> list[dict[str, float]] | None:
        """A bundle per rank."""
        if self.resources.placement_group_bundles is None and self.tensor_parallel > 1:
            return [self.resources.bundle] * self.tensor_parallel
        return self.resources.placement_group_bundles


class ProposerSettings(ModelSettings):
    """The role that proposes blocks."""

    autoscaling: ProposerAutoscaling | None = None


class VerifierSettings(ModelSettings):
    """The role that reads them."""

    autoscaling: VerifierAutoscaling | None = None


def _gate_weights(value: object) -> object:
    """A file is read once, here: to other processes and nodes the weights travel as numbers."""
    if value is None or isinstance(value, GateWeights):
        return value
    try:
        return read_gate(Path(value).expanduser()) if isinstance(value, str) else weights_from(value)
    except DataError as error:
        raise ValueError(str(error)) from error


class Decoding(Frozen):
    """What a request gets that does not say how it wants to be decoded."""

    mode: Mode = Mode.AUTO
    gate: Gate = Gate.PRODUCT
    theta: float = Field(default=0.01, ge=0, le=1)
    tau: float = Field(default=0.9, ge=0, le=1)
    block_size: int = Field(default=8, ge=1, le=64)
    draft_length: int = Field(default=4, ge=1, le=32)
    fused_rows: int = Field(default=16, ge=1, le=128, description="Mode fused: rows of a pass, placeholders included.")
    overlap_rows: int = Field(
        default=0, ge=0, le=96, description="Mode prove: rows the proposer runs while the verifier reads; 0: it waits."
    )
    gate_weights: Annotated[GateWeights | None, BeforeValidator(_gate_weights)] = Field(
        default=None,
        description="Gate `logistic`: the file of its fit, or the weights; default: those that come with the pair.",
    )

    def params(self) -> DecodingParams:
        """As the engine takes it."""
        return DecodingParams(**dict(self))


def _engine(checkpoint: str) -> EngineConfig:
    return EngineConfig(model=ModelConfig(checkpoint=checkpoint))


class Settings(Frozen):
    """The application. Its defaults are `deploy/local.yaml`: the built-in pair on this machine's CPU."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=MAX_PORT, description="0: any free port.")
    model: str | None = Field(
        default=None, min_length=1, description="Served name; default: the proposer's checkpoint."
    )
    router: RouterSettings = RouterSettings()
    proposer: ProposerSettings = ProposerSettings(engine=_engine(CHECKPOINTS["proposer"]))
    verifier: VerifierSettings | None = Field(
        default=VerifierSettings(engine=_engine(CHECKPOINTS["verifier"])),
        description="null: no second model; modes `prove` and `speculative` are refused.",
    )
    decoding: Decoding = Decoding()
    limits: RequestLimits = RequestLimits()
    admission: AdmissionSettings = AdmissionSettings()
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
    tracing: TracingSettings = TracingSettings()
    healing: Healing = Healing()
    security: SecuritySettings = SecuritySettings()

    @model_validator(mode="after")
    def _default_mode_is_served(self) -> Self:
        if self.verifier is None and self.decoding.mode in (Mode.PROVE, Mode.SPECULATIVE):
            raise ValueError(f"decoding.mode {self.decoding.mode.value} needs a verifier")
        return self

    @model_validator(mode="after")
    def _default_gate_has_weights(self) -> Self:
        if self.decoding.gate is Gate.LOGISTIC and self.params().gate_weights is None:
            raise ValueError("decoding.gate logistic needs decoding.gate_weights: the file of a fit")
        return self

    def params(self) -> DecodingParams:
        """How a request is decoded that does not say; the built-in pair brings the weights of its own gate.

        Raises `DataError` when those cannot be read.
        """
        params = self.decoding.params()
        return params if params.gate_weights is not None else replace(params, gate_weights=self._shipped_weights())

    def _shipped_weights(self) -> GateWeights | None:
        models = [role.engine.model for role in (self.proposer, self.verifier) if role is not None]
        if [model.checkpoint for model in models] != [CHECKPOINTS["proposer"], CHECKPOINTS["verifier"]]:
            return None
        folder = BUILTINS[CHECKPOINTS["verifier"]].adapter
        if folder is None or any((model.adapter, model.layers) != (None, None) for model in models):
            return None
        return read_gate(folder / FILE) if (folder / FILE).is_file() else None

    @property
    def served_name(self) -> str:
        """The model's name in the API."""
        return self.model or self.proposer.engine.model.checkpoint

    @property
    def observed(self) -> Observed:
        """What every replica must know to tell about itself."""
        return Observed(model=self.served_name, metrics=self.metrics, logging=self.logging)


def load_settings(path: Path) -> Settings:
    """Read the file. Raises `SettingsError`: one line with the file, the key, and what is allowed there."""
    return parse_settings(read_yaml(path), str(path))


def parse_settings(data: Any, origin: str) -> Settings:
    """Settings from plain data (no data: the defaults); `origin` names it in errors. Raises `SettingsError`."""
    filled = _with_checkpoints({} if data is None else data)
    try:
        return Settings.model_validate_json(to_json(filled), strict=True)
    except ValidationError as error:
        raise SettingsError(f"{origin}: {explain(error, Settings)}") from None


def _with_checkpoints(data: Any) -> Any:
    """The data with the default checkpoint in each role that is described without one."""
    if not isinstance(data, dict):
        return data
    described = {role: checkpoint for role, checkpoint in CHECKPOINTS.items() if role in data}
    return data | {role: _filled(data[role], CHECKPOINT_PATH, name) for role, name in described.items()}


def _filled(part: Any, path: tuple[str, ...], value: str) -> Any:
    """`part` with `value` at `path` unless there is one; what is not a mapping is left for validation to refuse."""
    if not isinstance(part, dict):
        return part
    key, *rest = path
    return {key: value, **part} if not rest else part | {key: _filled(part.get(key, {}), tuple(rest), value)}
