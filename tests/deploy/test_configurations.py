"""Every configuration under deploy/ is one that the server takes."""

from pathlib import Path

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from services.config.settings import load_settings, parse_settings

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVE = DEPLOY / "serve.yaml"
SETTINGS = sorted(path for path in DEPLOY.glob("*.yaml") if path != SERVE)


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_settings_files_are_valid(path: Path) -> None:
    load_settings(path)


def test_the_file_for_serve_deploy_has_valid_settings_in_it() -> None:
    (application,) = ServeDeploySchema.model_validate(yaml.safe_load(SERVE.read_text())).applications
    parse_settings(application.args, str(SERVE))


def test_every_file_is_described() -> None:
    described = (DEPLOY / "README.md").read_text()
    files = [path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file() and path.name != "README.md"]
    assert [str(name) for name in files if str(name) not in described] == []
