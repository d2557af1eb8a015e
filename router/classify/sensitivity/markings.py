"""Markings that law or an originator puts on a text: export control, classification, handling, distribution.

After 22 CFR 120–130 (ITAR), 15 CFR 730–774 (EAR), the CUI registry and the ISOO marking handbooks, C-M(2002)49 (NATO),
2013/488/EU, the British GSCP, the German VSA, DoDI 5230.24 and FIRST's TLP 2.0.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from router.classify.detector import Form
from router.types.request import Finding

Marking = Literal[
    "itar", "ear", "us_classified", "cui", "nato", "eu", "uk", "germany", "france", "australia", "canada", "tlp",
    "distribution", "foreign_nationals", "company",
]  # fmt: skip
_OPTIONAL = "company"

_BEFORE, _BEHIND = r"(?m:^[\t *#>=_(\[<-]*)(?:", r")(?m:[\t *#=_)\]>.-]*$)"
"""Alone on its line, but for what frames it."""
_CAVEAT = (
    r"(?:NOFORN|ORCON|FVEY|REL(?: TO)? [A-Z]{3,4}|RELIDO|PROPIN|IMCON|SI(?:-[A-Z]+)?|TK|HCS(?:-[A-Z]+)?|SAP|SAR-[A-Z]+"
    r"|COMINT|TALENT KEYHOLE|RD|FRD|CNWDI|NF|OC|FGI|LES|SBU|FOUO)"
)
_ECCN = r"[0-9][A-E][0-9]{3}(?:\.[a-z0-9]+)*\b"
_UNDER = (
    r"(?i:(?:subject to|controlled (?:by|under)|restricted by|governed by|regulated by|pursuant to|accordance with) )"
)
_LEVEL = r"(?:TOP SECRET|SECRET|CONFIDENTIAL)"

_PATTERNS: dict[str, tuple[str, ...]] = {
    "itar": (
        r"\bITAR[- ](?i:controlled|restricted|technical data|data|export|marking|notice|protected|regulated)\b",
        rf"{_UNDER}(?i:the )?(?:ITAR\b|(?i:international traffic in arms regulations?\b))",
        rf"{_UNDER}(?i:the )?(?i:(?:u\.?s\.? )?arms export control act\b)",
        r"(?i:\b22 ?c\.?f\.?r\.? ?(?:parts? ?|§+ ?)?12[0-9]\b)",
        r"(?i:\b(?:usml|u\.?s\.? munitions list|munitions list)\b[ ,:(-]{0,3}cat(?:egory|\.)? ?)[IVX]+\b",
        rf"{_BEFORE}ITAR{_BEHIND}",
    ),
    "ear": (
        r"\bEAR ?99\b|\bEAR[- ](?i:controlled|restricted)\b",
        rf"\bECCN(?i:(?:\(s\))?[ \t:#=(-]{{0,4}}(?:is |of |number )?){_ECCN}",
        rf"(?i:\bexport control classification (?:number|no\.?)(?: \(ECCN\))?[ \t:#=]{{0,4}}(?:is |of )?){_ECCN}",
        rf"{_UNDER}(?i:the )?(?i:(?:u\.?s\.? )?export administration regulations?\b)",
        r"(?i:\b15 ?c\.?f\.?r\.? ?(?:parts? ?|§+ ?)?7[3-7][0-9]\b)",
        r"(?i:\btechnology control plan\b)",
        r"(?i:\bexport[- ]controlled (?:technical data|technology|information|data|material|document|content)\b)",
        r"(?i:\bdiversion contrary to u\.?s\.? (?:export )?law\b)",
    ),
    "us_classified": (
        rf"\b(?:{_LEVEL}|UNCLASSIFIED|TS|S|C|U)[ \t]?//[ \t]?{_CAVEAT}\b|\bTS/SCI\b|\bTOP SECRET/SC[IA]\b",
        rf"{_BEFORE}TOP SECRET{_BEHIND}",
        rf"(?i:\b(?:classification|classified|security marking|overall marking)[ \t]*[:=][ \t]*){_LEVEL}\b",
        r"(?i:\bdeclassify on:?[ \t]*(?:\d{8}|\d{4}-\d\d-\d\d|25X\d|50X\d|OADR\b|MR\b))",
        r"(?i:\bderived from:[ \t]*\S[^\n]*\n[^\n]*declassify on\b)",
    ),
    "cui": (
        r"\bCUI//(?:SP-)?[A-Z]{2,}|\bCONTROLLED//[A-Z]+",
        rf"{_BEFORE}(?:CUI|SBU|FOUO|CONTROLLED){_BEHIND}",
        r"\bCONTROLLED UNCLASSIFIED INFORMATION\b|(?i:\bcui category[ \t]*:)",
        r"(?i:\b(?:contains|handle as|marked(?: as)?|this is|designated(?: as)?|treat as) )"
        r"(?:CUI\b|(?i:controlled unclassified information\b))",
        r"\bU//FOUO\b|\(FOUO\)|\bFOUO[:/]|\b(?:FOR OFFICIAL USE ONLY|For Official Use Only)\b",
        r"\bSENSITIVE BUT UNCLASSIFIED\b|\bLAW ENFORCEMENT SENSITIVE\b|\bSENSITIVE SECURITY INFORMATION\b",
    ),
    "nato": (r"\bNATO (?:RESTRICTED|CONFIDENTIAL|SECRET|UNCLASSIFIED)\b", r"\bCOSMIC TOP SECRET\b|\bATOMAL\b"),
    "eu": (
        r"\b(?:RESTREINT|CONFIDENTIEL|SECRET|TRES SECRET)[ -]UE\b|\bTRÈS SECRET[ -]UE\b",
        r"\bEU[ -](?:RESTRICTED|CONFIDENTIAL|SECRET|TOP SECRET)\b|\bLIMITE[ -]UE\b",
        rf"(?i:\b(?:annex i|dual[- ]use)\b[^\n.;]{{0,60}}\b2021/821\b)|(?i:\bAL[- ]?Nr\.? ?){_ECCN}",
    ),
    "uk": (
        r"\bOFFICIAL[- :–]{1,3}SENSITIVE\b|\bUK (?:TOP SECRET|SECRET|OFFICIAL)\b|\bUK EYES ONLY\b",
        rf"{_BEFORE}OFFICIAL{_BEHIND}",
    ),
    "germany": (
        r"(?i:\bvs[ –-]{1,3}nur für den dienstgebrauch\b)|(?i:\bvs[–-]nfd\b)|\bVS[–-](?:VERTRAULICH|Vertraulich)\b",
        r"(?i:\bverschlusssache[ –-]{1,3}(?:nur|vertraulich|geheim))|\bSTRENG GEHEIM\b",
        rf"{_BEFORE}(?:GEHEIM|VS-GEHEIM|amtlich geheim gehalten){_BEHIND}",
    ),
    "france": (
        r"\bDIFFUSION RESTREINTE\b|\bSECRET[ -]DEFENSE\b|\bSECRET[ -]DÉFENSE\b|\bSPÉCIAL FRANCE\b",
        r"\bCONFIDENTIEL[ -]D(?:E|É)FENSE\b|\bTRÈS SECRET\b",
    ),
    "australia": (r"\bPROTECTED//[A-Z]+|\bOFFICIAL: ?Sensitive\b|\b(?:AUSTEO|AGAO)\b",),
    "canada": (r"\bPROTECTED [ABC]\b|\bPROTÉGÉ [ABC]\b|\bCANADIAN EYES ONLY\b",),
    "tlp": (r"\bTLP ?[:-] ?(?:RED|AMBER)\b(?:\+STRICT)?|(?i:\[tlp:(?:red|amber)(?:\+strict)?\])",),
    "distribution": (
        r"(?i:\bdistribution statement )[B-F]\b",
        r"(?i:\bdistribution (?:is )?(?:authorized|limited) to (?:u\.?s\.?|the department of|dod|department of))",
        r"(?i:\bwarning ?[:–-] ?this document contains technical data whose export)",
    ),
    "foreign_nationals": (
        r"\bNOFORN\b|(?i:\bnot releasable to foreign nationals\b)|\bREL TO (?:USA|FVEY)\b",
        r"(?i:\bno foreign (?:nationals|persons) (?:may|shall|are)\b)",
        r"(?i:\b(?:release|access|disclosure|restricted|limited) (?:only )?to u\.?s\.? (?:persons|citizens)\b)",
    ),
    "company": (
        rf"{_BEFORE}(?i:(?:strictly |company |highly |business |commercial[- ]in[- ])?(?:confidential|confidence)"
        rf"(?: information| property)?){_BEHIND}",
        rf"{_BEFORE}(?i:(?:company |for )?internal use only|trade secret){_BEHIND}",
        rf"{_BEFORE}(?i:proprietary (?:and|&|/) confidential|confidential (?:and|&|/) proprietary){_BEHIND}",
        rf"{_BEFORE}(?i:(?:streng )?vertraulich|betriebsgeheimnis|confidentiel|confidencial|riservato){_BEHIND}",
    ),
}


class Markings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)
    kind: Literal["markings"]
    data_class: str = Field(alias="class")
    only: tuple[Marking, ...] = Field(
        tuple(name for name in get_args(Marking) if name != _OPTIONAL),
        min_length=1,
        description="Markings to look for; `company`, a line that says confidential, is found only where it is listed.",
    )

    @property
    def forms(self) -> tuple[Form, ...]:
        return tuple(Form(name, "|".join(_PATTERNS[name])) for name in self.only)

    def conclude(self, own: Sequence[Finding], found: Sequence[Finding]) -> Sequence[Finding]:
        return own
