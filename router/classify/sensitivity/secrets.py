"""Keys, tokens, private keys and passwords. Prefixes, lengths and alphabets are those that the issuers document."""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import re2
from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Confirm, Form, Span
from router.classify.sensitivity import assignments
from router.classify.sensitivity import assignments as mentions
from router.classify.sensitivity.assignments import filler, jumbled, password, patchy, token
from router.types.request import Finding

_TOKENS = {
    "aws_access_key": r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}",
    "azure_sas": r"[?&;]sig=[0-9A-Za-z%+/]{43,}=*",
    "azure_storage_key": r"(?:Account|SharedAccess)Key=[0-9A-Za-z+/]{42,}={0,2}",
    "google": r"AIza[0-9A-Za-z_-]{35}|GOCSPX-[0-9A-Za-z_-]{28}|ya29\.[0-9A-Za-z_-]{30,}",
    "google_service_account": r'\\?"private_key_id\\?"\s*:\s*\\?"[0-9a-f]{40}\\?"',
    "github": r"gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{50,}",
    "gitlab": r"gl(?:pat|ptt|dt|rt|cbt|ft|imt|agent|oas|soat|ffct)-[0-9A-Za-z_-]{20,}(?:\.[0-9a-z]+)*"
    r"|GR1348941[0-9A-Za-z_-]{20,}",
    "atlassian": r"ATATT3[0-9A-Za-z_=-]{50,}",
    "bitbucket": r"ATBB[0-9A-Za-z]{32}|ATCTT3[0-9A-Za-z_=-]{50,}",
    "npm": r"npm_[0-9A-Za-z]{36}",
    "pypi": r"pypi-[0-9A-Za-z_-]{50,}",
    "rubygems": r"rubygems_[0-9a-f]{48}",
    "docker": r"dckr_[op]at_[0-9A-Za-z_-]{27,}",
    "slack": r"xox[abeoprs]-[0-9A-Za-z-]{10,}|xapp-\d-[0-9A-Za-z-]{20,}"
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/[0-9A-Za-z_/-]{24,}",
    "discord": r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d{17,20}/[0-9A-Za-z_-]{60,}",
    "twilio": r"\bSK[0-9a-f]{32}\b",
    "sendgrid": r"SG\.[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]{16,}",
    "mailgun": r"\bkey-[0-9a-f]{32}\b|\b[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}\b",
    "stripe": r"[rs]k_(?:live|test)_[0-9A-Za-z]{16,}|whsec_[0-9A-Za-z+/]{24,}=*",
    "square": r"sq0(?:atp|csp|idp)-[0-9A-Za-z_-]{22,}|\bEAAA[0-9A-Za-z_-]{56,64}\b",
    "shopify": r"shp(?:at|ca|pa|ss|tka)_[0-9A-Fa-f]{32}",
    "openai": r"sk-(?:proj|svcacct|admin|None)-[0-9A-Za-z_-]{20,}|sk-[0-9A-Za-z]{32,}",
    "anthropic": r"sk-ant-[0-9A-Za-z_-]{20,}",
    "openrouter": r"sk-or-(?:v\d-)?[0-9A-Za-z]{32,}",
    "hugging_face": r"hf_[0-9A-Za-z]{30,}|api_org_[0-9A-Za-z]{34}",
    "groq": r"gsk_[0-9A-Za-z]{40,}",
    "xai": r"xai-[0-9A-Za-z]{60,}",
    "replicate": r"\br8_[0-9A-Za-z]{37,}",
    "perplexity": r"pplx-[0-9A-Za-z]{40,}",
    "lowpass": r"lp-[0-9A-Za-z]{40,}",
    "databricks": r"\bdapi[0-9a-f]{32}(?:-\d)?\b",
    "digitalocean": r"do[opr]_v1_[0-9a-f]{64}",
    "cloudflare": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{146}",
    "heroku": r"HRKU-[0-9A-Za-z_-]{36,}",
    "vault": r"\bhv[bsr]\.[0-9A-Za-z_-]{20,}",
    "new_relic": r"NR(?:AK|AL|RA|BR)-[0-9A-Za-z]{20,}",
    "sentry": r"sntrys_eyJ[0-9A-Za-z_+/=-]{40,}|sntryu_[0-9a-f]{64}",
    "grafana": r"glc_eyJ[0-9A-Za-z+/=]{32,}|glsa_[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}|\beyJrIjoi[0-9A-Za-z+/=]{40,}",
    "linear": r"lin_(?:api|oauth)_[0-9A-Za-z]{32,}",
    "doppler": r"\bdp\.(?:pt|st|sa|scim|audit|ct)\.(?:[0-9a-z_-]{2,35}\.)?[0-9A-Za-z]{40,44}\b",
    "notion": r"\bntn_[0-9A-Za-z]{40,}|\bsecret_[0-9A-Za-z]{43}\b",
}
"""Whoever issued it, by what it begins with or how it is built."""
_VALUES = {
    "aws_secret_key": (r"aws[\w .-]*secret[\w .-]*|secret_?access_?key", r"[0-9A-Za-z/+]{40}"),
    "azure_client_secret": (r"azure[\w .-]*secret", r"[0-9A-Za-z_~.-]{34,44}"),
    "twilio": (r"twilio[\w .-]*(?:token|secret|key)", r"[0-9a-f]{32}"),
    "mistral": (r"mistral[\w .-]*(?:token|key|secret)", r"[0-9A-Za-z]{32}"),
    "heroku": (r"heroku[\w .-]*(?:token|key|secret|password)", r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
    "cloudflare": (r"(?:cloudflare[\w .-]*|\bcf[_-]api[_-])(?:token|key|secret)", r"[0-9A-Za-z_-]{40}|[0-9a-f]{37}"),
    "datadog": (r"(?:datadog[\w .-]*|\bdd[_-]ap(?:i|p|plication)[_-])key", r"[0-9a-f]{40}|[0-9a-f]{32}"),
    "paypal": (r"(?:paypal|braintree)[\w .-]*(?:secret|token)", r"[0-9A-Za-z_-]{60,80}"),
}
"""Looks like many other things: only under its issuer's name."""
_HEADED = {
    "azure_client_secret": (r"[0-9A-Za-z_~.-]{3}\d", r"Q~[0-9A-Za-z_~.-]{31,34}"),
    "telegram": (r"\b\d{8,10}", r":AA[0-9A-Za-z_-]{33}\b"),
    "mailchimp": (r"\b[0-9a-f]{32}", r"-us\d{1,2}\b"),
    "terraform": (r"[0-9A-Za-z]{14}", r"\.atlasv1\.[0-9A-Za-z_-]{60,}"),
    "new_relic": (r"\b[0-9a-f]{36}", r"NRAL\b"),
    "paypal": (r"access_token", r"\$(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
}
"""Known by its middle: what stands before it is looked at afterwards, as a run of anything makes an automaton large."""
_HEAD_REACH = 64
_ASSIGNED = r"""["'`\])\\]*[ \t]*(?::?[:=]>?|>|\bis\b|,)[ \t]*["'`\\]*"""
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?:-?[^-])*-----END [A-Z0-9 ]+-----|[0-9A-Za-z+/=\s\\]*)"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{58}|PuTTY-User-Key-File-\d(?:-?[^-])*Private-Lines: \d+[\s\\0-9A-Za-z+/=]+"
)
_KEY_MATTER = re2.compile(r"[0-9A-Za-z+/]{16}")
_JWT = r"eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}(?:\.[0-9A-Za-z_-]+){0,2}"
_LONGEST_HEADER = 4_096
"""Characters of a token's header that are decoded."""
_DISCORD = r"\b[MNO][0-9A-Za-z_-]{23,27}\.[0-9A-Za-z_-]{6}\.[0-9A-Za-z_-]{27,}"
_URL = r""":(?:\\?/){2}[^\s:/@?#"'<>\\]*:[^\s/"'<>\\]+@[^\s"'<>\\]+"""
_SCHEME = re2.compile(r"[A-Za-z][0-9A-Za-z+.-]*$")
_SENTENCE_END = ".,;:!?)]}`"
_BEARER = r"(?i:\bbearer|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:token|api-?key|key))[ \t]+[0-9A-Za-z._~+/=-]{16,}"
_BASIC = r"(?i:\bbasic)[ \t]+[0-9A-Za-z+/_-]{8,}={0,2}"
_NETRC = r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+\S+"
_PGPASS = r"(?m::(?:\d{3,5}|\*):[^\s:]+:[^\s:]+:[^\s:]+$)"
_HOST = re2.compile(r"[\w.*-]+")
_LAST_WORD = re2.compile(r"(?:[ \t]-p|[\s:])[\"']?([^\s:\"']+)$")
_COMMANDS = (
    r"(?:\s-u|--user|--proxy-user)[ =][\"']?[^\s:\"'$/]+:[^\s\"':][^\s\"']*|\bsshpass[ \t]+-p[ \t]*\S+"
    r"|\b(?:mysql|mysqldump|mariadb|mongo|mongosh)[ \t][^\n|;]*[ \t]-p[\"']?[^\s\"']{4,}"
)


