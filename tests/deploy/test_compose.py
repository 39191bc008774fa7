"""The compose files follow the compose specification, and what they mount and build exists."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

COMPOSE = Path(__file__).parents[2] / "deploy/compose"
FILES = ["compose.yaml", "gpu.yaml"]


def _read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((COMPOSE / name).read_text())
    return data


@pytest.mark.parametrize("name", FILES)
def test_it_follows_the_specification(name: str) -> None:
    PyCompose.from_yaml((COMPOSE / name).read_text())


def test_the_specification_refuses_a_misspelt_key() -> None:
    text = (COMPOSE / "compose.yaml").read_text()
    with pytest.raises(ValueError, match="stop_grace"):
        PyCompose.from_yaml(text.replace("stop_grace_period", "stop_grace"))


@pytest.mark.parametrize("name", FILES)
def test_what_it_builds_and_mounts_exists(name: str) -> None:
    data = _read(name)
    for service in data["services"].values():
        if build := service.get("build"):
            assert (COMPOSE / build["context"] / build["dockerfile"]).is_file()
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (COMPOSE / source).is_dir() if source.startswith(".") else source in (data["volumes"] | {"prove": 0})


def test_prometheus_scrapes_the_service_by_its_name_and_port() -> None:
    services = _read("compose.yaml")["services"]
    config = yaml.safe_load((COMPOSE / "../../dashboards/prometheus/prometheus.yml").read_text())
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "prove"]
    (url,) = [discovery["url"] for discovery in job["http_sd_configs"]]
    port = services["prove"]["ports"][0].split(":")[1]
    assert url == f"http://prove:{port}/metrics/targets"


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    services = _read("compose.yaml")["services"]
    provisioning = COMPOSE / "../../dashboards/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in services
    (provider,) = yaml.safe_load((provisioning / "dashboards/prove.yaml").read_text())["providers"]
    mounts = [mount.split(":")[1] for mount in services["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounts
    assert "/etc/grafana/provisioning" in mounts


def test_only_the_api_is_reachable_from_other_machines() -> None:
    services = _read("compose.yaml")["services"]
    published = {name: port for name, service in services.items() for port in service.get("ports", [])}
    assert {name for name, port in published.items() if not port.startswith("127.0.0.1:")} == {"prove"}
