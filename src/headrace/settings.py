"""Read settings from `headrace.toml`, environment variables (`HEADRACE_…`) and flags. Later sources override earlier ones."""

from __future__ import annotations

import os
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from headrace.core.values.locations import TableLocation, parse_table_location
from headrace.errors import ResourceError, SettingsError, UpstreamError
from headrace.run_files import API, STANDALONE, read_run_file

CONFIG_FILE = "headrace.toml"
ENV_PREFIX: Final = "HEADRACE_"
_INTERNAL_VARIABLES = ("config", "lifeline", "registration", "replaces", "runner_files")
_OTHER_PREFIXES = ("HEADRACE_CONNECTION_", "HEADRACE_VARIABLE_", "HEADRACE_TEST_")
_SERVICE_LINK = re.compile(r"HEADRACE_(\w+_)?(SERVICE_(HOST|PORT\w*)|PORT(_\d+_(TCP|UDP|SCTP)\w*)?)")  # Kubernetes sets them for a service
_MIN_SIMILARITY = 0.75  # of an unknown name and a valid one, for the valid one to be proposed
MAX_DAYS = 36_525.0
MAX_SECONDS = MAX_DAYS * 86_400  # a century, so that times in microseconds fit in 64 bits
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

PROCESSES: Final = ("api", "triggerer", "pipeline", "worker", "receiver", "replay", "commands")
"""Readers of a setting. `headrace standalone` passes all settings to its processes; `commands` are all other commands."""

ALL: Final = PROCESSES
CLIENTS: Final = ("triggerer", "pipeline", "worker", "receiver", "replay", "commands")
PROJECT: Final = CLIENTS
SPARK: Final = ("pipeline", "worker", "replay")


