"""The detector of identifiers: what states, banks, insurers and networks assign to a person or an account."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from router.classify.detector import Confirm, DetectorModel, Form
from router.classify.sensitivity import checksums, numbers
from router.classify.sensitivity.context_rules import FAR, NEAR, NUMBER_NAMES, Valid, always, by_word, shaped, whole
from router.classify.sensitivity.numbers import NUMBERS, reject_hashes
from router.classify.sensitivity.phones import PHONES_FORMS
from router.types.request import Finding, Path


def _form(row: dict[str, Any]) -> Form:
    """Returns the form of a row of `forms` in data/identifiers.yaml, where its fields are explained."""
    name, check = row["form"], row.get("check", "")
    checks = [
        import_module(each).is_valid if each.startswith("stdnum.") else getattr(checksums, each)
        for each in filter(None, check.split("|"))
    ]

    def one_agrees(number: str) -> bool:
        return any(is_valid(number) for is_valid in checks)

    valid: Valid = one_agrees if len(checks) > 1 else [*checks, always][0]
    if "words" in row:
        reach = row.get("reach", FAR)
        return by_word(name, row["words"], row["number"], valid, NEAR if reach == "near" else reach)
    confirm: Confirm | None = getattr(numbers, row["confirm"]) if "confirm" in row else None
    if confirm is None and (check or "whole" in row):
        confirm = shaped(valid, name if row.get("own") else "")
        confirm = reject_hashes(confirm) if row.get("no_hash") else confirm
    pattern = whole(row["whole"]) if "whole" in row else row["pattern"]
    family = row.get("family", "number" if "whole" in row else "")
    return Form(name, pattern, confirm, family=family, gate=NUMBER_NAMES["gates"].get(family, ""))


IDENTIFIERS_FORMS: tuple[Form, ...] = (
    *map(_form, NUMBERS["forms"]),
    *PHONES_FORMS,
    *map(_form, NUMBERS["forms_of_places_and_days"]),
)
"""If a value matches several forms, the first of them counts."""
if TYPE_CHECKING:
    FormName = str
else:
    FormName = Literal[tuple(sorted({form.name for form in IDENTIFIERS_FORMS}))]
_ORDER = {f"identifiers.{form.name}": place for place, form in reversed(tuple(enumerate(IDENTIFIERS_FORMS)))}


class Identifiers(DetectorModel):
    """Finds identifiers: `only` these forms, or all but those in `without`."""

    kind: Literal["identifiers"]
    only: tuple[FormName, ...] = ()
    without: tuple[FormName, ...] = ()

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(
            form
            for form in IDENTIFIERS_FORMS
            if form.name in (self.only or (form.name,)) and form.name not in self.without
        )

    def conclude(self, own: Sequence[Finding], findings: Sequence[Finding]) -> Sequence[Finding]:
        """Returns one finding per value: drops those within a longer one, unless only the shorter can be replaced."""
        covered_until: dict[tuple[Path, bool], int] = {}
        widest = []
        for finding in sorted(own, key=lambda each: (each.start, -each.end, not each.exact, _ORDER[each.detector])):
            if all(finding.end > covered_until.get((finding.path, exact), -1) for exact in {True, finding.exact}):
                covered_until[finding.path, finding.exact] = finding.end
                widest.append(finding)
        return widest
