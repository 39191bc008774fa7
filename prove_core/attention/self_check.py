"""Trials of a backend's kernels at load, on random numbers: do they compute what they should on this machine?"""

from collections.abc import Sequence

import torch

from prove_core.attention.base import AttentionBackend, Batch, Gap, LayerSpec
from prove_core.errors import UnsupportedModel
from prove_core.kv.storage import KVStorage

_TOLERANCE = 0.05  # both ways round to 16 bits, scores included; what is wrong is wrong by more
_LONGEST = 5000  # keys: several pieces of a split sum
_OTHERS = 64  # rows beside those that are looked at

Rows = tuple[int, int]  # the first and how many, as places in a window


def check_values(
    backend: AttentionBackend, reference: AttentionBackend, storage: KVStorage, specs: Sequence[LayerSpec]
) -> None:
    """Compare chains, trees and single rows with another backend. Raises UnsupportedModel with the layer."""
    longest = min(40, storage.pages * storage.page_size)
    rows = min(6, longest)
    chain = _batch(storage, [(longest - rows, rows)])
    gaps = (Gap(rows - 1, 1, longest - 2, longest - 1),) if rows > 2 else ()
    tree = Batch(chain.qo_indptr, chain.kv_indptr, chain.kv_indices, chain.kv_last_page_len, chain.slots, gaps)
    for batch in (chain, tree, _batch(storage, [(longest - 1, 1)])):
        for spec in specs:
            inputs = _inputs(spec, storage, len(batch.slots))
            found, expected = (_attend(each, batch, spec, inputs) for each in (backend, reference))
            if not torch.allclose(found.float(), expected.float(), rtol=_TOLERANCE, atol=_TOLERANCE):
                worst = (found - expected).abs().max().item()
                raise UnsupportedModel(
                    f"{type(backend).__name__} computes layer {spec.index} otherwise than torch, by up to {worst:.3g}"
                )


def check_rows_alone(backend: AttentionBackend, storage: KVStorage, specs: Sequence[LayerSpec]) -> None:
    """Rows of a window must get the same bits together, one by one, and beside another window.

    Raises UnsupportedModel.
    """
    longest = min(_LONGEST, max(1, storage.pages // 2) * storage.page_size)
    rows = min(4, longest)
    start = longest - rows
    together = _batch(storage, [(start, rows)])
    half = max(1, longest // 2)
    other = [(max(0, half - _OTHERS), min(half, _OTHERS))] if storage.pages > 1 else []
    mixed = _batch(storage, [(start, rows), *other])
    for spec in specs:
        for keys in storage.layers[spec.index]:
            part = keys[: longest // storage.page_size + 2]
            part.copy_(_random(part.shape, storage, seed=1))
        q, k, v = _inputs(spec, storage, len(mixed.slots))
        own = (q[:rows], k[:rows], v[:rows])
        base = _attend(backend, together, spec, own)
        beside = _attend(backend, mixed, spec, (q, k, v))[:rows]
        single = [
            _attend(backend, _batch(storage, [(start + i, 1)]), spec, (q[i : i + 1], k[i : i + 1], v[i : i + 1]))
            for i in range(rows)
        ]
        if not (torch.equal(beside, base) and torch.equal(torch.cat(single), base)):
            raise UnsupportedModel(
                f"deterministic: on this machine the attention of a row of layer {spec.index} depends on other rows"
            )


def _attend(
    backend: AttentionBackend, batch: Batch, spec: LayerSpec, inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    backend.plan(batch)
    return backend.attend(spec, *inputs)


def _batch(storage: KVStorage, windows: Sequence[Rows]) -> Batch:
    """Windows on pages of their own, from the storage's first one."""
    size = storage.page_size
    qo, pages = [0], [0]
    last: list[int] = []
    slots: list[int] = []
    for start, count in windows:
        first, end = pages[-1], start + count
        qo.append(qo[-1] + count)
        pages.append(first - (-end // size))
        last.append((end - 1) % size + 1)
        slots.extend(range(first * size + start, first * size + end))
    rows, tables, indices, lasts = (
        torch.tensor(values, dtype=torch.int32) for values in (qo, pages, range(pages[-1]), last)
    )
    return Batch(rows, tables, indices, lasts, torch.tensor(slots, device=storage.device))


def _inputs(spec: LayerSpec, storage: KVStorage, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = _random((rows, spec.query_heads, spec.head_dim), storage, seed=2)
    k = _random((rows, spec.kv_heads, spec.head_dim), storage, seed=3)
    return q, k, _random((rows, spec.kv_heads, spec.value_dim), storage, seed=4)


def _random(shape: Sequence[int], storage: KVStorage, *, seed: int) -> torch.Tensor:
    generator = torch.Generator(storage.device).manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator, device=storage.device, dtype=torch.float32).to(storage.dtype)