def default_home() -> Path:
    """Return the default of `home`, in the XDG data folder."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path("~/.local/share").expanduser())
    return Path(data) / "headrace"


def _setting(default: object, description: str, read_by: tuple[str, ...], *, computed: str | None = None, **options: Any) -> Any:
    """Return a field with its default or the factory of it, and the processes that read it.

    `computed` describes a computed default in Markdown. `options` are those of `pydantic.Field`.
    """
    extra: dict[str, Any] = {"read_by": list(read_by)} | ({} if computed is None else {"default": computed})
    source: dict[str, Any] = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**source, description=description, json_schema_extra=extra, **options)


class Settings(BaseSettings):
    """All settings. Immutable; `read_settings` creates one."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", env_ignore_empty=True, allow_inf_nan=False)

    home: Path = _setting(
        default_home,
        "Folder of the database, logs and tables, and scratch space of Spark",
        ALL,
        computed="`$XDG_DATA_HOME/headrace`, or `~/.local/share/headrace`",
    )
    tables: str | None = _setting(
        None,
        "Folder of the tables of pipelines, shared by all hosts, or a folder of a bucket: `s3://bucket/folder` or `az://`, or "
        "with the id of its connection, `s3://CONNECTION@bucket/folder`",
        ("pipeline", "worker", "commands"),
        computed="`tables` in `home`",
    )
    database_url: str = _setting("", "SQLAlchemy URL of the database", ("api", "commands"), computed="a SQLite file in `home`")
    host: str = _setting("127.0.0.1", "Address on which the API server listens", ALL)
    port: int = _setting(8642, "Port on which the API server listens. 0 selects a free port", ALL, ge=0, le=65535)
    api_url: str = _setting("", "URL of the API server", CLIENTS, computed="the API server that runs in `home`, or `host` and `port`")
    key: str = _setting(
        "", "Deployment key. Required if `host` is not a loopback address", ALL, computed="generated once and stored in `home`", repr=False
    )
    fernet_keys: str = _setting(
        "",
        "Comma-separated keys that encrypt secrets. The first one encrypts, all of them decrypt",
        ("api",),
        computed="generated once and stored in `home`",
        repr=False,
    )
    token: str = _setting("", "API token, in place of the deployment key", ("commands",), repr=False)
    allowed_hosts: str = _setting(
        "", "Comma-separated host names under which the API server can be called, in addition to loopback names", ("api",)
    )
    allowed_modules: str = _setting(
        "", "Comma-separated modules from which triggers can be loaded, in addition to the modules of the project", PROJECT
    )
    project: Path = _setting(Path("project.py"), "Project file", PROJECT)
    master: str = _setting("local[*]", "Spark master URL, as for `spark-submit`", SPARK)
    spark_conf: dict[str, str] = _setting(
        dict, "Spark properties. They override the values that Headrace sets", SPARK, computed="`{}`", repr=False
    )
    lookback: float = _setting(900.0, "Seconds for which an event waits for its leader", ("pipeline",), gt=0, le=MAX_SECONDS)
    ack_timeout: float = _setting(300.0, "Seconds in which a trigger must answer a raw event", ("triggerer",), gt=0, le=MAX_SECONDS)
    advance_timeout: float = _setting(60.0, "Seconds in which an upstream must be advanced", ("triggerer",), gt=0, le=MAX_SECONDS)
    retry_wait: float = _setting(
        250.0,
        "Seconds before the last of five attempts at a raw event. Each earlier wait is a fifth of the next one",
        ("triggerer",),
        ge=0,
        le=MAX_SECONDS,
    )
    api_timeout: float = _setting(
        30.0, "Seconds in which the API server must answer a triggerer or receiver", ("triggerer", "receiver"), gt=0, le=MAX_SECONDS
    )
    job_timeout: float = _setting(30.0, "Seconds without a heartbeat after which a job is lost", ("api",), gt=0, le=MAX_SECONDS)
    receiver_host: str = _setting("127.0.0.1", "Address on which the receiver of HTTP requests listens", ("receiver",))
    receiver_port: int = _setting(
        8643, "Port on which the receiver of HTTP requests listens. 0 selects a free port", ("receiver",), ge=0, le=65535
    )
    max_triggers: int = _setting(20_000, "Maximum number of triggers of a triggerer", ("triggerer",), gt=0)
    queues: str = _setting("default", "Comma-separated queues whose triggers a triggerer runs", ("triggerer",))
    stuck_timeout: float = _setting(
        60.0, "Seconds for which a trigger can block its process before the process is restarted", ("triggerer",), gt=0, le=MAX_SECONDS
    )
    retention_days: float = _setting(
        30.0,
        "Days for which processed events, ended jobs, runs, reports and actions are retained. 0 retains them without limit",
        ("api",),
        ge=0,
        le=MAX_DAYS,
    )
    worker_concurrency: int = _setting(4, "Number of task runs that a worker executes at the same time", ("worker",), ge=1)
    webhook_allow_private: bool = _setting(False, "Allow webhooks to connect to addresses that are not public", ("api",))
    log_level: Literal["debug", "info", "warning", "error"] = _setting("info", "Least severe level that is logged", ALL)
    log_format: Literal["auto", "text", "json"] = _setting(
        "auto", "Format of the log on standard error. `auto` is text on a terminal and JSON lines otherwise", ALL
    )
    log_dir: Path | None = _setting(
        None,
        "Folder of the logs of triggers and runs, shared by all hosts",
        ("api", "triggerer", "pipeline", "worker"),
        computed="`logs` in `home`",
    )
    debug: bool = _setting(False, "Print tracebacks", ALL)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.outside and not self.key:
            raise ValueError(f"host {self.host} can be reached from other machines, so a deployment key is required: set HEADRACE_KEY")
        return self

    @field_validator("tables", mode="before")
    @classmethod
    def _check_tables(cls, value: object) -> object:
        if isinstance(value, str) and "://" in value:
            try:
                parse_table_location(value)
            except UpstreamError as error:
                raise ValueError(f"{str(error).rstrip('.')}. {str(error.hint).rstrip('.')}") from None  # the cause may have credentials
        return str(value) if isinstance(value, Path) else cls._check_path(value)

    @field_validator("home", "project", "log_dir", mode="before")
    @classmethod
    def _check_path(cls, value: object) -> object:
        if isinstance(value, Path) or value is None or (isinstance(value, str) and value.strip()):
            return value
        raise ValueError(f"{value!r} is not a path, such as '.headrace'")

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_for_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float):
            raise ValueError(f"{str(value).lower()} is not a number")
        return value

    @field_validator("api_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value:
            parts = urlsplit(value)  # its `port` raises ValueError for an invalid port
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
                raise ValueError(f"'{value}' is not the URL of an API server, such as http://127.0.0.1:8642")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: flags, environment, file."""
        del dotenv_settings, file_secret_settings
        path = Path(os.environ.get("HEADRACE_CONFIG", CONFIG_FILE))
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=path)

    @property
    def database(self) -> str:
        """The database's URL."""
        return self.database_url or f"sqlite:///{self.home.absolute() / 'headrace.db'}"

    @property
    def logs(self) -> Path:
        """The folder of the logs of triggers and runs."""
        return self.log_dir or self.home / "logs"

    @property
    def table_location(self) -> Path | TableLocation:
        """The absolute path of the folder of tables, or the folder of a bucket."""
        if self.tables is not None and "://" in self.tables:
            return parse_table_location(self.tables)
        return Path(self.tables or self.home / "tables").absolute()

    @property
    def url(self) -> str:
        """The URL of the API server for its clients, without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.api_url.rstrip("/") or f"http://{host}:{self.port}"

    def with_key(self) -> Self:
        """Return these settings with a deployment key. If `key` is not set, it is read from `home`, where it is generated once."""
        if self.key:
            return self
        return self.model_copy(update={"key": _stored_key(self.home / "key", "HEADRACE_KEY", _new_key)})

    def with_fernet_keys(self) -> Self:
        """Return these settings with encryption keys. If `fernet_keys` is not set, one is read from `home`, where it is generated once."""
        if self.fernet_keys:
            return self
        return self.model_copy(update={"fernet_keys": _stored_key(self.home / "fernet-key", "HEADRACE_FERNET_KEYS", new_fernet_key)})

    @property
    def keys(self) -> list[str]:
        """The encryption keys. The first one encrypts."""
        return _split(self.fernet_keys)

    @property
    def hosts(self) -> list[str]:
        """The host names of `allowed_hosts`."""
        return _split(self.allowed_hosts)

    @property
    def modules(self) -> list[str]:
        """The modules of `allowed_modules`."""
        return _split(self.allowed_modules)

    @property
    def queue_names(self) -> list[str]:
        """The names of `queues`."""
        return _split(self.queues)

    @property
    def outside(self) -> bool:
        """Whether the API server can be reached from other machines."""
        return self.host not in LOOPBACK


def read_settings(**flags: object) -> Settings:
    """Return the settings. A flag with the value None is not set.

    A command with the flag `api_url` is a client: if no URL is set, it calls the API server that runs in `home`, if there is one.

    Raises:
        SettingsError: A value is invalid, a name is unknown, or two settings contradict each other.
    """
    values: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    config = os.environ.get("HEADRACE_CONFIG")
    if config and not Path(config).is_file():
        raise SettingsError(f"HEADRACE_CONFIG names {config}, which is not a file.", hint="Correct the variable or unset it.")
    _check_environment()
    try:
        settings = Settings(**values)
        return _with_running_api(settings) if "api_url" in flags else settings
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            nearest = get_close_matches(name, Settings.model_fields, 1, _MIN_SIMILARITY)
            raise _unknown(f"'{name}'", "The setting", f"'{nearest[0]}'" if nearest else None) from error
        reason = first["msg"].removeprefix("Value error, ")
        message = f"Setting '{name}' cannot be used: {reason}." if name else f"The settings cannot be used: {reason}."
        raise SettingsError(message, hint=f"It may come from {CONFIG_FILE}, a HEADRACE_… variable or a flag.") from error
    except ValueError as error:
        raise SettingsError(f"{CONFIG_FILE} is not valid TOML: {error}", hint="Correct the file.") from error


def default_of(name: str) -> str:
    """Return the default of a setting as users read it, in Markdown; empty if there is none."""
    field = Settings.model_fields[name]
    if isinstance(field.json_schema_extra, dict) and "default" in field.json_schema_extra:
        return str(field.json_schema_extra["default"])
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, int | float):
        return f"`{field.default:g}`"
    return f"`{field.default}`" if field.default else ""


def unknown_variables() -> list[str]:
    """Return the `HEADRACE_…` variables that have no effect, without variables that are rejected or set by Kubernetes for a service."""
    return [name for name in _foreign_variables() if not _nearest(name) and not _SERVICE_LINK.fullmatch(name)]


def _foreign_variables() -> Iterator[str]:
    """Yield the `HEADRACE_…` variables that are not ours."""
    valid = {f"{ENV_PREFIX}{name.upper()}" for name in (*Settings.model_fields, *_INTERNAL_VARIABLES)}
    for variable in os.environ:
        if variable.upper().startswith(ENV_PREFIX) and not variable.startswith(_OTHER_PREFIXES) and variable.upper() not in valid:
            yield variable


def _nearest(variable: str) -> str | None:
    """Return the valid name that a variable resembles, or None."""
    names = get_close_matches(variable[len(ENV_PREFIX) :].lower(), [*Settings.model_fields, *_INTERNAL_VARIABLES], 1, _MIN_SIMILARITY)
    return names[0] if names else None


def _check_environment() -> None:
    """Reject a variable whose name resembles one of ours: it would have no effect."""
    for variable in _foreign_variables():
        if nearest := _nearest(variable):
            raise _unknown(variable, "The variable", f"{ENV_PREFIX}{nearest.upper()}")


def _unknown(quoted: str, kind: str, proposal: str | None) -> SettingsError:
    """Return the error for an unknown name, with the valid name that is proposed."""
    question = f" Do you mean {proposal}?" if proposal else ""
    return SettingsError(f"{kind} {quoted} is unknown.{question}", hint=f"There are: {', '.join(sorted(Settings.model_fields))}.")


def _with_running_api(settings: Settings) -> Settings:
    if settings.api_url:
        return settings
    for name in (API, STANDALONE):  # the API server may be restarting
        record = read_run_file(settings.home / name)
        if record is not None and record.alive and isinstance(record.facts.get("url"), str):
            return settings.model_copy(update={"api_url": record.facts["url"]})
    return settings


def _split(text: str) -> list[str]:
    """Return the comma-separated parts that are not empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def new_fernet_key() -> str:
    """Return a new encryption key."""
    return urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _new_key() -> str:
    return secrets.token_urlsafe(32)


def _stored_key(path: Path, variable: str, generate: Callable[[], str]) -> str:
    """Return the key in `path`, and generate it first if the file is missing. Processes that do this concurrently get the same key."""
    draft = path.with_name(f".key-{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
                file.write(generate())
            with suppress(FileExistsError):
                path.hardlink_to(draft)  # unlike a rename, it never replaces the key of another process
            draft.unlink()
        return path.read_text().strip()
    except OSError as error:
        raise ResourceError(
            f"Cannot store a key in {path}: {error.strerror}.", hint=f"Check the folder's owner and free space, or set {variable}."
        ) from error
