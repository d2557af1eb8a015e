"""What a law or an originator marks is found; talk about secrets is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.classify.scanner import Scanner
from router.classify.sensitivity.markings import Markings

MARKINGS = Markings.model_validate({"kind": "markings", "class": "export"})
SCANNER = Scanner([MARKINGS])
COMPANY = Scanner([Markings.model_validate({"kind": "markings", "class": "internal", "only": ["company"]})])

MARKED = {
    "This drawing contains ITAR-controlled technical data.": ("itar", "ITAR-controlled"),
    "is subject to the International Traffic in Arms Regulations": (
        "itar",
        "subject to the International Traffic in Arms Regulations",
    ),
    "controlled under 22 CFR 121.1": ("itar", "22 CFR 121"),
    "falls into USML Category XI(c)": ("itar", "USML Category XI"),
    "U.S. Munitions List, Category VIII": ("itar", "U.S. Munitions List, Category VIII"),
    "The part is classified as EAR99.": ("ear", "EAR99"),
    "ECCN: 5A002.a.1": ("ear", "ECCN: 5A002.a.1"),
    "Export Control Classification Number (ECCN) 3A001": ("ear", "Export Control Classification Number (ECCN) 3A001"),
    "Subject to the Export Administration Regulations (EAR)": (
        "ear",
        "Subject to the Export Administration Regulations",
    ),
    "see our Technology Control Plan": ("ear", "Technology Control Plan"),
    "TOP SECRET//SI//NOFORN\nbody": ("us_classified", "TOP SECRET//SI"),
    "SECRET//NOFORN": ("us_classified", "SECRET//NOFORN"),
    "(S//NF) The convoy left.": ("us_classified", "S//NF"),
    "** TOP SECRET **\nx": ("us_classified", "** TOP SECRET **"),
    "Classification: SECRET": ("us_classified", "Classification: SECRET"),
    "Declassify On: 20451231": ("us_classified", "Declassify On: 20451231"),
    "CUI//SP-CTI": ("cui", "CUI//SP-CTI"),
    "CUI\n\nThe report": ("cui", "CUI"),
    "this document contains CUI": ("cui", "contains CUI"),
    "CONTROLLED UNCLASSIFIED INFORMATION": ("cui", "CONTROLLED UNCLASSIFIED INFORMATION"),
    "UNCLASSIFIED//FOUO": ("us_classified", "UNCLASSIFIED//FOUO"),
    "FOR OFFICIAL USE ONLY": ("cui", "FOR OFFICIAL USE ONLY"),
    "NATO RESTRICTED": ("nato", "NATO RESTRICTED"),
    "COSMIC TOP SECRET": ("nato", "COSMIC TOP SECRET"),
    "RESTREINT UE/EU RESTRICTED": ("eu", "RESTREINT UE"),
    "listed in Annex I of Regulation (EU) 2021/821": ("eu", "Annex I of Regulation (EU) 2021/821"),
    "OFFICIAL-SENSITIVE": ("uk", "OFFICIAL-SENSITIVE"),
    "VS-NUR FÜR DEN DIENSTGEBRAUCH": ("germany", "VS-NUR FÜR DEN DIENSTGEBRAUCH"),
    "VS – Nur für den Dienstgebrauch": ("germany", "VS – Nur für den Dienstgebrauch"),
    "VS-NfD eingestuft": ("germany", "VS-NfD"),
    "DIFFUSION RESTREINTE": ("france", "DIFFUSION RESTREINTE"),
    "OFFICIAL: Sensitive": ("australia", "OFFICIAL: Sensitive"),
    "PROTECTED B / PROTÉGÉ B": ("canada", "PROTECTED B"),
    "TLP:RED": ("tlp", "TLP:RED"),
    "shared as TLP:AMBER+STRICT today": ("tlp", "TLP:AMBER+STRICT"),
    "DISTRIBUTION STATEMENT D. Distribution authorized": ("distribution", "DISTRIBUTION STATEMENT D"),
    "REL TO USA, GBR": ("foreign_nationals", "REL TO USA"),
    "no foreign nationals may see it": ("foreign_nationals", "no foreign nationals may"),
}
UNMARKED = [
    "",
    "it is a secret",
    "this is top secret, don't tell mum",
    "confidential information about our company",
    "What is ITAR, and who has to comply with it?",
    "Explain the International Traffic in Arms Regulations in two sentences.",
    "ear infection, ear 99 times, near99, EAR",
    "ECCN is short for export control classification number",
    "the US Munitions List has many categories",
    "TLP:GREEN and TLP:CLEAR may be shared; TLP is a protocol",
    "Distribution Statement A. Approved for public release",
    "The official was sensitive about it.",
    "NATO held a meeting; its members restricted flights.",
    "SECRET_KEY and SECRETS in the environment",
    "http://example.com//S//index",
    "(C) Copyright 2026, (S) small, (C) third option",
    "streng geheime Zutaten, sagte der Koch",
    "a protected branch, Protected Bike Lane",
    "The unclassified galaxies were controlled for in the study.",
    "cui bono? la persona cui ho scritto",
    "Restricted stock units vest in 2027",
    "CONFIDENTIAL",
    "Internal use only",
    "C//REVIEW and 22 CFR 11",
]


@pytest.mark.parametrize("text", MARKED)
@pytest.mark.parametrize("around", ["{}", "Dear all,\n{}\nBest, Jörg"])
def test_markings_are_found_whole(text: str, around: str) -> None:
    name, value = MARKED[text]
    whole = around.format(text)
    assert (f"markings.{name}", value) in [(hit.form, whole[hit.start : hit.end]) for hit in SCANNER.scan(whole)]


@pytest.mark.parametrize("text", UNMARKED)
def test_talk_about_secrets_is_unmarked(text: str) -> None:
    assert SCANNER.scan(text) == []


@pytest.mark.parametrize(
    "line", ["CONFIDENTIAL", "Strictly confidential", "*** Proprietary & Confidential ***", "Vertraulich"]
)
def test_a_company_s_own_line_is_found_where_the_policy_asks(line: str) -> None:
    (hit,) = COMPANY.scan(f"Quarterly plan\n{line}\nRevenue is up.")
    assert hit.form == "markings.company"
    assert COMPANY.scan(f"This is {line} information, and more of it") == []
    assert SCANNER.scan(f"Quarterly plan\n{line}\nRevenue is up.") == []


def test_the_policy_may_look_for_some_only() -> None:
    one = Scanner([Markings.model_validate({"kind": "markings", "class": "export", "only": ["tlp"]})])
    assert [hit.form for hit in one.scan("TLP:RED\nSECRET//NOFORN")] == ["markings.tlp"]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*MARKED, *UNMARKED, "\n"]) | st.text(max_size=8), max_size=5).map("".join))
def test_findings_lie_inside_the_text(text: str) -> None:
    assert all(0 <= hit.start < hit.end <= len(text) for hit in SCANNER.scan(text))
