"""What counts as a key, a token or a password, wherever it stands, and what only looks like one."""

import random
import string

from router.classify.classify import Classifier
from router.classify.scanner import Scanner
from tests.classify.looking import SECRETS, samples, unmarked, values
from tests.decide.values import request
from tests.tables import each_row

SCANNER = Scanner([SECRETS])
SAMPLES = samples("secrets.txt")
ALNUM, HEX = string.ascii_letters + string.digits, "0123456789abcdef"
LETTERS = {
    **{"alnum": ALNUM, "hex": HEX, "web": ALNUM + "_-", "base64": ALNUM + "+/", "letter": string.ascii_letters},
    **{"capital": string.ascii_uppercase + string.digits, "digit": string.digits, "nonzero": "123456789"},
}
KEYS = [line.split(" | ", 1) for line in SAMPLES["keys"]]
AROUND = ["{}", "the key is {}.", "x={}\n", '{{"k": "{}"}}', "see ({}) and `x`", "Schlüssel → {} 😀"]


class Drawn:
    """`f"{Drawn(letters, dice):32}"` is 32 of the letters."""

    def __init__(self, letters: str, dice: random.Random) -> None:
        self.letters, self.dice = letters, dice

    def __format__(self, size: str) -> str:
        return "".join(self.dice.choices(self.letters, k=int(size)))


def made(template: str, seed: object) -> str:
    dice = random.Random(f"{template} {seed}")  # noqa: S311 - no secrets
    return template.format(**{name: Drawn(letters, dice) for name, letters in LETTERS.items()})


def found(text: str) -> list[str]:
    return [value for _, value in values(SCANNER, text)]


@each_row("name, template", KEYS)
def test_keys_of_each_issuer_are_found_whole(name: str, template: str) -> None:
    for seed in range(8):
        value = made(template, seed)
        for around in AROUND:
            assert (f"secrets.{name}", value) in values(SCANNER, around.format(value))


def test_there_are_many_kinds() -> None:
    names = {form.name for form in SECRETS.forms}
    assert len(names) >= 50
    assert {name for name, _ in KEYS} <= names


@each_row("name, template", [line.split(" | ", 1) for line in SAMPLES["after their names"]])
def test_what_looks_like_nothing_is_known_by_the_name_before_it(name: str, template: str) -> None:
    for seed in range(20):
        text, value = unmarked(made(template, seed))
        assert (f"secrets.{name}", value) in values(SCANNER, text)
        assert f"secrets.{name}" not in [form for form, _ in values(SCANNER, value)]


@each_row("text", SAMPLES["passwords"])
def test_values_under_a_name_that_promises_a_secret_are_found_whole(text: str) -> None:
    text, value = unmarked(text)
    assert value in found(text)


SETTINGS = {
    "DB_PASSWORD": "a1{alnum:13}b2c",
    "AWS_SECRET_ACCESS_KEY": "a1{base64:35}b2c",
    "DD_API_KEY": "a1{hex:27}b2c",
    "DATADOG_APP_KEY": "a1{hex:35}b2c",
    "internal_auth_token": "a1{alnum:27}b2c",
}


@each_row("around", SAMPLES["settings"])
@each_row("name, template", SETTINGS.items())
def test_the_name_of_a_setting_tells_what_its_value_is_wherever_it_stands(
    name: str, template: str, around: str
) -> None:
    for seed in range(5):
        value = made(template, (around, seed))
        assert value in found(around.replace("⟦name⟧", name).replace("⟦value⟧", value))


@each_row("value", ["Lme_TXtAKfY4", "ZaKvzgRTvqIq", "Xk2pQ9vL"])
@each_row("around", ["{}", "I set PG_DSN to {} today", "| PG_DSN | `{}` |", 'dsn = "{}"'])
@each_row("connection", SAMPLES["connections"])
def test_passwords_of_connection_strings_are_found(connection: str, around: str, value: str) -> None:
    assert value in found(around.format(connection.replace("⟦value⟧", value)))


@each_row("value", ["Copper-Lantern175", "Umogesur811!", "Meadow_Bridge58"])
@each_row("around", ["| DB_PASSWORD | {} |", 'SMTP_PASS = "{}"', '{{"admin_pwd": "{}"}}'])
def test_passwords_of_words_and_digits_are_found(around: str, value: str) -> None:
    assert value in found(around.format(value))


@each_row("text", ["", string.printable, *SAMPLES["harmless"]])
def test_what_only_looks_like_a_secret_is_not_found(text: str) -> None:
    assert values(SCANNER, text) == []


def test_a_key_under_a_name_counts_once_and_no_finding_shows_it() -> None:
    value = made("sk-{alnum:48}", 1)
    seen = Classifier([SECRETS], {"internal": 0, "secret": 1}).classify(request(text=f"api_key = {value}"), [])
    assert [finding.detector for finding in seen.findings] == ["secrets.openai"]
    assert seen.data_class == "secret"
    assert value not in repr(seen)
