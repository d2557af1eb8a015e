"""Passports and driving licences: few states print a checksum, so a word must stand beside the number."""

from router.classify.sensitivity.identifiers.surroundings import beside

_REACH = 40


def _mostly_digits(number: str) -> bool:
    return sum(map(str.isdigit, number)) * 2 >= len(number)


FORMS = (
    beside(
        "passport",
        "passports? | reisepass | reisepassnummer | passnummer | passeport | pasaporte | passaporto | paspoort"
        " | pass-?nr"
        " | passaporte | 护照 | パスポート | паспорт",
        r"(?i)[A-Z]{1,3} ?\d{6,8}[A-Z]?|\d{8,9}|[CFGHJK][0-9CFGHJKLMNPRTVWXYZ]{8}|\d{2}[A-Z]{2}\d{5}",
        _mostly_digits,
        _REACH,
    ),
    beside(
        "driving_licence",
        "driv(?:er'?s?|er’s|ing) (?:licen[cs]e|permit) | driver_license | licen[cs]e (?:number|no\\.?)"
        " | dl ?(?:number|no\\.?|#)"
        " | führerschein | führerscheinnummer | permis de conduire | permiso de conducir | carnet de conducir"
        " | patente di guida | rijbewijs",
        r"(?i)[A-Z]\d{3}[ -]?\d{3,4}[ -]?\d{2,4}(?:[ -]?\d{1,4})?|[A-Z]{1,2}\d{5,13}|\d{7,12}[A-Z]?"
        r"|[A-Z9]{5}\d{6}[A-Z9]{2}\d?[A-Z]{2}"
        r"|[A-Z]\d{2}[0-9A-Z]{6,8}",
        reach=_REACH,
    ),
)
