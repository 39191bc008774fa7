"""What runs of several ways to decode say: rates, tokens and time of a pass, and ratios of rates. Pure.

A rate is total tokens over total seconds in flight. A figure is the median over the repeats, a ratio the median of the
ratios within each repeat. Passes are counted as a completion sees them: those it took part in, of either model.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from prove_core.types import DecodingParams, Mode
from services.benchmarks.agreement import Agreement
from services.benchmarks.alternate import paired_ratio
from services.benchmarks.decoding import Decoded

AR = "ar"
AUTO = "auto"
PEER = "transformers"
INEXACT = frozenset({Mode.PROVE, Mode.MARS})  # their output may be another than that of `ar`

Settings = Mapping[str, DecodingParams]
"""Ways of decoding by name; `ar` is one of them."""

Runs = Mapping[str, Sequence[Decoded]]
"""At one number of requests in flight: by name of the setting, or `PEER`, a result a repeat."""


def run_samples(runs: Runs, concurrency: int) -> dict[str, list[float]]:
    """Tokens per second and per pass, and milliseconds per pass, of every repeat; the peer's passes are unknown."""
    samples: dict[str, list[float]] = {}
    for name, repeats in runs.items():
        start = f"{name}_c{concurrency}"
        samples[f"{start}_tokens_per_second"] = [each.rate for each in repeats]
        if name != PEER:
            samples[f"{start}_tokens_per_pass"] = [each.tokens / each.passes for each in repeats]
            samples[f"{start}_ms_per_pass"] = [each.cost.pass_seconds / each.passes * 1e3 for each in repeats]
    return samples


def agreement_figures(name: str, concurrency: int, agreement: Agreement) -> dict[str, float]:
    """Of a way that should give the output of `ar`: how many completions don't, and how many not by a near-tie."""
    start = f"{name}_c{concurrency}"
    return {
        f"{start}_completions": agreement.completions,
        f"{start}_different": agreement.different,
        f"{start}_different_beyond_near_ties": agreement.different - agreement.near_ties,
    }


def run_ratios(runs: Runs, settings: Settings, concurrency: int) -> dict[str, float]:
    """Rates over that of `ar`, of mode `auto` over the best fixed setting, and, one in flight, between kinds."""
    rates = {name: [each.rate for each in repeats] for name, repeats in runs.items()}
    others = [name for name in rates if name != AR]
    ratios = {f"{name}_vs_ar_c{concurrency}": paired_ratio(rates[name], rates[AR]) for name in others}
    best = best_settings(runs, settings)
    if AUTO in rates:
        ratios[f"{AUTO}_vs_best_fixed_c{concurrency}"] = paired_ratio(rates[AUTO], rates[best["fixed"]])
    if concurrency == 1:
        if "exact" in best:
            ratios["best_lossless_vs_ar"] = paired_ratio(rates[best["exact"]], rates[AR])
        if "lossless" in best and "fused" in best:
            ratios["fused_vs_lossless"] = paired_ratio(rates[best["fused"]], rates[best["lossless"]])
        if PEER in rates:
            ratios["ar_vs_transformers"] = paired_ratio(rates[AR], rates[PEER])
    return ratios


def best_settings(runs: Runs, settings: Settings) -> dict[str, str]:
    """The fastest settings by median rate: of `lossless`, of `fused`, of these and `ar` (fixed) or `auto` (exact)."""
    proposing = {Mode.LOSSLESS, Mode.FUSED}
    kinds = {
        "lossless": {Mode.LOSSLESS},
        "fused": {Mode.FUSED},
        "fixed": proposing | {Mode.AR},
        "exact": proposing | {Mode.AUTO},
    }
    chosen = {
        kind: [name for name in runs if name in settings and settings[name].mode in modes]
        for kind, modes in kinds.items()
    }
    return {kind: _fastest(runs, names) for kind, names in chosen.items() if names}


def _fastest(runs: Runs, names: Iterable[str]) -> str:
    return max(names, key=lambda name: median(each.rate for each in runs[name]))
