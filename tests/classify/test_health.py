"""Words of medicine count beside a person, and a person beside words of medicine; neither alone."""

import pytest

from router.classify.classify import Classifier
from router.classify.scanner import Scanner
from router.classify.sensitivity import Identifiers
from router.classify.sensitivity.health import Health
from router.types.classification import Cause, Finding
from tests.decide.values import request

HEALTH = Health.model_validate({"kind": "health", "class": "phi"})
IDENTIFIERS = Identifiers.model_validate({"kind": "identifiers", "class": "pii"})
SCANNER = Scanner([HEALTH])
RANKS = {"internal": 0, "pii": 1, "phi": 2}


def classes(text: str) -> frozenset[str]:
    return Classifier([IDENTIFIERS, HEALTH], RANKS).classify(request(text=text), [Cause("internal", "default")]).classes


PROTECTED = [
    "Patient: John Smith, DOB 01/02/1960. Assessment: type 2 diabetes, on metformin 500 mg.",
    "MRN 00482913: started on warfarin after pulmonary embolism.",
    "jane.roe@example.org was diagnosed with multiple sclerosis last year.",
    "SSN 536-90-4399, scheduled for a colonoscopy",
    "Member ID: XYZ 123456789. Claim for chemotherapy.",
    "Mrs. Keller was admitted on 2026-03-04 with chest pain and shortness of breath.",
    "Date of birth: March 4, 1971. ICD-10: E11.9",
    "Patient ID 77123-A: HbA1c 8.4 %, BP 150/95",
    "Frau Meier, geb. 04.03.1971, leidet an Bluthochdruck und nimmt Ramipril.",
    "Summarise: patient Anna-Maria O'Neil, HIV positive, viral load: 40",
    "Pt. Robert Brown\nDx: F32.1\nRx sertraline 50 mg",
    "john@example.com\nCPT 99213 and CPT code: 45378",
    "Medicare number: 1EG4-TE5-MK73, dialysis three times a week",
    "Born on 12 May 1980; symptoms: fever, vomiting",
    "Ms. O'Connor is pregnant and was prescribed folic acid",
]
HARMLESS = [
    "",
    "What are the side effects of metformin?",
    "Explain how chemotherapy and radiotherapy differ.",
    "Type 2 diabetes and hypertension are risk factors for stroke.",
    "A study of 1,200 patients with atrial fibrillation on apixaban (2019).",
    "Is ibuprofen or paracetamol better for a headache?",
    "ICD-10 code E11.9 stands for what?",
    "LDL 130 mg/dl: is that high?",
    "The Patient Protection and Affordable Care Act covers preexisting asthma.",
    "Our Patient Care Team and Patient Portal help with migraine.",
    "Write to jane.roe@example.org about the invoice.",
    "Patient: John Smith, DOB 01/02/1960",
    "MRN 00482913",
    "Mr. Smith moved the meeting to Monday.",
    "born on 12 May 1980 in Ulm, she studied law",
    "SSN 536-90-4399",
    "the operation of the pump; discharge 2026-03-04 of the battery",
    "jane.roe@example.org says the economic depression is over",
    "Contact a@b.io about the surgery of the codebase",
    "The Great Depression, a stroke of luck, cancer the zodiac sign",
]


@pytest.mark.parametrize("text", PROTECTED)
def test_a_person_s_health_is_found(text: str) -> None:
    assert "phi" in classes(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_neither_health_nor_a_person_alone_is(text: str) -> None:
    assert "phi" not in classes(text)


@pytest.mark.parametrize("by", ["names.person", "identifiers.phone"])
def test_a_person_may_be_found_by_another_detector(by: str) -> None:
    term = Finding("health.drug", "phi", ("messages", 0, "content"), 0, 9)
    person = Finding(by, "pii", ("messages", 3, "content"), 5, 9)
    assert HEALTH.conclude([term], [term, person]) == [term]
    assert not HEALTH.conclude([term], [term])


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("had Crohn's disease before", "condition", "Crohn's disease"),
        ("pulmonary\nembolism", "condition", "pulmonary\nembolism"),
        ("took METFORMIN daily", "drug", "METFORMIN"),
        ("after mastectomy", "procedure", "mastectomy"),
        ("HbA1c: 8.4", "lab", "HbA1c: 8.4"),
        ("dx: F32.1 noted", "code", "dx: F32.1"),
        ("über MRN: AB-123456 hier", "mrn", "MRN: AB-123456"),
        ("the patient Ana García came", "patient", "patient Ana García"),
        ("DOB: 1/2/60", "birth_date", "DOB: 1/2/60"),
        ("admitted on 2026-03-04", "admission", "admitted on 2026-03-04"),
    ],
)
def test_each_is_found_whole(text: str, form: str, value: str) -> None:
    assert (f"health.{form}", value) in [(hit.form, text[hit.start : hit.end]) for hit in SCANNER.scan(text)]


def test_a_word_within_a_word_is_none() -> None:
    assert SCANNER.scan("goutte metforminoid anginal copdx") == []
