"""What is measured: how each gateway is installed, configured and started.

A peer is configured as its own documentation recommends for production; anything that would only slow it down is off.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import msgspec

from bench.children import Cores, free_port, last_lines, running, surroundings, until_answering
from bench.load import Job, LoadError

_ROOT = Path(__file__).parent.parent
LITELLM_HOME = _ROOT / ".venv-litellm-proxy"
LITELLM_REQUIREMENTS = Path(__file__).parent / "requirements-litellm-proxy.txt"
_LITELLM_PYTHON = LITELLM_HOME / "bin" / "python"

_NGINX = """\
daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    tcp_nodelay on;
    keepalive_requests 10000000;
    upstream models {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 10000000; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://models;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


class Gateway(msgspec.Struct, frozen=True):
    """A gateway that is up and has answered. `pid` is None where there is none to account for."""

    port: int
    pid: int | None = None
    version: str = ""
    model: str = "bench-model"
    key: str | None = None
    ledger: Path | None = None
    """The SQLite file where every answered request must be found settled and priced."""


class Site(msgspec.Struct, frozen=True):
    """Where a gateway is to run: the upstream's port, a folder of its own, the cores."""

    upstream: int
    home: Path
    cores: Cores


class Absent(Exception):
    """The peer is not installed here; the message says how to install it."""


Start = Callable[[Site], AbstractContextManager[Gateway]]


@contextmanager
def direct(site: Site) -> Iterator[Gateway]:
    """No gateway: what the load generator and the upstream cost by themselves."""
    yield Gateway(site.upstream)


@contextmanager
def nginx(site: Site) -> Iterator[Gateway]:
    """A plain reverse proxy, one worker: the floor for anything that forwards HTTP."""
    binary = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin")
    if binary is None:
        raise Absent("not installed (apt-get install nginx)")
    port, conf = free_port(), site.home / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    conf.write_text(_NGINX.format(home=site.home, upstream=site.upstream, port=port, user=user))
    argv = [binary, "-p", str(site.home), "-e", str(site.home / "start.log"), "-c", str(conf)]
    banner = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr
    with _up(site, argv, {}, Gateway(port, version=banner.strip().rpartition("/")[2])) as gateway:
        yield gateway


@contextmanager
def litellm(site: Site) -> Iterator[Gateway]:
    """The LiteLLM proxy: one worker, one model, a master key, no database, its production settings."""
    if not _LITELLM_PYTHON.exists():
        raise Absent("not installed (python -m bench.gateway --install-litellm)")
    port, conf, key = free_port(), site.home / "litellm.yaml", "sk-bench"
    upstream = {"model": "openai/bench-model", "api_base": f"http://127.0.0.1:{site.upstream}/v1", "api_key": "unused"}
    model = {"model_name": "bench-model", "litellm_params": upstream}
    conf.write_text(json.dumps({"model_list": [model], "general_settings": {"master_key": key}}))
    argv = [str(LITELLM_HOME / "bin" / "litellm"), "--config", str(conf), "--host", "127.0.0.1", "--port", str(port)]
    env = {"LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with _up(site, argv, env, Gateway(port, version=_litellm_version(), key=key), limit_s=120) as gateway:
        yield gateway


@contextmanager
def lowpass(site: Site) -> Iterator[Gateway]:
    """This gateway: a pinned target, a key that is checked, the ledger on."""
    port, policy = free_port(), site.home / "policy.yaml"
    policy.write_text(json.dumps(lowpass_policy(site.upstream), indent=2))
    state = site.home / "state"
    env = {"LOWPASS_HOME": str(state)}
    key = lowpass_key(env)
    argv = [
        sys.executable,
        "-m",
        "router.cli",
        "serve",
        "--policy",
        str(policy),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with _up(
        site, argv, env, Gateway(port, version=_lowpass_version(), model="auto", key=key, ledger=state / "lowpass.db")
    ) as gateway:
        yield gateway


def lowpass_policy(upstream: int) -> dict[str, object]:
    """A policy with one priced target and `auto` pinned to it. JSON is YAML."""
    model = {
        "name": "bench-model",
        "provider": "vllm",
        "context": 32768,
        "max_output": 4096,
        "capabilities": ["chat"],
        "price": {"input": 0.1, "output": 0.2},
    }
    target = {"model": model, "base_url": f"http://127.0.0.1:{upstream}/v1"}
    route = {"strategy": {"kind": "pinned", "target": "bench"}}
    return {"version": 1, "targets": {"bench": target}, "routes": {"auto": route}}


def lowpass_key(env: dict[str, str]) -> str:
    """Create a key in the state folder that `env` names. Raises LoadError."""
    argv = [sys.executable, "-m", "router.cli", "keys", "create", "bench", "--json"]
    made = subprocess.run(argv, cwd=_ROOT, env=surroundings() | env, capture_output=True, text=True, check=False)
    if made.returncode:
        raise LoadError(f"lowpass keys create failed:\n{made.stderr}")
    return str(json.loads(made.stdout)["key"])


def settled_requests(ledger: Path) -> int:
    """How many requests the ledger holds as settled, with a key, a served target and a cost."""
    query = "SELECT count(*) FROM requests WHERE state = 'settled' AND key_id <> '' AND target = 'bench' AND cost > 0"
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return int(connection.execute(query).fetchone()[0])


def install_litellm() -> None:
    """Build the LiteLLM proxy's own environment from its hashed requirements, bytecode compiled."""
    subprocess.run([sys.executable, "-m", "venv", str(LITELLM_HOME)], check=True)
    python = str(_LITELLM_PYTHON)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", str(LITELLM_REQUIREMENTS)], check=True
    )
    subprocess.run([python, "-m", "compileall", "-q", str(LITELLM_HOME / "lib")], check=False)


def _lowpass_version() -> str:
    return str(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["version"])


def _litellm_version() -> str:
    argv = [str(_LITELLM_PYTHON), "-c", "from importlib.metadata import version; print(version('litellm'))"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _up(site: Site, argv: list[str], env: dict[str, str], gateway: Gateway, limit_s: float = 20) -> Iterator[Gateway]:
    """Start a gateway on its core, wait for its first right answer, and yield it with its process id."""
    log = site.home / "output.log"
    with running(argv, site.cores.gateway, log, env) as child:
        job = Job(gateway.port, connections=1, requests=1, model=gateway.model, key=gateway.key)
        try:
            until_answering(job, lambda: child.poll() is not None, limit_s)
        except LoadError as problem:
            raise LoadError(f"{problem}; its output ends:\n{last_lines(log)}") from problem
        yield msgspec.structs.replace(gateway, pid=child.pid)


PEERS: dict[str, Start] = {"direct": direct, "nginx": nginx, "litellm": litellm, "lowpass": lowpass}
