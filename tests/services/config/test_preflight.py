"""KV pools are checked before anything starts."""

import logging
from pathlib import Path
from typing import Any

import pytest

from prove_core.errors import TooLittleMemory
from prove_core.types import Role
from services.config.preflight import check_sizes, configured_pools
from services.config.settings import parse_settings
from services.launch import launch
from tests.services.cli.chat_model import save_chat_model


def _role(tokens: int | str, **more: Any) -> dict[str, Any]:
    return {"engine": {"cache": {"tokens": tokens}}, **more}


def test_a_pool_too_small_for_the_context_is_refused_before_ray_starts(tmp_path: Path) -> None:
    model = {"checkpoint": str(save_chat_model(tmp_path / "model"))}
    data = {"port": 0, "proposer": {"engine": {"model": model, "cache": {"tokens": 127}}}, "verifier": None}
    with pytest.raises(TooLittleMemory, match=r"proposer: a KV pool of 127 tokens .* 128 tokens"):
        launch(parse_settings(data, "test"))


def test_only_pools_of_known_size_are_checked_before_the_weights_are_loaded() -> None:
    settings = parse_settings({"proposer": _role("auto"), "verifier": _role(1000)}, "test")
    assert configured_pools(settings) == {Role.VERIFIER: 1000}
    with pytest.raises(TooLittleMemory, match="verifier"):
        check_sizes(settings, 1001, configured_pools(settings))


def test_a_pool_that_will_starve_is_served_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = parse_settings({"proposer": _role("auto", max_ongoing_requests=8), "verifier": _role(8192)}, "test")
    with caplog.at_level(logging.WARNING):
        check_sizes(settings, 4096, {Role.PROPOSER: 8192, Role.VERIFIER: 8192})
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["verifier"]
    assert "max_ongoing_requests 256" in caplog.text


@pytest.mark.parametrize(("admission", "warned"), [({}, False), ({"max_queued_tokens": 4095}, True)])
def test_a_queue_shorter_than_the_context_is_warned_of(
    admission: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = parse_settings({"admission": admission}, "test")
    check_sizes(settings, 4096, {})
    assert ("max_queued_tokens (4095)" in caplog.text) is warned
