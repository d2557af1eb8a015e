"""What counts as a key, a token or a password, and what only looks like one."""

import base64
import random
import string
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.classify import Classifier
from router.classify.scanner import Scanner
from router.classify.sensitivity.secrets import Secrets
from tests.decide.values import request

SECRETS = Secrets.model_validate({"kind": "secrets", "class": "secret"})
SCANNER = Scanner([SECRETS])
ALNUM = string.ascii_letters + string.digits
WEB, CAPITAL, HEX = ALNUM + "_-", string.ascii_uppercase + string.digits, "0123456789abcdef"
BASE64 = ALNUM + "+/"


def found(text: str) -> list[tuple[str, str]]:
    return [(hit.form, text[hit.start : hit.end]) for hit in SCANNER.scan(text)]


Make = Callable[[Callable[[str, int], str]], str]
"""Characters and a number → so many of them, by chance."""

# Put together here, of chance, so that no scanner takes this file for a leak.
KEYS: list[tuple[str, Make]] = [
    ("aws_access_key", lambda of: "AKIA" + of(CAPITAL, 16)),
    ("aws_access_key", lambda of: "ASIA" + of(CAPITAL, 16)),
    ("google", lambda of: "AIza" + of(WEB, 35)),
    ("google", lambda of: "GOCSPX-" + of(WEB, 28)),
    ("azure_client_secret", lambda of: of(ALNUM, 3) + "8Q~" + of(WEB, 34)),
    ("azure_storage_key", lambda of: "AccountKey=" + of(BASE64, 86) + "=="),
    ("github", lambda of: "ghp_" + of(ALNUM, 36)),
    ("github", lambda of: "ghs_" + of(ALNUM, 36)),
    ("github", lambda of: "github_pat_" + of(ALNUM, 22) + "_" + of(ALNUM, 59)),
    ("gitlab", lambda of: "glpat-" + of(WEB, 20)),
    ("gitlab", lambda of: "glrt-" + of(WEB, 20)),
    ("bitbucket", lambda of: "ATBB" + of(ALNUM, 32)),
    ("atlassian", lambda of: "ATATT3" + of(WEB, 180) + "=" + of(CAPITAL, 8)),
    ("npm", lambda of: "npm_" + of(ALNUM, 36)),
    ("pypi", lambda of: "pypi-" + of(WEB, 100)),
    ("rubygems", lambda of: "rubygems_" + of(HEX, 48)),
    ("docker", lambda of: "dckr_pat_" + of(WEB, 27)),
    ("slack", lambda of: "xoxb-" + of(string.digits, 12) + "-" + of(ALNUM, 24)),
    ("slack", lambda of: "xapp-1-A" + of(CAPITAL, 10) + "-" + of(HEX, 64)),
    (
        "slack",
        lambda of: "hooks.slack.com/services/T" + of(CAPITAL, 8) + "/B" + of(CAPITAL, 8) + "/" + of(ALNUM, 24),
    ),
    ("discord", lambda of: "discord.com/api/webhooks/" + of("123456789", 18) + "/" + of(WEB, 68)),
    (
        "discord",
        lambda of: (
            base64.b64encode(b"1" + of(string.digits, 17).encode()).decode() + "." + of(WEB, 6) + "." + of(WEB, 27)
        ),
    ),
    ("telegram", lambda of: of("123456789", 10) + ":AA" + of(ALNUM, 33)),
    ("twilio", lambda of: "SK" + of(HEX, 32)),
    ("sendgrid", lambda of: "SG." + of(WEB, 22) + "." + of(WEB, 43)),
    ("mailgun", lambda of: "key-" + of(HEX, 32)),
    ("mailchimp", lambda of: of(HEX, 32) + "-us12"),
    ("stripe", lambda of: "sk_live_" + of(ALNUM, 24)),
    ("stripe", lambda of: "rk_live_" + of(ALNUM, 24)),
    ("stripe", lambda of: "whsec_" + of(ALNUM, 32)),
    ("square", lambda of: "sq0atp-" + of(WEB, 22)),
    ("paypal", lambda of: "access_token$production$" + of(HEX, 16) + "$" + of(HEX, 32)),
    ("shopify", lambda of: "shpat_" + of(HEX, 32)),
    ("openai", lambda of: "sk-" + of(ALNUM, 48)),
    ("openai", lambda of: "sk-proj-" + of(WEB, 74) + "T3BlbkFJ" + of(WEB, 74)),
    ("openai", lambda of: "sk-svcacct-" + of(WEB, 60)),
    ("openrouter", lambda of: "sk-or-v1-" + of(HEX, 64)),
    ("anthropic", lambda of: "sk-ant-" + "api03-" + of(WEB, 93)),
    ("hugging_face", lambda of: "hf_" + of(string.ascii_letters, 34)),
    ("groq", lambda of: "gsk_" + of(ALNUM, 52)),
    ("xai", lambda of: "xai-" + of(ALNUM, 80)),
    ("replicate", lambda of: "r8_" + of(ALNUM, 37)),
    ("perplexity", lambda of: "pplx-" + of(ALNUM, 48)),
    ("lowpass", lambda of: "lp-" + of(ALNUM, 43)),
    ("databricks", lambda of: "dapi" + of(HEX, 32)),
    ("digitalocean", lambda of: "dop_v1_" + of(HEX, 64)),
    ("heroku", lambda of: "HRKU-" + of(WEB, 60)),
    ("cloudflare", lambda of: "v1.0-" + of(HEX, 24) + "-" + of(HEX, 146)),
    ("vault", lambda of: "hvs." + of(WEB, 90)),
    ("terraform", lambda of: of(ALNUM, 14) + ".atlasv1." + of(ALNUM, 67)),
    ("new_relic", lambda of: "NRAK-" + of(CAPITAL, 27)),
    ("sentry", lambda of: "sntryu_" + of(HEX, 64)),
    ("grafana", lambda of: "glsa_" + of(ALNUM, 32) + "_" + of(HEX, 8)),
    ("linear", lambda of: "lin_api_" + of(ALNUM, 40)),
    ("notion", lambda of: "ntn_" + of(ALNUM, 46)),
    (
        "private_key",
        lambda of: (
            "-----BEGIN " + f"RSA PRIVATE KEY-----\n{of(BASE64, 64)}\n{of(BASE64, 20)}\n-----END RSA PRIVATE KEY-----"
        ),
    ),
    (
        "private_key",
        lambda of: (
            "-----BEGIN "
            + f"PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{of(BASE64, 64)}\n-----END PGP PRIVATE KEY BLOCK-----"
        ),
    ),
    ("private_key", lambda of: "AGE-SECRET-KEY-1" + of(CAPITAL, 58)),
    ("jwt", lambda of: "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJ" + "zdWIiOiIxMjM0NTY3" + "." + of(WEB, 43)),
    ("connection_string", lambda of: "postgresql+asyncpg://" + f"app:{of(ALNUM, 9)}4x@db.internal:5432/app"),
    ("connection_string", lambda of: "mongodb+srv://" + f"app:p{of(ALNUM, 9)}7%21@cluster.example.net/x"),
    ("connection_string", lambda of: "redis://" + f":{of(ALNUM, 12)}1a@10.0.0.3:6379/0"),
]
AROUND = ["{}", "the key is {}.", "x={}\n", '{{"k": "{}"}}', "see ({}) and `x`", "Schlüssel → {} 😀"]


