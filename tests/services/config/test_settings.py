"""The configuration file: defaults, strictness, and errors that name the place."""

from pathlib import Path

import pytest
import yaml

from prove_core.decoding.gate_file import write_gate
from prove_core.model.builtin import BUILTINS, Builtin
from prove_core.types import DecodingParams, Gate, GateWeights
from services.config.settings import Settings, SettingsError, load_settings

WEIGHTS = GateWeights(0.5, 1.0, 2.0, 3.0)
LOCAL = Path(__file__).parents[3] / "deploy" / "local.yaml"


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "prove.yaml"
    path.write_text(text)
    return path


def _error(tmp_path: Path, text: str) -> str:
    path = _write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_the_deployed_file_is_the_default() -> None:
    assert load_settings(LOCAL) == Settings()


def test_the_deployed_file_shows_every_common_key() -> None:
    assert set(yaml.safe_load(LOCAL.read_text())) == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("text", "bundles", "cpus"),
    [
        ("{}", None, 1),
        ("{replicas: 3, resources: {num_cpus: 2}}", None, 6),
        ("{tensor_parallel: 2, resources: {num_cpus: 2, num_gpus: 1}}", [{"CPU": 2, "GPU": 1}] * 2, 4),
        ("{tensor_parallel: 2, resources: {num_cpus: 0, num_gpus: 1}}", [{"GPU": 1}] * 2, 0),
        (
            "{tensor_parallel: 2, replicas: 2, resources: {placement_group_bundles: [{CPU: 3}, {CPU: 1}]}}",
            [{"CPU": 3}, {"CPU": 1}],
            8,
        ),
    ],
)
def test_a_replica_has_a_bundle_per_rank(tmp_path: Path, text: str, bundles: object, cpus: float) -> None:
    proposer = load_settings(_write(tmp_path, f"proposer: {text}")).proposer
    assert proposer.bundles == bundles
    assert proposer.cpus == cpus
    assert proposer.resources.placement_group_strategy == "STRICT_PACK"


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert load_settings(_write(tmp_path, "# nothing\n")) == Settings()


def test_decoding_defaults_are_the_librarys() -> None:
    assert Settings().decoding.params() == DecodingParams()


def test_everything_can_be_set(tmp_path: Path) -> None:
    settings = load_settings(
        _write(
            tmp_path,
            """
host: 0.0.0.0
port: 0
model: mine
router: {replicas: 2}
proposer:
  autoscaling: {min: 1, max: 4}
  resources:
    num_gpus: 1
    num_cpus: 1
    placement_group_bundles: [{CPU: 1, GPU: 1}, {GPU: 1}]
    placement_group_strategy: STRICT_PACK
  engine: {model: {checkpoint: some/thing, dtype: float32}}
verifier: null
decoding: {mode: lossless, theta: 1}
""",
        )
    )
    assert settings.served_name == "mine"
    assert settings.verifier is None
    assert settings.proposer.autoscaling is not None
    assert settings.proposer.autoscaling.max == 4
    assert settings.decoding.params().theta == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot: 1", "prot: unknown key; allowed: host, port, model, router, proposer, verifier, decoding, limits"),
        (
            "proposer: {engine: {model: {checkpoint: a}, cache: {tokns: 4}}}",
            "proposer.engine.cache.tokns: unknown key; allowed: page_size, tokens, prefix_cache",
        ),
        (
            "verifier: {engine: {model: {checkpoint: a}, x: 4}}",
            "verifier.engine.x: unknown key; allowed: model, cache, scheduler",
        ),
        ("proposer: {engine: 7}", "proposer.engine: must be a mapping with keys among model, cache"),
        ("verifier: {engine: {model: null}}", "verifier.engine.model: must be a mapping with keys among checkpoint"),
        ("proposer: 7", "proposer: must be a mapping with keys among replicas"),
        ("[1, 2]", "must be a mapping with keys among host, port"),
        ('port: "8000"', "port: input should be a valid integer, got '8000'"),
        ("port: 8000.5", "port: input should be a valid integer"),
        ("port: true", "port: input should be a valid integer, got True"),
        ("port: 70000", "port: input should be less than or equal to 65535, got 70000"),
        (
            "decoding: {mode: fast}",
            "decoding.mode: input should be 'ar', 'mars', 'prove', 'lossless', 'fused', 'auto' or 'speculative'",
        ),
        ("decoding: {theta: .nan}", "decoding.theta: "),
        ("decoding: {theta: 2}", "decoding.theta: input should be less than or equal to 1, got 2"),
        ("verifier: null\ndecoding: {gate: logistic}", "decoding.gate logistic needs decoding.gate_weights"),
        ("decoding: {gate_weights: none.json}", "decoding.gate_weights: none.json: cannot be read: No such file"),
        ("decoding: {gate_weights: {bias: 1}}", "decoding.gate_weights: gate weights must be a mapping with exactly"),
        ("decoding: {gate_weights: 7}", "decoding.gate_weights: gate weights must be a mapping"),
        ("verifier: null\ndecoding: {mode: prove}", "decoding.mode prove needs a verifier"),
        ("router: {autoscaling: {min: 3, max: 2}}", "router.autoscaling: min (3) must not exceed max (2)"),
        ("router: {replicas: 2, autoscaling: {}}", "router: replicas and autoscaling exclude each other"),
        (
            "router: {resources: {num_gpus: 1, placement_group_bundles: [{CPU: 1}]}}",
            "router.resources: num_cpus and num_gpus must fit the first bundle {'CPU': 1.0}",
        ),
        (
            "proposer: {engine: {cache: {tokens: all}}}",
            "proposer.engine.cache.tokens: input should be a valid integer or input should be 'auto', got 'all'",
        ),
        (
            "verifier: {engine: {model: {layers: [0, -1]}}}",
            "verifier.engine.model.layers: input should be a valid integer",
        ),
        ("verifier: {memory_fraction: 1.5}", "verifier.memory_fraction: input should be less than or equal to 1"),
        (
            "proposer: {tensor_parallel: 2, resources: {num_cpus: 1, placement_group_bundles: [{CPU: 1}]}}",
            "proposer: tensor_parallel 2 needs as many placement_group_bundles, not 1",
        ),
        (
            "verifier: {tensor_parallel: 3, resources: {num_cpus: 0}}",
            "verifier: tensor_parallel 3 needs num_cpus or num_gpus to place its ranks by",
        ),
        ("port: 1\nport: 2", "not valid YAML: key 'port' is given twice"),
        ("a: [", "not valid YAML: "),
        ("prot: 1\nhots: 2", "prot: unknown key; allowed: host"),
    ],
)
def test_errors_name_the_key_and_what_is_allowed(tmp_path: Path, text: str, expected: str) -> None:
    assert _error(tmp_path, text).startswith(expected)


