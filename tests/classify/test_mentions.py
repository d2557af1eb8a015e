"""Values that stand away from their names: said, in tables, in records."""

import string

import pytest

from tests.classify.test_secrets import ALNUM, BASE64, HEX, chance, found

NAMES = {
    "DB_PASSWORD": (ALNUM, 18),
    "AWS_SECRET_ACCESS_KEY": (BASE64, 40),
    "DD_API_KEY": (HEX, 32),
    "DATADOG_APP_KEY": (HEX, 40),
    "internal_auth_token": (ALNUM, 32),
}
CARRIERS = [
    "Yesterday I set {k} to {v} as you said.",
    "we changed {k} from the old one to `{v}`, is that right?",
    "The value of {k} should be {v}.",
    "please replace {k} with {v} everywhere",
    "Das neue {k} lautet {v}, bitte nicht weitergeben.",
    "la valeur de {k} est {v} pour la prod",
    "| setting | value |\n|---|---|\n| PORT | 80 |\n| {k} | {v} |",
    "|Variable|Value|Note|\n|---|---|---|\n|`{k}`|`{v}`|rotate yearly|",
    "- `{k}`: `{v}`\n- `PORT`: `80`",
    "**{k}** — {v}",
    "{k} -> {v}",
    "{k}\t{v}\nPORT\t80",
    "{k}:\n{v}\n",
    "settings loaded: {{'PORT': 80, '{k}': '{v}'}}",
    "const settings = {{ port: 80, {k}: '{v}' }};",
    '[{{"name": "PORT", "value": "80"}}, {{"name": "{k}", "value": "{v}"}}]',
    '{{\\"Key\\": \\"{k}\\", \\"Value\\": \\"{v}\\"}}',
    "env:\n  - name: {k}\n    value: {v}\n",
    '<add key="{k}" value="{v}" />',
    'variable "{k}" {{\n  type    = string\n  default = "{v}"\n}}',
    "FROM debian\nENV {k} {v}\n",
    'setx {k} "{v}"',
    'gh secret set {k} --body "{v}"',
    "name,value\nPORT,80\n{k},{v}\n",
    "rev " + "9f86d081884c7d65" * 4 + "\n{k}={v}\n",
    "level=warn msg=failed {k}={v} attempt=3",
]


@pytest.mark.parametrize("around", CARRIERS)
@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_setting_tells_what_its_value_is_wherever_it_stands(name: str, around: str) -> None:
    characters, size = NAMES[name]
    for seed in range(5):
        value = "a1" + chance((name, around, seed))(characters, size - 5) + "b2c"
        assert value in [text for _, text in found(around.format(k=name, v=value))]


CONNECTIONS = [
    "jdbc:mysql://db.example:3306/shop?user=app&password={}&useSSL=true",
    "host=db.example port=5432 user=app password={} dbname=app",
    "Server=tcp:db.example,1433;Database=shop;User ID=app;Password={};Encrypt=True",
    "Driver={{ODBC Driver 18}};Server=db.example;Uid=app;Pwd={};",
]


@pytest.mark.parametrize("value", ["Lme_TXtAKfY4", "ZaKvzgRTvqIq", "Xk2pQ9vL"])
@pytest.mark.parametrize("around", ["{}", "I set PG_DSN to {} today", "| PG_DSN | `{}` |", 'dsn = "{}"'])
@pytest.mark.parametrize("connection", CONNECTIONS)
def test_passwords_of_connection_strings_are_found(connection: str, around: str, value: str) -> None:
    assert value in [text for _, text in found(around.format(connection.format(value)))]


@pytest.mark.parametrize("value", ["Copper-Lantern175", "Umogesur811!", "Meadow_Bridge58"])
@pytest.mark.parametrize("around", ["| DB_PASSWORD | {} |", 'SMTP_PASS = "{}"', '{{"admin_pwd": "{}"}}'])
def test_passwords_of_words_and_digits_are_found(around: str, value: str) -> None:
    assert value in [text for _, text in found(around.format(value))]


PRECISE = {
    "discord": lambda of: "M" + "a1Z" + of(ALNUM, 22) + ".G" + of(ALNUM, 5) + "." + "b2Y" + of(ALNUM, 35),
    "doppler": lambda of: "dp.st.prd." + of(ALNUM, 40),
}


@pytest.mark.parametrize("name", PRECISE)
def test_what_is_built_precisely_needs_no_name(name: str) -> None:
    for seed in range(20):
        value = PRECISE[name](chance((name, seed)))
        for around in ("{}", "is it {}?", "| x | `{}` |", "['{}']"):
            assert (f"secrets.{name}", value) in found(around.format(value))


DIGEST = "9f86d081884c7d659a2feaa0c55ad015"
HARMLESS = [
    "reset your password to admin123",
    "the password is stored in version2.3.1-beta",
    "| password | string | required, 8 to 64 characters |",
    "| token | 4096 |",
    "passwd\t1:4.13+dfsg1-1+deb12u1",
    "apt\tlibpam-passwdqc\t2.0.3-1",
    "max_tokens to 4096, token_limit is 8192",
    "API_KEY was rotated on 2024-05-05",
    "set API_KEY to your-key-here-1234567890",
    "set DB_PASSWORD to <your password 1>",
    "DB_PASSWORD is set to ${{DB_PASSWORD_2}}",
    "the access token is abstract",
    '{"name": "token", "value": "string"}',
    '<input name="password" value="" type="password1">',
    'variable "db_password" {\n  type = string\n  default = ""\n}',
    "ENV TOKEN_FILE /run/secrets/token2",
    f"the token file mistral-7b.bin | {DIGEST}",
    f"| mistral-7b-q4.gguf | {DIGEST} |",
    "heroku request_id=550e8400-e29b-41d4-a716-446655440000",
    "#define AUTH_TOKEN 0x80a1b2c3d4e5f6a7b8c9",
    "aws cognito-idp forgot-password --client-id 38fjsnc484p94kpqsnet7mpld0",
    "aws list-things --starting-token kQ9x2mPz7LwT4vBn",
    'publicKeyToken="1fc8b3b9a1e18e3b"',
    "assert token is _core.current_trio_token()",
    "in their original positions--pass `strict=False`",
    "perldoc -u Some::Modulename",
    "password=SecretStr('**********')",
    "Module_name_that_is_long_.abcdef.and_a_long_function_name_",
    "csrf_token to " + "kQ9x2mPz7LwT4vBn" + " in the form",
    string.printable,
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_mentions_a_name_is_no_secret(text: str) -> None:
    assert found(text) == []
