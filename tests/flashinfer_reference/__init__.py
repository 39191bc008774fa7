"""FlashInfer's API as far as it is used here, in plain torch: same signatures, same semantics, and no tolerance.

What the package would compute wrongly or refuse, this refuses. Written from the package's documentation and sources
(0.7.2); `test_flashinfer_signatures` compares the two where the package is installed.
"""

from tests.flashinfer_reference import activation, norm, sampling
from tests.flashinfer_reference.page import append_paged_kv_cache
from tests.flashinfer_reference.wrappers import (
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
)

__all__ = [
    "BatchDecodeWithPagedKVCacheWrapper",
    "BatchPrefillWithPagedKVCacheWrapper",
    "activation",
    "append_paged_kv_cache",
    "norm",
    "sampling",
]
