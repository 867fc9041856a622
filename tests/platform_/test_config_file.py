"""`vinery.toml` and the environment give typed settings to every command, and name the home."""

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from unittest import mock

import pytest

from tests import prepared_home
from tests.conftest import clean_environment
from tests.platform_ import scripts
from tests.tables import table
from vinery_platform.config import config_file, env, home, setting_table
from vinery_platform.config.env import SettingError
from vinery_platform.config.home import Home

Write = Callable[..., Path]
Read = Callable[[str], object]


@pytest.fixture(autouse=True)
def _settings_of_this_test_only(tmp_path: Path) -> Iterator[None]:
    """The files set variables, so all of them are restored."""
    with mock.patch.dict(os.environ, XDG_CONFIG_HOME=str(tmp_path / "user")):
        for name in ("VINERY_CONFIG", "VINERY_HOME"):
            os.environ.pop(name, None)
        yield
    env._origins.clear()


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file, by default that of the user."""

    def write_file(text: str, name: str = "user/vinery/vinery.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write_file


def test_the_file_of_the_user_names_the_home(write: Write, tmp_path: Path) -> None:
    os.environ["VINERY_PORT"] = " "  # an empty variable overrides nothing
    write(f'home = "{tmp_path}/srv"\nport = 8123\n')

    config_file.apply()

    assert Home.from_env().path == tmp_path / "srv"
    assert env.text("VINERY_PORT") == "8123"
    # Applying twice changes nothing.
    before = dict(os.environ)
    config_file.apply()
    assert dict(os.environ) == before


def test_the_environment_overrides_each_file(write: Write, tmp_path: Path) -> None:
    os.environ["VINERY_HOME"] = str(tmp_path / "mine")
    os.environ["VINERY_PORT"] = "9000"
    write('home = "other"\nport = 8123\nserver = "daphne"\n')
    write("port = 8124\nweb_workers = 2\n", "mine/vinery.toml")

    config_file.apply()

    assert Home.from_env().path == tmp_path / "mine"
    names = ("PORT", "SERVER", "WEB_WORKERS")
    assert [env.text(f"VINERY_{name}") for name in names] == ["9000", "daphne", "2"]


def test_the_file_in_the_home_overrides_that_of_the_user(write: Write, tmp_path: Path) -> None:
    write(f'home = "{tmp_path}/home"\nport = 1\nhost = "::1"\n')
    write("port = 2\n", "home/vinery.toml")

    files = config_file.apply()

    assert (env.text("VINERY_PORT"), env.text("VINERY_HOST")) == ("2", "::1")
    assert [file.path.parent.name for file in files] == ["home", "vinery"]


def test_a_named_file_replaces_that_of_user_before_home(write: Write, tmp_path: Path) -> None:
    write("port = 1\nweb_workers = 9\n")
    write("port = 2\nauth = false\n", "deploy/home/vinery.toml")
    named = write('home = "home"\nport = 3\n', "deploy/named.toml")
    os.environ["VINERY_CONFIG"] = str(named)

    config_file.apply()

    assert Home.from_env().path == tmp_path / "deploy" / "home", "it is beside the file"
    assert env.text("VINERY_PORT") == "3"
    assert env.text("VINERY_AUTH") == "off"
    assert env.text("VINERY_WEB_WORKERS") == ""


def test_values_are_written_as_toml_has_them(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    write(
        "auth = false\nmetrics_token = 'a b'\nalert_at = [50, 80]\nmax_tools = 7\n"
        "trusted_proxies = ['10.0.0.0/8', '::1']\nredis_url = 'redis://cache'\n"
    )

    config_file.apply()

    assert env.on_off("VINERY_AUTH") is False
    assert env.percentages("VINERY_ALERT_AT") == [50, 80]
    assert len(env.networks("VINERY_TRUSTED_PROXIES")) == 2
    assert env.text("VINERY_MAX_TOOLS") == "7"
    assert env.text("REDIS_URL") == "redis://cache"


def test_a_file_of_a_secret_is_beside_the_file_unless_the_environment_has_it(write: Write) -> None:
    write("s3cret\n", "user/vinery/key")
    write('secret_key_file = "key"\nkey_pepper_2_file = "key"\nkey_pepper_3_file = "key"\n')
    os.environ["VINERY_KEY_PEPPER_3"] = "of the environment"

    config_file.apply()

    assert env.secret("VINERY_SECRET_KEY") == "s3cret"
    assert env.secret("VINERY_KEY_PEPPER_2") == "s3cret"
    assert env.secret("VINERY_KEY_PEPPER_3") == "of the environment"


@table("mode", [0o640, 0o604, 0o644])
def test_a_secret_that_others_may_read_is_refused(write: Write, mode: int) -> None:
    write('port = 8123\nsecret_key_file = "key"\n').chmod(mode)
    config_file.apply()
    assert env.text("VINERY_PORT") == "8123", "a file without a secret may be read by others"

    write('database_url = "postgres://u:hunter2@db/v"\nport = 1\n').chmod(mode)
    with pytest.raises(SettingError, match=r"secret \(database_url\).*chmod 600") as refusal:
        config_file.apply()
    assert "hunter2" not in str(refusal.value)


@table(
    "text, message",
    [
        ("prot = 1\n", "unknown key prot. Did you mean port?"),
        ("VINERY_PORT = 1\n", "unknown key VINERY_PORT. Did you mean port?"),
        ("quux = 1\n", "unknown key quux. See: vinery config"),
        ("Port = 1\n", "unknown key Port. Did you mean port?"),
        ("[port]\na = 1\n", "port in .* has a value that no setting has"),
        ("port = [[1]]\n", "port in .* has a value that no setting has"),
        ("alert_at = []\n", "alert_at in .* has a value that no setting has"),
        ('host = "a\\u0000"\n', "host in .* has a value that no setting has"),
        ('allowed_hosts = ["a\\u0000"]\n', "allowed_hosts in .* has a value that no setting has"),
        ("port = \n", "is not valid TOML: "),
        ("port = 1 # \xff\n", "is not valid TOML: "),  # no text
        ("port = 1\nport = 2\n", "is not valid TOML: "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(write: Write, text: str, message: str) -> None:
    path = write("")
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(SettingError, match=message) as refusal:
        config_file.apply()
    assert str(path) in str(refusal.value)


def test_a_home_names_no_other_and_a_named_file_must_exist(write: Write, tmp_path: Path) -> None:
    os.environ["VINERY_HOME"] = str(tmp_path / "home")
    write('home = "elsewhere"\n', "home/vinery.toml")
    with pytest.raises(SettingError, match=r"home in .* cannot be used"):
        config_file.apply()

    os.environ["VINERY_CONFIG"] = str(tmp_path / "none.toml")
    with pytest.raises(SettingError, match=r"There is no configuration file .*none.toml"):
        config_file.apply()


def test_an_invalid_value_is_reported_by_its_key_and_file(write: Write) -> None:
    path = write('port = "http"\nserver = "nginx"\npublic_url = "ftp://x"\n')
    config_file.apply()

    with pytest.raises(SettingError, match=re.escape(f"port = 'http' in {path} is not a number")):
        env.integer("VINERY_PORT")
    with pytest.raises(SettingError, match=re.escape(f"server = 'nginx' in {path} is unknown")):
        env.choice("VINERY_SERVER")
    with pytest.raises(SettingError, match=re.escape(f"public_url in {path} is not a URL")):
        env.url("VINERY_PUBLIC_URL")


def test_an_installed_home_is_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.REPOSITORY is not None
    assert (home.TEMPLATES / "console").is_dir()
    assert (home.MODELS / "tiny-chat").is_dir()
    monkeypatch.setattr("vinery_platform.config.home.REPOSITORY", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    assert Home.from_env().path == tmp_path / "data" / "vinery"


def test_every_setting_that_the_code_reads_is_in_the_table_once() -> None:
    names = [setting.name for setting in setting_table.SETTINGS]
    sources = (Path(config_file.__file__).parents[1]).rglob("*.py")
    text = "\n".join(file.read_text() for file in sources)
    read = set(re.findall(r'env\.(?!note_origin)\w+\(\s*"([A-Z_0-9]+)"', text))

    assert len(names) == len(set(names))
    assert len(read) >= 40
    known = setting_table.known()
    assert {name for name in read if setting_table.key_of(name) not in known} == set()
    unread = set(names) - read
    made_in_a_loop = {name for name in unread if name.startswith("VINERY_RETENTION_")}
    assert unread - made_in_a_loop == {"VINERY_KEY_PEPPER_1"}


# -- Commands -------------------------------------------------------------------------------


def test_a_command_finds_the_home_of_the_file_from_any_folder(write: Write, tmp_path: Path) -> None:
    servers = prepared_home.copy_to(tmp_path / "srv", clean_environment())
    del servers["VINERY_HOME"]
    write(f'home = "{tmp_path}/srv"\nport = 0\n')
    environment = {**servers, "XDG_CONFIG_HOME": str(tmp_path / "user"), "VINERY_CONFIG": ""}

    result = scripts.vinery("key", "list", "--json", environment=environment, cwd=tmp_path)

    assert [row["name"] for row in json.loads(result.stdout)] == ["first key"]


@pytest.mark.parametrize("where", [0, 2])
def test_config_shows_each_setting_with_its_source_and_no_secret(write: Write, where: int) -> None:
    path = write('port = 8123\nsecret_key = "hunter2-hunter2"\n', "named.toml")
    words = ["config", "--json"]
    words[where:where] = ["--config", str(path)]

    result = scripts.vinery(*words, environment={"VINERY_WEB_WORKERS": "3"})

    rows = {row["setting"]: (row["value"], row["source"]) for row in json.loads(result.stdout)}
    assert rows["VINERY_PORT"] == ("8123", str(path))
    assert rows["VINERY_WEB_WORKERS"] == ("3", "environment")
    assert rows["VINERY_SERVER"] == ("uvicorn", "default")
    assert rows["VINERY_SECRET_KEY"] == ("(hidden)", str(path))
    assert "hunter2" not in result.stdout
    paths = scripts.vinery("config", "--path", environment={"VINERY_CONFIG": str(path)})
    assert paths.stdout == f"{path}\n"


@table(
    "read, name, value, expected",
    [
        *((env.on_off, "VINERY_DEBUG", word, True) for word in ("on", "1", "true", "YES")),
        *((env.on_off, "VINERY_AUTH", word, False) for word in ("off", "0", "False", "no")),
        *((env.integer, "VINERY_WEB_WORKERS", word, int(word)) for word in ("1", "64")),
        (env.integer, "VINERY_MAX_TOOLS", "7", 7),
        (env.choice, "VINERY_SERVER", "Daphne", "daphne"),
        (env.url, "VINERY_PUBLIC_URL", "https://vinery.example/", "https://vinery.example"),
        (env.percentages, "VINERY_ALERT_AT", "90, 80,90", [80, 90]),
        (env.percentages, "VINERY_ALERT_AT", "1,100", [1, 100]),
        (env.percentages, "VINERY_ALERT_AT", "off", []),
        (env.words, "VINERY_ALLOWED_HOSTS", "a, b ,,c", ["a", "b", "c"]),
        (
            *(env.networks, "VINERY_TRUSTED_PROXIES", "10.0.0.0/8, fd00::/8"),
            [ip_network("10.0.0.0/8"), ip_network("fd00::/8")],
        ),
        # An empty variable is an unset one.
        *((env.on_off, "VINERY_AUTH", "  ", True), (env.integer, "VINERY_WEB_WORKERS", "  ", 1)),
        (env.choice, "VINERY_SERVER", "  ", "uvicorn"),
        (env.percentages, "VINERY_ALERT_AT", "  ", [50, 80, 100]),
        (partial(env.text, default="default"), "VINERY_HOST", "  ", "default"),
    ],
)
def test_a_setting_is_read(
    monkeypatch: pytest.MonkeyPatch, read: Read, name: str, value: str, expected: object
) -> None:
    monkeypatch.setenv(name, value)

    assert read(name) == expected


@table(
    "read, name, values, message",
    [
        (env.on_off, "VINERY_DEBUG", ["maybe"], "='maybe'.*on or off"),
        (env.integer, "VINERY_WEB_WORKERS", ["0", "65", "-1", "nine", "3.5"], "=.*from 1 to 64"),
        (env.integer, "VINERY_MAX_JSON_LEVELS", ["5000"], "=5000.*from 1 to 200"),
        (env.integer, "VINERY_MEDIA_CACHE_MB", ["-1"], "=-1.*from 0 to"),
        (env.choice, "VINERY_SERVER", ["gunicorn"], "='gunicorn'.*daphne or uvicorn"),
        (env.url, "VINERY_PUBLIC_URL", ["a.example", "ftp://a.example", "https://"], " .*https://"),
        (env.url, "DATABASE_URL", ["mysql://joe:hunter2@db/vinery"], " is not a URL"),
        (
            *(env.percentages, "VINERY_ALERT_AT"),
            ["0", "101", "half", "50;80", "-5", "off,50"],
            "=.*50,80,100",
        ),
        (env.networks, "VINERY_TRUSTED_PROXIES", ["10.0.0.1/8"], ": .*10.0.0.0/8"),
    ],
)
def test_an_invalid_value_is_refused_by_name_and_a_password_not_repeated(
    monkeypatch: pytest.MonkeyPatch, read: Read, name: str, values: list[str], message: str
) -> None:
    for value in values:
        monkeypatch.setenv(name, value)
        with pytest.raises(SettingError, match=name + message) as refusal:
            read(name)
        assert "hunter2" not in str(refusal.value)


def test_a_secret_may_be_read_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, file = "VINERY_METRICS_TOKEN", tmp_path / "secret"
    monkeypatch.setenv(f"{name}_FILE", str(file))
    with pytest.raises(SettingError, match=f"{name}_FILE=.*secret cannot be read"):
        env.secret(name)

    file.write_text("s3cret\n")
    assert env.secret(name) == "s3cret"

    monkeypatch.setenv(name, "one")
    with pytest.raises(SettingError, match=f"{name} and {name}_FILE are both set"):
        env.secret(name)
