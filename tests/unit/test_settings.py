"""Settings come from the file, then the environment, then flags, and errors name the invalid value."""

from __future__ import annotations

import stat
from base64 import b64decode
from pathlib import Path

import pytest

from headrace.errors import ResourceError, SettingsError
from headrace.settings import read_settings, unknown_variables


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "PORT", "KEY", "CONFIG", "HOST"):
        monkeypatch.delenv(f"HEADRACE_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def test_flags_precede_the_environment_and_the_environment_precedes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headrace.toml").write_text("port = 1\nlookback = 1\nmaster = 'local[1]'\n")
    monkeypatch.setenv("HEADRACE_PORT", "2")
    monkeypatch.setenv("HEADRACE_LOOKBACK", "2")
    settings = read_settings(port=3, lookback=None)
    assert (settings.port, settings.lookback, settings.master) == (3, 2.0, "local[1]")


def test_spark_configuration_is_merged_from_file_environment_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "headrace.toml").write_text('[spark_conf]\n"spark.a" = "file"\n"spark.b" = "file"\n"spark.c" = "file"\n')
    monkeypatch.setenv("HEADRACE_SPARK_CONF", '{"spark.b": "environment", "spark.c": "environment"}')
    assert read_settings(spark_conf={"spark.c": "flag"}).spark_conf == {"spark.a": "file", "spark.b": "environment", "spark.c": "flag"}


def test_defaults_are_loopback_and_the_data_folder_of_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    settings = read_settings()
    assert settings.home == tmp_path / "data" / "headrace"
    assert settings.url == "http://127.0.0.1:8642"
    assert settings.database == f"sqlite:///{tmp_path}/data/headrace/headrace.db"


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("port = 'many'", "Setting 'port' cannot be used"),
        ("prot = 1", "The setting 'prot' is unknown. Do you mean 'port'"),
        ("port = ", "not valid TOML"),
        ("host = '0.0.0.0'", "deployment key is required"),
        ("lookback = 0", "Setting 'lookback' cannot be used"),
        ("lookback = true", "Setting 'lookback' cannot be used: true is not a number"),
        ("port = false", "Setting 'port' cannot be used: false is not a number"),
        ("lookback = inf", "Setting 'lookback' cannot be used"),
        ("lookback = nan", "Setting 'lookback' cannot be used"),
        ("retry_wait = 1e300", "Setting 'retry_wait' cannot be used"),
        ("retention_days = 1e300", "Setting 'retention_days' cannot be used"),
    ],
)
def test_an_invalid_setting_is_named(tmp_path: Path, toml: str, message: str) -> None:
    (tmp_path / "headrace.toml").write_text(toml)
    with pytest.raises(SettingsError, match=message):
        read_settings()


def test_a_named_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONFIG", "nowhere.toml")
    with pytest.raises(SettingsError, match=r"nowhere\.toml, which is not a file"):
        read_settings()


def test_the_key_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    first = read_settings(home=tmp_path / "home").with_key()
    assert first.key == read_settings(home=tmp_path / "home").with_key().key
    assert len(first.key) >= 32
    assert stat.S_IMODE((tmp_path / "home" / "key").stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["key"]


def test_the_encryption_key_is_separate_and_stored_like_the_key(tmp_path: Path) -> None:
    settings = read_settings(home=tmp_path / "home").with_key().with_fernet_keys()
    assert settings.keys == read_settings(home=tmp_path / "home").with_fernet_keys().keys
    assert len(b64decode(settings.keys[0], altchars="-_")) == 32
    assert settings.keys[0] != settings.key
    assert stat.S_IMODE((tmp_path / "home" / "fernet-key").stat().st_mode) == 0o600


def test_the_repr_of_settings_contains_no_keys(tmp_path: Path) -> None:
    shown = repr(read_settings(home=tmp_path, key="the-key", fernet_keys="the-fernet-key", token="the-token"))
    assert "the-" not in shown


def test_a_configured_key_is_not_stored(tmp_path: Path) -> None:
    assert read_settings(home=tmp_path, key="given").with_key().key == "given"
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResourceError, match="Cannot store a key in"):
        read_settings(home=tmp_path / "file").with_key()


def test_an_ipv6_address_makes_a_valid_url() -> None:
    assert read_settings(host="::1").url == "http://[::1]:8642"


@pytest.mark.parametrize("given", ["nonsense", "ftp://here", "http://", "http://here:99999", "http://here:port", "localhost:8642"])
def test_an_invalid_api_url_is_rejected(given: str) -> None:
    with pytest.raises(SettingsError, match="'api_url' cannot be used"):
        read_settings(api_url=given)


def test_an_api_url_can_have_a_path() -> None:
    assert read_settings(api_url="https://here.example/headrace/").url == "https://here.example/headrace"


def test_an_unknown_setting_is_reported_with_the_nearest_and_all_settings(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("lookbak = 5\n")
    with pytest.raises(SettingsError, match=r"The setting 'lookbak' is unknown. Do you mean 'lookback'\?") as refused:
        read_settings()
    assert "database_url" in (refused.value.hint or "")
    (tmp_path / "headrace.toml").write_text("nothing_like_it = 5\n")
    with pytest.raises(SettingsError, match=r"The setting 'nothing_like_it' is unknown.$"):
        read_settings()


@pytest.mark.parametrize("name", ["HEADRACE_LOKBACK", "HEADRACE_API_ULR", "HEADRACE_DATABASE_URI", "HEADRACE_LOGLEVEL", "HEADRACE_TOKENS"])
def test_a_misspelled_environment_variable_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(SettingsError, match=rf"The variable {name} is unknown. Do you mean HEADRACE_") as refused:
        read_settings()
    assert "lookback" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "name", ["HEADRACE_SERVICE_HOST", "HEADRACE_PORT_8642_TCP", "HEADRACE_CONNECTION_X", "HEADRACE_VARIABLE_HOMES", "HEADRACE_TEST_SEED"]
)
def test_environment_variables_of_other_programs_and_of_secrets_are_accepted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    read_settings()


def test_environment_variables_without_effect_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "CAPACITY",
        "LOKBACK",
        "PORT",
        "LIFELINE",
        "API_SERVICE_HOST",
        "SERVICE_PORT_HTTP",
        "API_PORT_8642_TCP_ADDR",
        "VARIABLE_X",
    ):
        monkeypatch.setenv(f"HEADRACE_{name}", "3")
    assert unknown_variables() == ["HEADRACE_CAPACITY"], "one that is nearly ours is rejected, and the rest is ours or of Kubernetes"


@pytest.mark.parametrize("line", ["home = 5", "home = ''", "home = true", "home = ['a']", "project = 5", "log_dir = 1.5"])
def test_an_invalid_path_is_rejected(line: str, tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(line + "\n")
    with pytest.raises(SettingsError, match=r"Setting '\w+' cannot be used: .* is not a path"):
        read_settings()
