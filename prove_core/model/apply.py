"""Putting an adapter on a model: merged into the weights (ungated), or beside them for placeholder rows (gated)."""

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from prove_core.errors import CheckpointError
from prove_core.model.adapters import PREFIX, AdapterFolder, AdapterKind
from prove_core.model.quiet import quiet
from prove_core.model.rows import RowMask
from prove_core.model.source import one_line

_A, _B = ".lora_A.weight", ".lora_B.weight"
_RANK_STEP = 16


class GatedLinear(nn.Module):
    """y = base(x), and + scale * B(A x) on the rows that `rows` names: every other row is the base's, bit for bit.

    x is [..., in], its leading dimensions flattened to rows. A [rank, in] and B [out, rank] have the base's dtype;
    ranks are rounded up to what kernels like, with zeros.
    """

    def __init__(self, base: nn.Module, a: torch.Tensor, b: torch.Tensor, scale: float, rows: RowMask) -> None:
        super().__init__()
        self.base = base
        missing = -len(a) % _RANK_STEP
        self.lora_a = _linear(functional.pad(a, (0, 0, 0, missing)))
        self.lora_b = _linear(functional.pad(b, (0, missing)))
        self.scale = scale
        self.rows = rows

    @property
    def weight(self) -> torch.Tensor:
        """The base's weight: some models look at its dtype."""
        weight = self.base.weight
        assert isinstance(weight, torch.Tensor)
        return weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]."""
        y: torch.Tensor = self.base(x)
        rows = self.rows.placeholders
        if rows is None:
            return y
        change = self.lora_b(self.lora_a(x.reshape(-1, x.shape[-1])[rows]))
        flat = y.view(-1, y.shape[-1])
        if isinstance(rows, slice):
            flat[rows].add_(change, alpha=self.scale)
        else:
            flat.index_add_(0, rows, change, alpha=self.scale)
        return y


def _linear(weight: torch.Tensor) -> nn.Linear:
    """A real Linear, so that whatever treats a model's Linears (deterministic mode) treats the adapter's too."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def apply_adapter(
    model: PreTrainedModel, adapter: AdapterFolder, rows: RowMask
) -> tuple[PreTrainedModel, torch.Tensor | None]:
    """Put `adapter` on `model`, changing it in place; also answers the placeholder embeddings, on the model's device.

    Raises CheckpointError if it doesn't fit.
    """
    table = adapter.placeholder_table()
    if table is not None:
        hidden = model.get_input_embeddings().weight.shape[1]
        if table.shape[1] != hidden:
            raise _misfit(adapter, f"its placeholders have {table.shape[1]} dimensions, the model {hidden}")
        table = table.to(model.device, model.dtype)
    if adapter.kind is AdapterKind.UNGATED:
        return _merge(model, adapter), table
    _gate(model, adapter, rows)
    return model, table


def _merge(model: PreTrainedModel, adapter: AdapterFolder) -> PreTrainedModel:
    from peft import PeftModel  # noqa: PLC0415 - slow to import, and rarely needed

    _check_modules(model, adapter, adapter.tensors())
    try:
        with quiet():
            merged = PeftModel.from_pretrained(model, str(adapter.path), torch_device=str(model.device))
            return merged.merge_and_unload(safe_merge=True)
    except Exception as error:
        raise _misfit(adapter, one_line(error)) from error


def _gate(model: PreTrainedModel, adapter: AdapterFolder, rows: RowMask) -> None:
    settings = adapter.settings
    unsupported = {
        "DoRA": settings.use_dora,
        "trained biases": settings.bias != "none",
        "whole modules": bool(settings.modules_to_save),
        "ranks or alphas by module": bool(settings.rank_pattern or settings.alpha_pattern),
    }
    for feature, used in unsupported.items():
        if used:
            raise CheckpointError(f"gated adapter {adapter.path} has {feature}: plain LoRA matrices alone can be gated")
    tensors = adapter.tensors()
    for path in _check_modules(model, adapter, tensors):
        base = model.get_submodule(path)
        a, b = (tensors[PREFIX + path + end].to(model.device, model.dtype) for end in (_A, _B))
        parent, _, leaf = path.rpartition(".")
        setattr(model.get_submodule(parent), leaf, GatedLinear(base, a, b, settings.scale, rows))


def _check_modules(model: PreTrainedModel, adapter: AdapterFolder, tensors: dict[str, torch.Tensor]) -> list[str]:
    """Paths of the adapted modules, all present in the model with matrices of their size."""
    paths = [name.removeprefix(PREFIX).removesuffix(_A) for name in tensors if name.endswith(_A)]
    if not paths:
        raise _misfit(adapter, "it holds no LoRA matrices")
    modules = dict(model.named_modules())
    for path in paths:
        module = modules.get(path)
        if module is None:
            raise _misfit(adapter, f"the model has no module {path}")
        a, b = (tensors.get(PREFIX + path + end) for end in (_A, _B))
        weight = getattr(module, "weight", None)
        if a is None or b is None or weight is None or sorted((b.shape[0], a.shape[1])) != sorted(weight.shape):
            raise _misfit(adapter, f"its matrices for {path} are of another size")
    return paths


def _misfit(adapter: AdapterFolder, why: str) -> CheckpointError:
    return CheckpointError(
        f"adapter {adapter.path} does not fit this checkpoint: {why}; use the base it was trained on"
    )