class Secrets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["secrets"]
    data_class: str = Field(alias="class")

    @property
    def forms(self) -> tuple[Form, ...]:
        return _FORMS

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        """An assignment is left out where a key that has a name lies in its place."""
        named = [one for one in own if one.detector != _ASSIGNMENT]
        places = {(one.path, one.end) for one in named}
        return [one for one in own if one.detector != _ASSIGNMENT or (one.path, one.end) not in places]


def _token(text: str, start: int, end: int) -> Iterator[Span]:
    value = text[start:end]
    if not filler(value) and (value.isalnum() or any(map(str.isdigit, value)) or jumbled(value)):
        yield Span(start, end)


def _headed(head: str) -> Confirm:
    find = re2.compile(f"(?:{head})$")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = find.search(text[max(0, start - _HEAD_REACH) : start])
        if match is not None:
            yield from _token(text, start - len(match.group()), end)

    return confirm


def _value_of(charset: str) -> Confirm:
    """The end of a match that is made of these characters."""
    find = re2.compile(f"(?:{charset})$")

    def confirm(text: str, start: int, end: int) -> Iterator[Span]:
        match = find.search(text[start:end])
        follows = text[end : end + 1]
        if match is not None and not filler(match.group()) and not (follows.isalnum() or follows == "_"):
            yield Span(start + match.start(), end)

    return confirm


