"""Settings, read once: a `headrace.toml`, then the environment (`HEADRACE_…`), then flags; each wins over the one before."""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from headrace.errors import ResourceError, SettingsError
from headrace.run_files import API, STANDALONE, read_run_file

CONFIG_FILE = "headrace.toml"
_VARIABLES = ("config", "lifeline", "registration", "replaces", "runner_files")
_OWN_PREFIXES = ("HEADRACE_CONNECTION_", "HEADRACE_VARIABLE_", "HEADRACE_TEST_")
_ALIKE = 0.75  # of 1: how alike an unknown name and a valid one are for the valid one to be meant
MAX_DAYS = 36_525.0
MAX_SECONDS = MAX_DAYS * 86_400  # a century, so that moments in microseconds fit in 64 bits
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def default_home() -> Path:
    """Return where Headrace keeps its state when nothing else is said: the XDG data folder."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(data) / "headrace"


class Settings(BaseSettings):
    """All that can be set. Frozen; make one with `read_settings`."""

    model_config = SettingsConfigDict(env_prefix="HEADRACE_", frozen=True, extra="forbid", env_ignore_empty=True, allow_inf_nan=False)

    home: Path = Field(default_factory=default_home, description="folder for the database, logs and tables; scratch for Spark")
    tables: Path | None = Field(default=None, description="folder of pipelines' tables, shared by all hosts; default: in `home`")
    database_url: str = Field(default="", description="SQLAlchemy URL; default: a SQLite file in `home`")
    host: str = Field(default="127.0.0.1", description="address the api listens on")
    port: int = Field(default=8642, ge=0, le=65535, description="port the api listens on; 0: any free one")
    api_url: str = Field(default="", description="where the api is; default: `host` and `port`")
    key: str = Field(default="", repr=False, description="the deployment key; default: made once and kept in `home`")
    fernet_keys: str = Field(
        default="",
        repr=False,
        description="comma-separated encryption keys; the first one encrypts; default: one generated once, in `home`",
    )
    token: str = Field(default="", repr=False, description="a person's token, where looking or changing needs one")
    allowed_hosts: str = Field(default="", description="names by which the api may be called, by commas; a loopback's own are always")
    allowed_modules: str = Field(default="", description="modules that triggers may come from besides the project's own, by commas")
    project: Path = Field(default=Path("project.py"), description="the project file")
    master: str = Field(default="local[*]", description="Spark master, as spark-submit takes it")
    spark_conf: dict[str, str] = Field(default_factory=dict, repr=False, description="configuration of Spark; wins over Headrace's own")
    lookback: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(default=900.0, description="seconds to wait for a leader")
    ack_timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=300.0, description="seconds in which a trigger must answer a raw event"
    )
    advance_timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=60.0, description="seconds in which an upstream must be advanced"
    )
    retry_wait: Annotated[float, Field(ge=0, le=MAX_SECONDS)] = Field(
        default=250.0,
        description="longest seconds before the last of five attempts at a raw event that a trigger fails on; each wait before is a fifth",
    )
    api_timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=30.0, description="seconds in which the api must answer a triggerer"
    )
    job_timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=30.0, description="seconds without a heartbeat after which a job is dead"
    )
    capacity: Annotated[int, Field(gt=0)] = Field(default=20_000, description="how many triggers a triggerer takes")
    queues: str = Field(default="default", description="the queues whose triggers a triggerer takes, by commas")
    stuck_timeout: Annotated[float, Field(gt=0, le=MAX_SECONDS)] = Field(
        default=60.0, description="seconds for which a trigger may block its runner before that is ended and started again"
    )
    retention: Annotated[float, Field(ge=0, le=MAX_DAYS)] = Field(
        default=30.0,
        description="days for which events that all have read, ended jobs and task runs, reports and actions are retained; 0: without end",
    )
    task_slots: int = Field(default=4, ge=1, description="how many task runs a worker does at a time")
    webhook_private: bool = Field(default=False, description="webhooks may lead to addresses that are not public")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "text", "json"] = Field(default="auto", description="auto: text at a terminal, JSON lines elsewhere")
    log_store: Path | None = Field(default=None, description="folder of triggers' and runs' logs, shared by all hosts; default: in `home`")
    debug: bool = Field(default=False, description="show tracebacks")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.outside and not self.key:
            raise ValueError(f"host {self.host} can be reached from outside, so a deployment key is needed: set HEADRACE_KEY")
        return self

    @field_validator("home", "tables", "project", "log_store", mode="before")
    @classmethod
    def _a_path(cls, given: object) -> object:
        if isinstance(given, Path) or given is None or (isinstance(given, str) and given.strip()):
            return given
        raise ValueError(f"{given!r} is not a path, such as '.headrace'")

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_for_number(cls, given: object, info: ValidationInfo) -> object:
        if isinstance(given, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float):
            raise ValueError(f"{str(given).lower()} is not a number")
        return given

    @field_validator("api_url")
    @classmethod
    def _reachable(cls, given: str) -> str:
        if given:
            parts = urlsplit(given)  # whose port raises where it is none
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError(f"'{given}' is not the address of an api, like http://127.0.0.1:8642")
        return given

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags win over the environment, which wins over the file."""
        del dotenv_settings, file_secret_settings
        path = Path(os.environ.get("HEADRACE_CONFIG", CONFIG_FILE))
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.home.absolute() / 'headrace.db'}"

    @property
    def logs(self) -> Path:
        """The folder of the triggers' and runs' logs."""
        return self.log_store or self.home / "logs"

    @property
    def table_folder(self) -> Path:
        """The folder of pipelines' tables, absolute."""
        return (self.tables or self.home / "tables").absolute()

    @property
    def url(self) -> str:
        """Where clients find the api, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.api_url.rstrip("/") or f"http://{host}:{self.port}"

    def with_key(self) -> Self:
        """Return settings that have a deployment key: this one, or the one kept in `home` (made now if there is none)."""
        if self.key:
            return self
        return self.model_copy(update={"key": _kept_key(self.home / "key", "HEADRACE_KEY", _new_key)})

    def with_fernet_keys(self) -> Self:
        """Return settings that have keys for secrets: these, or the one kept in `home` (made now if there is none)."""
        if self.fernet_keys:
            return self
        return self.model_copy(update={"fernet_keys": _kept_key(self.home / "fernet-key", "HEADRACE_FERNET_KEYS", new_fernet_key)})

    @property
    def keys(self) -> list[str]:
        """The keys for secrets, the one that seals first."""
        return _listed(self.fernet_keys)

    @property
    def hosts(self) -> list[str]:
        """The names by which the api may be called."""
        return _listed(self.allowed_hosts)

    @property
    def modules(self) -> list[str]:
        """The modules that triggers may come from besides the project's own."""
        return _listed(self.allowed_modules)

    @property
    def outside(self) -> bool:
        """Whether the api can be reached from other machines."""
        return self.host not in LOOPBACK


