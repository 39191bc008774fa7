"""Prometheus' own checks of configuration and rules, and that each alert is tested, described and in the runbook."""

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from dashboards.generate import HERE

PROMETHEUS = HERE / "prometheus"
TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
RUNBOOK = HERE.parent / "docs/runbook.md"


def _alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def _promtool(*arguments: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    _promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_alerts_fire_when_they_should_and_only_then() -> None:
    _promtool("test", "rules", *map(str, TESTS))


@pytest.mark.parametrize("alert", _alerts())
def test_each_alert_is_tested_both_ways(alert: str) -> None:
    tests = [test for path in TESTS for test in yaml.safe_load(path.read_text())["tests"]]
    expected = [case["exp_alerts"] for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert]
    assert any(expected)
    assert [] in expected


@pytest.mark.parametrize("alert", _alerts())
def test_each_alert_says_how_urgent_it_is_and_where_help_is(alert: str) -> None:
    rule = _alerts()[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{alert.lower()}"
    assert re.search(rf"^### {alert}$", RUNBOOK.read_text(), re.MULTILINE)