def _private_key(text: str, start: int, end: int) -> Iterator[Span]:
    """Program code and documentation name the first line alone."""
    if text.startswith("AGE", start) or _KEY_MATTER.search(text[start:end].partition("KEY")[2]):
        yield Span(start, end)


def _jwt(text: str, start: int, end: int) -> Iterator[Span]:
    header = _decoded(text[start : min(end, start + _LONGEST_HEADER)].partition(".")[0])
    try:
        fields: Any = msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(fields, dict) and "alg" in fields:
        yield Span(start, end)


def _discord(text: str, start: int, end: int) -> Iterator[Span]:
    """Its first part is the number of a user; whatever else is built so precisely by chance is none of a program."""
    user, _, rest = text[start:end].partition(".")
    if _decoded(user).isdigit() or (
        len(user) in (24, 26) and len(rest) in (34, 45) and all(map(_chaotic, (user, rest[7:])))
    ):
        yield Span(start, end)


def _chaotic(part: str) -> bool:
    return any(map(str.isdigit, part)) and (patchy(part) or jumbled(part))


def _decoded(part: str) -> bytes:
    """base64url without padding; empty where it is something else."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        return b""


def _credentials(text: str, start: int, end: int) -> Iterator[Span]:
    whole = text[start:end].rstrip(_SENTENCE_END)
    scheme = _SCHEME.search(text[max(0, start - _HEAD_REACH) : start])
    value = whole.partition("/")[2].lstrip("\\/").rpartition("@")[0].partition(":")[2]
    if scheme is not None and password(value, bare_words=True):
        yield Span(start - len(scheme.group()), start + len(whole))


def _bearer(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(text.rfind(" ", start, end), text.rfind("\t", start, end)) + 1
    if token(text[first:end]):
        yield Span(first, end)


def _basic(text: str, start: int, end: int) -> Iterator[Span]:
    first = max(text.rfind(" ", start, end), text.rfind("\t", start, end)) + 1
    name, colon, secret = _decoded(text[first:end].rstrip("=")).partition(b":")
    if (
        colon
        and name.isascii()
        and name.decode("ascii").isprintable()
        and not filler(secret.decode("utf-8", "replace"))
    ):
        yield Span(first, end)


def _last_word(text: str, start: int, end: int) -> Iterator[Span]:
    """Login and password of a file, an argument of a command: what stands after the last blank or option."""
    value = _LAST_WORD.search(text[start:end])
    if value is not None and password(value.group(1), bare_words=True):
        yield Span(start + value.start(1), end)


def _pgpass(text: str, start: int, end: int) -> Iterator[Span]:
    """Of `host:port:database:user:password`."""
    host = text[max(0, start - _HEAD_REACH) : start].rpartition("\n")[2]
    value = text[start:end].rpartition(":")[2]
    if _HOST.fullmatch(host) and password(value):
        yield Span(end - len(value), end)


def _forms() -> Iterator[Form]:
    yield from (Form(name, pattern, _token) for name, pattern in _TOKENS.items())
    yield from (Form(name, pattern, _headed(head)) for name, (head, pattern) in _HEADED.items())
    for name, (issuer, value) in _VALUES.items():
        yield Form(name, f"(?i:{issuer})(?:{_ASSIGNED}|(?i:{mentions.GAP}))(?:{value})", _value_of(value))
    yield Form("private_key", _PRIVATE_KEY, _private_key)
    yield Form("jwt", _JWT, _jwt)
    yield Form("discord", _DISCORD, _discord)
    yield Form("connection_string", _URL, _credentials)
    yield Form("authorization", _BEARER, _bearer)
    yield Form("authorization", _BASIC, _basic)
    yield Form("password_file", _NETRC, _last_word)
    yield Form("password_file", _PGPASS, _pgpass)
    yield Form("command_line", _COMMANDS, _last_word)
    yield Form("assignment", assignments.PATTERN, assignments.confirm)
    yield Form("assignment", mentions.MENTIONS_PATTERN, mentions.mentions_confirm)


_FORMS = tuple(_forms())
_ASSIGNMENT = "secrets.assignment"
