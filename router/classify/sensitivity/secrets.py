"""Keys, tokens and private keys, by the prefixes that their issuers document."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form
from router.types.classification import Finding

_KEY = (
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}"
    r"|gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{50,}|glpat-[0-9A-Za-z_-]{20,}"
    r"|sk-ant-[0-9A-Za-z_-]{20,}|sk-(?:proj-|or-v1-)?[0-9A-Za-z_-]{32,}|lp-[0-9A-Za-z]{40,}"
    r"|AIza[0-9A-Za-z_-]{35}|xox[abprs]-[0-9A-Za-z-]{10,}|[rs]k_live_[0-9A-Za-z]{20,}"
    r"|npm_[0-9A-Za-z]{36}|pypi-[0-9A-Za-z_-]{50,}|hf_[0-9A-Za-z]{30,}"
    r"|eyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}"
    r"|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|(?:postgres|postgresql|mysql|mongodb(?:\+srv)?|redis|amqp)://[^\s:/@]+:[^\s@]+@[^\s]+"
)


class Secrets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    kind: Literal["secrets"]
    data_class: str = Field(alias="class")

    @property
    def forms(self) -> tuple[Form, ...]:
        return (Form("key", _KEY),)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own
