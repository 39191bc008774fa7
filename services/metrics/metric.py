"""One metric as it is declared: name, kind, labels, who exports it."""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "prove:"
CONSTANT_LABELS = ("role", "replica", "model")  # on every sample


class Kind(StrEnum):
    """Prometheus' types, as far as used here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Part(StrEnum):
    """The value of label `role`: which deployment exports a metric."""

    ROUTER = "router"
    PROPOSER = "proposer"
    VERIFIER = "verifier"


ROUTER = (Part.ROUTER,)
ENGINES = (Part.PROPOSER, Part.VERIFIER)

MILLISECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05),
    *(0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)  # seconds: a pass on a card to a prompt that waited
PHASES = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)  # seconds: a decision to a long pass
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
COUNTS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64)
ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Metric:
    """`labels` come beside the constant ones; `buckets` are upper bounds, of histograms alone."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    parts: tuple[Part, ...]
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        """All labels of a sample but a bucket's `le`."""
        return (*CONSTANT_LABELS, *self.labels)

    @property
    def samples(self) -> tuple[str, ...]:
        """Names of its time series."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{suffix}" for suffix in ("bucket", "sum", "count"))
        return (self.name,)


def counter(name: str, parts: tuple[Part, ...], help: str, *labels: str) -> Metric:
    """A counter; `name` without the prefix, and it ends in `_total`."""
    return Metric(PREFIX + name, Kind.COUNTER, help, labels, parts)


def gauge(name: str, parts: tuple[Part, ...], help: str, *labels: str) -> Metric:
    """A gauge; `name` without the prefix."""
    return Metric(PREFIX + name, Kind.GAUGE, help, labels, parts)


def histogram(name: str, parts: tuple[Part, ...], buckets: tuple[float, ...], help: str, *labels: str) -> Metric:
    """A histogram; `name` without the prefix."""
    return Metric(PREFIX + name, Kind.HISTOGRAM, help, labels, parts, buckets)