def read_settings(**flags: object) -> Settings:
    """Read the settings; a flag that is None was not given.

    A command that takes an `api_url` and is given none is a client of the api that runs in `home`, where one does.

    Raises:
        SettingsError: A value does not parse, a name is unknown, or two settings contradict each other.
    """
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    named = os.environ.get("HEADRACE_CONFIG")
    if named and not Path(named).is_file():
        raise SettingsError(f"HEADRACE_CONFIG names {named}, which is not a file.", hint="Correct the variable or unset it.")
    _check_environment()
    try:
        settings = Settings(**given)
        return _with_running_api(settings) if "api_url" in flags else settings
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise _unknown(f"'{name}'", name, "The setting", lambda valid: f"'{valid}'") from error
        what = first["msg"].removeprefix("Value error, ")
        message = f"Setting '{name}' cannot be used: {what}." if name else f"The settings cannot be used: {what}."
        raise SettingsError(message, hint=f"It may come from {CONFIG_FILE}, a HEADRACE_… variable or a flag.") from error
    except ValueError as error:
        raise SettingsError(f"{CONFIG_FILE} is not valid TOML: {error}", hint="Correct the file.") from error


def _check_environment() -> None:
    """Refuse a variable that is nearly one of ours: it would be ignored. Other variables belong to others, such as a cluster."""
    valid = [*Settings.model_fields, *_VARIABLES]
    for variable in os.environ:
        name = variable.removeprefix("HEADRACE_").lower()
        if not variable.upper().startswith("HEADRACE_") or variable.startswith(_OWN_PREFIXES) or name in valid:
            continue
        if get_close_matches(name, valid, cutoff=_ALIKE):
            raise _unknown(variable, name, "The variable", lambda found: f"HEADRACE_{found.upper()}")


def _unknown(shown: str, name: str, what: str, spelled: Callable[[str], str]) -> SettingsError:
    """Return what says that there is no setting `name`, which is the nearest, and which there are."""
    near = get_close_matches(name, Settings.model_fields, n=1, cutoff=_ALIKE)
    meant = f" Do you mean {spelled(near[0])}?" if near else ""
    return SettingsError(f"{what} {shown} is unknown.{meant}", hint=f"There are: {', '.join(sorted(Settings.model_fields))}.")


def _with_running_api(settings: Settings) -> Settings:
    if settings.api_url:
        return settings
    for name in (API, STANDALONE):  # the api may be about to be started again
        record = read_run_file(settings.home / name)
        if record is not None and record.alive and isinstance(record.facts.get("url"), str):
            return settings.model_copy(update={"api_url": record.facts["url"]})
    return settings


def new_fernet_key() -> str:
    """Return a new key for secrets."""
    return urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _new_key() -> str:
    return secrets.token_urlsafe(32)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _kept_key(path: Path, variable: str, make: Callable[[], str]) -> str:
    """Return the key in `path`; make one first if there is none. Two processes that start together agree on one."""
    fresh = path.with_name(f".key-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(make())
            with suppress(FileExistsError):
                path.hardlink_to(fresh)  # unlike a rename, it never replaces the key that another process just made
            fresh.unlink()
        return path.read_text().strip()
    except OSError as error:
        raise ResourceError(
            f"Cannot keep a key in {path}: {error.strerror}.", hint=f"Check the folder's owner and free space, or set {variable}."
        ) from error