def chance(seed: object) -> Callable[[str, int], str]:
    dice = random.Random(str(seed))  # noqa: S311
    return lambda characters, number: "".join(dice.choices(characters, k=number))


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_keys_of_each_issuer_are_found_whole(number: int) -> None:
    name, make = KEYS[number]
    for seed in range(20):
        value = make(chance((number, seed)))
        for around in AROUND:
            assert (f"secrets.{name}", value) in found(around.format(value))


def test_there_are_many_kinds_and_not_too_many_to_look_for() -> None:
    names = [form.name for form in SECRETS.forms]
    assert len(set(names)) >= 50
    assert {name for name, _ in KEYS} <= set(names)


ASSIGNED = {
    "aws_secret_key": ("aws_secret_access_key = {}", BASE64, 40),
    "azure_client_secret": ("AZURE_CLIENT_SECRET={}", ALNUM, 40),
    "cloudflare": ("CLOUDFLARE_API_TOKEN={}", WEB, 40),
    "datadog": ("datadog api key: {}", HEX, 32),
    "mistral": ("MISTRAL_API_KEY={}", ALNUM, 32),
    "twilio": ('twilio_auth_token = "{}"', HEX, 32),
    "paypal": ("PAYPAL_CLIENT_SECRET={}", WEB, 80),
    "authorization": ("Authorization: Bearer {}", WEB, 40),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_what_looks_like_nothing_is_known_by_the_name_before_it(name: str) -> None:
    around, characters, size = ASSIGNED[name]
    for seed in range(20):
        value = "a1" + chance((name, seed))(characters, size - 3) + "0"
        assert (f"secrets.{name}", value) in found(around.format(value))
        assert f"secrets.{name}" not in [form for form, _ in found(value)]


PASSWORDS = {
    "DB_PASSWORD={}\nPORT=1": "hunter2",
    "export PGPASSWORD={}": "Tr0ub4dor&3",
    "SMTP_PASSWORD={}": "swordfish",
    "db:\n  password: {}\n  port: 1": "Winter2024x",
    "password: '{}' # prod": "a$b(c)d#9",
    '{{"user": "a", "password": "{}"}}': "qW3!x_9z",
    '{{\\"user\\": \\"a\\", \\"dbPassword\\": \\"{}\\"}}': "qW3x9zPp",
    'connect(host, password="{}")': "s3cr3t-Pa55",
    "const dbPassword: string = '{}';": "s3cr3tPa55",
    "[db]\npassword = {}\n": "Xk2pQ9vL",
    "Server=db;User Id=sa;Password={};Encrypt=true": "Xk2pQ9vL",
    "the password is {} I think": "hunter2",
    "<password>{}</password>": "hunter2",
    "tool --password {} run": "hunter2",
    "tool --password={} run": "hunter2",
    "curl -u bob:{} https://a.example": "Xk2pQ9vL",
    "sshpass -p {} ssh a@b": "Xk2pQ9vL",
    "mysql -u root -p{} shop": "Xk2pQ9vL",
    "machine api.example login bob password {}": "Xk2pQ9vL",
    "db.internal:5432:shop:bob:{}": "Xk2pQ9vL",
    "api_key: {}": "9f8a7c6b5d4e3f2a1b0c",
    '"apiKey": "{}"': "kQ9x2mPz7LwT4vBn",
    "x-api-key: {}": "kQ9x2mPz7LwT4vBn",
    "JWT_SECRET={}": "kQ9x2mPz7LwT4vBn",
    'client_secret = "{}"': "kQ9x2mPz7LwT4vBn",
    'token = "{}"': "kQ9x2mPz7LwT4vBn",
    'conf["auth_token"] = "{}"': "kQ9x2mPz7LwT4vBn",
    "ENV SIGNING_KEY={}": "kQ9x2mPz7LwT4vBn",
}


@pytest.mark.parametrize("around", PASSWORDS)
def test_values_under_a_name_that_promises_a_secret_are_found_whole(around: str) -> None:
    value = PASSWORDS[around]
    assert value in [text for _, text in found(around.format(value))]


HARMLESS = [
    "",
    "AKIA is the prefix of an access key",
    "ACCAGTTGACCATTGACCAAGGATTACA",
    "sk-learn, skeleton-key, task-force-of-the-year-2024-in-review",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    "a file that starts with -----BEGIN RSA PRIVATE KEY----- is a key",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "postgres://localhost:5432/app",
    "postgres://user:password@localhost/app",
    "postgres://${DB_USER}:${DB_PASSWORD}@db/app",
    "postgres://<user>:<password>@<host>/app",
    "https://example.com:8080/a@b",
    "hf_hub_download, lp-solver, npm_config_registry, eyJ alone",
    "ghp_" + "x" * 36,
    "sk-" + "your-api-key-goes-here-0123456789",
    "OPENAI_API_KEY=sk-...",
    "export API_KEY=<your-key>",
    "api_key: YOUR_API_KEY_12345678",
    "password: ${DB_PASSWORD}",
    "password: {{ db_password }}",
    'password = os.environ["DB_PASSWORD_2"]',
    "const password = process.env.DB_PASSWORD2;",
    'token = os.getenv("TOKEN_1234567890abc")',
    "password = user.password2",
    "self.password = password1",
    "token = next_token2()",
    "def login(user: str, password: str = None) -> Token2:",
    "password: string;",
    '"password": {"type": "string", "minLength": 8}',
    '"password": "Must have 8+ characters!"',
    '"password": "Passwort:"',
    '"password": ""',
    "password=[REDACTED]",
    "password=********",
    "password: changeme",
    "POSTGRES_PASSWORD=postgres",
    "password1 and password2 must be the same",
    "Password: at least 8 characters",
    "password_hash: $2b$12$KIXQ4q8a1YV3sZ8Jz0vX5uB1y8rX2mC3nV4bN5mK6lJ7hG8fD9sAe",
    "max_tokens: 4096, token_count=512, tokens: 12",
    "token_type: bearer",
    '"NextToken": "' + "kQ9x2mPz7LwT4vBn" + '"',
    "page_token=" + "kQ9x2mPz7LwT4vBn",
    "Authorization: Bearer <token>",
    "Authorization: Bearer $TOKEN",
    "the bearer authentication-mechanism-of-choice is",
    "commit 9f8a7c6b5d4e3f2a1b0c9f8a7c6b5d4e3f2a1b0c",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "csrf_token=550e8400-e29b-41d4-a716-446655440000",
    "request 550e8400-e29b-41d4-a716-446655440000",
    "arn:aws:secretsmanager:us-west-2:123456789012:secret:MyTestSecret-a1b2c3",
    "secretName: my-app-tls-2",
    'secret: "db-credentials-v2"',
    "token: /var/run/secrets/token2",
    "the secret is patience; the token is base64-encoded-text",
    "docker run -u 1000:1000 x",
    "root:x:0:0:root:/root:/bin/bash",
    "src/main.c:120:5:error:expected",
    "2001:db8:85a3:1234:5678:8a2e:370:7334",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
    "eyJhbGciOiJub25lfQ",
    "key-value-store, key-0123, 1.2.3-us1",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_is_not_found(text: str) -> None:
    assert found(text) == []


def test_a_key_under_a_name_counts_once() -> None:
    text = f"api_key = {KEYS[33][1](chance(1))}"
    seen = Classifier([SECRETS], {"internal": 0, "secret": 1}).classify(request(text=text), [])
    assert [finding.detector for finding in seen.findings] == ["secrets.openai"]


def test_findings_hold_no_value() -> None:
    value = KEYS[0][1](chance(2))
    seen = Classifier([SECRETS], {"internal": 0, "secret": 1}).classify(request(text=f"x {value}"), [])
    assert seen.data_class == "secret"
    assert value not in repr(seen)


PIECES = [make(chance(0)) for _, make in KEYS] + HARMLESS + list(PASSWORDS)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=6).map("".join)


@settings(deadline=None)
@given(TEXTS)
def test_findings_lie_inside_the_text(text: str) -> None:
    for hit in SCANNER.scan(text):
        assert 0 <= hit.start < hit.end <= len(text)
        assert hit.data_class == "secret"
