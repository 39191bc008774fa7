"""What measured passes say: each against its floor, against its matrix products, and against an AR pass. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

from services.benchmarks.alternate import paired_ratio
from services.benchmarks.floors import MachineLimits, ModelSize, PassSize

BLOCK_SIZE = 8  # for which `placeholder_extra_ms` compares a proposing pass with one of as many tokens

Samples = Mapping[str, Sequence[float]]
Figures = dict[str, float]


def pass_figures(samples: Samples, size: ModelSize, limits: MachineLimits, passes: Mapping[str, PassSize]) -> Figures:
    """The machine's limits, the medians of `samples` (milliseconds), and the floors of `passes` by name."""
    figures = {
        "bandwidth_gb_per_s": limits.bandwidth / 1e9,
        "peak_gflops": limits.flops / 1e9,
        "weights_mb": (size.body + size.head) * size.width / 1e6,
    }
    figures |= {name: median(values) for name, values in samples.items()}
    figures |= {f"{name}_floor_ms": size.floor(limits, each) * 1e3 for name, each in passes.items()}
    proposing = figures.get(f"propose{BLOCK_SIZE}_pass_ms")
    if proposing is not None:
        figures["placeholder_extra_ms"] = proposing - figures[f"window{BLOCK_SIZE}_pass_ms"]
    return figures


def pass_ratios(samples: Samples, size: ModelSize, limits: MachineLimits, passes: Mapping[str, PassSize]) -> Figures:
    """Each of `passes`, `ar` among them, over its floor, and over its products and the AR pass of the same repeat."""
    ar = samples["ar_pass_ms"]
    reading = size.bytes_read(passes["ar"]) / limits.bandwidth * 1e3
    ratios = {"ar_over_bandwidth_floor": median(ar) / reading}
    for name, each in passes.items():
        own = samples[f"{name}_pass_ms"]
        ratios[f"{name}_over_floor"] = median(own) / (size.floor(limits, each) * 1e3)
        ratios[f"{name}_over_products"] = paired_ratio(own, samples[f"{name}_products_ms"])
        if name != "ar":
            ratios[f"{name}_over_ar"] = paired_ratio(own, ar)
    return ratios
