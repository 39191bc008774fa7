"""The JSON that every benchmark writes, and facts about the machine it ran on."""

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Report:
    """One benchmark run. `ratios` and `figures` are flat; `samples` are what they were computed from."""

    name: str
    config: dict[str, Any]
    samples: dict[str, list[float]]
    figures: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())  # noqa: PLW0108  defined below

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def thread_settings() -> dict[str, Any]:
    """How many threads a CPU pass may take here, and how they wait for each other."""
    names = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    return {"threads": torch.get_num_threads()} | {name.lower(): os.environ.get(name) for name in names}


def describe_machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
