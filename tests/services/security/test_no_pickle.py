"""Nothing that comes over a wire or from a file is unpickled or evaluated: that would run a stranger's code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted(path for package in ("prove_core", "services") for path in (ROOT / package).rglob("*.py"))
MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
# torch.distributed's object collectives pickle; yaml's plain loaders make any object
CALLS = {
    *("eval", "exec", "unsafe_load", "full_load", "loads_pickle", "broadcast_object_list", "all_gather_object"),
    *("scatter_object_list", "gather_object", "send_object_list", "recv_object_list"),
}


def complaints(source: str) -> Iterator[str]:
    """What in a module could run code that somebody sent."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                yield from (name.name for name in names if name.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load"), keywords=keywords):
                if not any(word.arg == "weights_only" and _true(word.value) for word in keywords):
                    yield "torch.load without weights_only"
            case ast.Call(func=ast.Attribute(attr=name), keywords=keywords):
                if name in CALLS - {"eval", "exec"} or any(word.arg == "allow_pickle" for word in keywords):
                    yield name


def _true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_unpickles_or_evaluates(path: Path) -> None:
    assert list(complaints(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch.distributed as d\nd.broadcast_object_list([])",
        "torch.load('x')",
        "torch.load('x', weights_only=False)",
        "np.load('x', allow_pickle=True)",
        "eval('1')",
        "yaml.unsafe_load('x')",
    ],
)
def test_each_kind_is_found(source: str) -> None:
    assert list(complaints(source))