def test_further_errors_are_named(tmp_path: Path) -> None:
    text = "prot: 1\nhots: 2\ndecoding: {theta: 2}"
    assert _error(tmp_path, text).endswith(" (and 2 more: prot, hots)")


@pytest.mark.parametrize("role", ["proposer", "verifier"])
@pytest.mark.parametrize("part", ["{engine: {model: {deterministic: true}}}", "{replicas: 2}", "{engine: {cache: {}}}"])
def test_a_role_that_names_no_checkpoint_has_its_default(tmp_path: Path, role: str, part: str) -> None:
    settings = load_settings(_write(tmp_path, f"{role}: {part}"))
    defaults = Settings()
    for loaded, default in ((settings.proposer, defaults.proposer), (settings.verifier, defaults.verifier)):
        assert loaded is not None
        assert default is not None
        assert loaded.engine.model.checkpoint == default.engine.model.checkpoint


def test_a_named_checkpoint_stays(tmp_path: Path) -> None:
    settings = load_settings(_write(tmp_path, "proposer: {engine: {model: {checkpoint: mine}}}\nverifier: null"))
    assert settings.proposer.engine.model.checkpoint == "mine"
    assert settings.verifier is None


@pytest.mark.parametrize("text", ["", "port: 1", "proposer: {autoscaling: {min: 1, max: 4}}\nverifier: null"])
def test_settings_reach_other_processes_whole(tmp_path: Path, text: str) -> None:
    settings = load_settings(_write(tmp_path, text))
    assert Settings.model_validate_json(settings.model_dump_json(exclude_unset=True)) == settings
    assert Settings.model_validate(settings.model_dump(mode="json", exclude_unset=True)) == settings


def test_gate_weights_are_read_once_and_travel_as_numbers(tmp_path: Path) -> None:
    gate = tmp_path / "gate.json"
    write_gate(gate, WEIGHTS, {})
    settings = load_settings(_write(tmp_path, f"decoding: {{gate: logistic, gate_weights: {gate}}}"))
    gate.unlink()
    travelled = Settings.model_validate(settings.model_dump(mode="json", exclude_unset=True))
    assert travelled == settings == Settings.model_validate_json(settings.model_dump_json(exclude_unset=True))
    assert travelled.params() == DecodingParams(gate=Gate.LOGISTIC, gate_weights=WEIGHTS)


def test_gate_weights_may_be_written_out(tmp_path: Path) -> None:
    inline = "{bias: 0.5, log_confidence: 1, log_probability: 2, agrees: 3}"
    assert load_settings(_write(tmp_path, f"decoding: {{gate_weights: {inline}}}")).params().gate_weights == WEIGHTS


def test_the_built_in_pair_brings_its_gate_and_no_other_pair_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = BUILTINS["default-verifier"].stock
    shipped = Builtin("default-verifier", "", "", stock, tmp_path)
    monkeypatch.setitem(BUILTINS, "default-verifier", shipped)
    assert Settings().params().gate_weights is None, "no file yet"
    write_gate(tmp_path / "gate.json", WEIGHTS, {})
    assert load_settings(_write(tmp_path, "decoding: {gate: logistic}")).params().gate_weights == WEIGHTS
    for other in (
        "verifier: {engine: {model: {layers: 3}}}",
        "proposer: {engine: {model: {adapter: mine}}}",
        "proposer: {engine: {model: {checkpoint: mine}}}",
        "verifier: null",
    ):
        assert load_settings(_write(tmp_path, other)).params().gate_weights is None
    own = f"decoding: {{gate_weights: {tmp_path / 'own.json'}}}"
    write_gate(tmp_path / "own.json", GateWeights(1.0, 1.0, 1.0, 1.0), {})
    assert load_settings(_write(tmp_path, own)).params().gate_weights == GateWeights(1.0, 1.0, 1.0, 1.0)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none.yaml: cannot be read: No such file or directory"):
        load_settings(tmp_path / "none.yaml")
