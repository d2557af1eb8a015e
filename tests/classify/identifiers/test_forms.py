"""What is an identifier, one table a form: printed in several ways, beside words; and what only looks like one."""

from typing import get_args

import pytest
from pydantic import ValidationError

from router.classify.detector import POSSIBLE, SURE
from router.classify.scanner import Scanner
from router.classify.sensitivity import Identifiers
from router.classify.sensitivity.identifiers import FORMS, FormName
from router.types.classification import Finding


def identifiers(**choice: list[str]) -> Identifiers:
    return Identifiers.model_validate({"kind": "identifiers", "class": "pii", **choice})


ALL = identifiers()
SCANNER = Scanner([ALL])


def found(text: str) -> list[tuple[str, str]]:
    """Form and value, one a place."""
    sure = dict.fromkeys(hit for hit in SCANNER.scan(text) if hit.score >= SURE)
    hits = [Finding(*hit[:2], (), hit.start, hit.end) for hit in sure]
    return [(one.detector.partition(".")[2], text[one.start : one.end]) for one in ALL.conclude(hits, hits)]


FOUND = {
    "card": [
        "card <4111 1111 1111 1111>, thanks",
        "<5500-0000-0000-0004>",
        "<378282246310005>",
        "<3782 822463 10005>",
        "<3056 930902 5904>",
        "<6011000990139424>",
        "<3530111333300000>",
        "<4111 1111 1111 1111> 123",
        "<4111111111111111> 12 27 123",
        "no. 12 <4111 1111 1111 1111>",
        "2026 12 31 <4111111111111111>",
        "ref AB12 <4111 1111 1111 1111>",
        "card_<4111111111111111>_x",
        '{"pan":"<4111111111111111>"}',
        "1,<4111111111111111>,2",
        "<4111\u00a01111\u00a01111\u00a01111>",
        "<4111–1111–1111–1111>",
        "<4111.1111.1111.1111>",
        "<4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1>",
        "Doe,<4111111111111111>.0\nRoe,\n",
        '{"card": <4111111111111111>.0, "n": 1}',
    ],
    "card_code": ["CVV: <123>", "card security code is <1234>"],
    "card_track": ["<%B4111111111111111^DOE/JOHN^2512101>", "<;4111111111111111=2512101>"],
    "iban": [
        "IBAN <DE89 3704 0044 0532 0130 00>",
        "<DE89370400440532013000>",
        "IBAN<DE89370400440532013000>",
        "<BE68 5390 0754 7034> EUR 500",
        "<AT61 1904 3002 3457 3201> BIC",
        "<GB82 WEST 1234 5698 7654 32>",
        "<gb82 west 1234 5698 7654 32>",
        "send it to <de89 3704 0044 0532 0130 00> asap",
        "my account <de89370400440532013000> at ing",
        "<NO93 8601 1117 947>",
        "<FR14-2004-1010-0505-0001-3M02-606>",
        "account_<MT84MALT011000012345MTLCAST001S>",
    ],
    "bic": ["BIC: <DEUTDEFF500>", "SWIFT code <DEUTDEFF>"],
    "routing_number": ["routing number <021000021>", "ABA <011401533>"],
    "bank_account": [
        "account number: <12345678901>",
        "transfer it to account <12345678>",
        "acct no. <5577-9911>",
        "sort code <20-00-00>",
        "BSB <062-000>",
        "transit <12345-003>",
        "Kontonummer <1234567>",
    ],
    "email": [
        "mail to <ada.lovelace+x@mail.example.co.uk> now",
        "<a@b.io>",
        "grüße an <jörg@beispiel.de>",
        "<info@müller.example>",
        '<"ada lovelace"@example.org> wrote',
        "<ada [at] example [dot] com>",
        "<ada at example dot com>",
        "mailto:<ada@example.com>?subject=x",
        "see https://example.com/?to=<ada@example.com>",
        "Ada <<ada@example.com>>",
        "'<ada@example.com>'.",
    ],
    "phone": [
        "<+44(0)117 496 0123>",
        "<+49 (0) 5102 734646>",
        "<+33 (0)1 47 54 74 99>",
        "<+14155550123>",
        "<001-281-390-7236>",
        "<(261)609-9069x58483>",
        "<398.668.3078x4853>",
        "<555-867-5309 ext. 12>",
        "<+1-555-337-2153x974>",
        "<(01632) 960 788>",
        "<01632 960 788>",
        "<0117 4960123>",
        "<06958 96935>",
        "<02 33 51 62 04>",
        "<0147699205>",
        "<030/1234567>",
        "<090-1234-5678>",
        "<(11) 91234-5678>",
        "<+61.404.925.899>",
        "call me at <2572559470>",
        "phone=<5551234567>",
        "Tel. <12 34 56 78>",
        "her number is <612 345 679>",
        "call <377845112> tomorrow",
        "<7988635060> office",
        "电话：<13812345678>",
        "phone number <5551234567>",
        "my cell is <555 123 4567>",
        "ring me on <0049 30 88151345>",
        "<135 1720 6733>",
        "<613 90 76 46>",
        "<91 331 31 58>",
        "<089 / 739 39 94>",
        "Appelez-moi au <609 783 905>",
        "Chiamami al <636 119 377>",
        "zadzwoń do mnie: <605 713 065>",
        "Rückruf bitte unter <13718329365>",
        "我的手机号是<+33628009952>",
        "Ada\nM: <603 482 163>",
        "Celular: <06.09.62.35.12>",
        "Call me on <5551234567>, SSN 536904399",
    ],
    "address": [
        "at <742 Evergreen Terrace, Springfield, OR 97403>.",
        "<221B Baker Street, London NW1 6XE>",
        "<Musterstraße 12, 10115 Berlin>",
        "<12 rue de la Paix, 75002 Paris>",
    ],
    "birth_date": [
        "DOB: <04/12/1985>",
        "born on <March 3, 1999>",
        "geboren am <3. Mai 1975>",
        "birth_date: <1985-12-04>",
    ],
    "ip": [
        "from <8.8.8.8>:53",
        "<192.0.2.7>",
        "<2001:db8::1>",
        "http://<8.8.8.8>/",
        "<c9b1:dfe3:1d05:4d37:d942:e328:880e:d9cf>",
    ],
    "mac": ["<00:1A:2B:3C:4D:5E>", "<00-1a-2b-3c-4d-5e>"],
    "dea": ["DEA number <AB1234563>"],
    "health_record": ["MRN: <00123456>", "patient id <A-123456>"],
    "insurance": ["member ID <XYZ123456789>", "policy number: <AB-1234-5678>"],
    "kvnr": ["KVNR <A123456780>"],
    "mbi": ["<1EG4-TE5-MK73>", "<1EG4TE5MK73>"],
    "medicare": ["<2123 45670 1>", "Medicare 2123456701".replace("2123456701", "<2123456701>")],
    "nhs": [
        "NHS number <943 476 5919>",
        "NHS: <9434765919>",
        "N.H.S. number <943-476-5919>",
        '{"patientNhsNumber": "<9434765919>"}',
        "<943 476 5919> is the NHS number",
    ],
    "npi": ["NPI <1234567893>"],
    "driving_licence": [
        "driver's license <D123-4567-8901>",
        "driving licence <MORGA657054SM9IJ>",
        "Führerschein <B072RRE2I55>",
    ],
    "passport": ["passport number <X1234567>", "Reisepass <C01X00T47>", "passport: <123456789>"],
    "cpf": ["<123.456.789-09>", "<12345678909>"],
    "cuit": ["<20-05536168-2>"],
    "curp": ["<BOXW310820HNERXN09>"],
    "itin": ["<912-90-3457>", "ITIN <912903457>"],
    "rut": ["<12.531.909-2>"],
    "sin": [
        "<123-456-782>",
        "<123 456 782>",
        "SIN: <123456782>",
        "Social Insurance No. <123456782>",
        "my social insurance number is <123456782>",
        "S.I.N. <123456782>",
        "Soc. Ins. # <123456782>",
        "n° d'assurance sociale : <123456782>",
        "<123456782> is not accepted as SIN",
        "<123456782> (social insurance)",
        "clientSin=<123456782>",
        "SSN none, SIN <123456782>",
        "name,sin\nAda,<123456782>",
    ],
    "ssn": [
        "SSN <536-90-4399>.",
        "<536–90–4399>",
        "social security number <536904399>",
        "<536 90 4399> (SSN)",
        "SSNs: <536904399>",
        "SS# <536904399>",
        "Soc. Sec. No. <536 90 4399>",
        "my social is <536 90 4399>",
        "seguro social <536904399>",
        "spouseSSN: <536904399>",
        "socialSecurityNumber = <536904399>",
        "social-security-no: <536904399>",
        "SSN......<536904399>",
    ],
    "ahv": ["<756.9217.0769.85>", "<7569217076985>"],
    "be_national": ["<85.07.30-033.28>", "<85073003328>"],
    "bsn": [
        "BSN <111222333>",
        "burgerservicenummer: <1112.22.333>",
        "Burger Service Nr. <111222333>",
        "sofi-nr <111222333>",
        "citizenServiceNumber: <111222333>",
        "social security number (Netherlands): <111222333>",
        "Dutch social security number <111 222 333>",
        "| BSN | <111222333> |",
        "patientBsn=<111222333>",
    ],
    "cnp": ["CNP <1630615123457>"],
    "codice_fiscale": ["<RCCMNL83S18D969H>", "<rccmnl83s18d969h>"],
    "cpr": ["<211062-5629>", "CPR <2110625629>", "CPR-nummer <010180-1234>"],
    "de_social_security": ["Rentenversicherungsnummer <65 170839 J 008>"],
    "de_tax_id": ["<36574261809>", "<36 574 261 809>"],
    "dni": ["<54362315K>", "<54362315-K>"],
    "egn": ["EGN <7523169263>"],
    "fodselsnummer": ["<15108695088>", "<151086 95088>"],
    "hetu": ["<131052-308T>", "<131052A308T>"],
    "isikukood": ["isikukood <36805280109>"],
    "nie": ["<X2482300W>", "<x-2482300-w>"],
    "nif": ["NIF <501 964 843>"],
    "nino": ["<AB123456C>", "<AB 12 34 56 C>", "<ab 123456 c>", "National Insurance <QQ 12 34 56 C>"],
    "nir": ["<295109912611193>", "<2 95 10 99 126 111 93>"],
    "oib": ["OIB <33392005961>"],
    "personnummer": ["<880320-0016>", "<19880320-0016>", "personnummer <8803200016>"],
    "pesel": ["<44051401359>", "PESEL <51101707680>"],
    "pps": ["<6433435F>"],
    "rodne_cislo": ["<710319/2745>"],
    "svnr": ["<1237 010180>", "SVNR <1237010180>"],
    "aadhaar": ["<2341 2341 2346>", "<2341-2341-2346>", "Aadhaar <234123412346>"],
    "my_number": ["マイナンバー：<1234 5678 9018>", "My Number <123456789018>"],
    "nric": ["<S1234567D>", "<T1234567J>", "<F1234567N>", "<G1234567X>", "<M1234567K>"],
    "pan": ["<ACUPA7085R>"],
    "resident_id": ["<360426199101010071>", "身份证<11010519491231002X>"],
    "rrn": ["<971013-9019902>", "주민등록번호 <9710139019902>"],
    "tckn": ["TC kimlik <17291716060>"],
    "teudat_zehut": ["teudat zehut <039337423>"],
    "tfn": ["TFN <123 456 782>", "tax file number: <123456782>"],
    "za_id": ["<7503305044089>"],
}
NOT_FOUND = [
    "",
    "a plain sentence about nothing",
    # checksums
    "4111 1111 1111 1112",
    "DE88 3704 0044 0532 0130 00",
    "DE89 3704 0044 0532 0130",
    "BSN 111222334",
    "44051401358",
    "36574261808",
    "123.456.789-00",
    "routing 021000022",
    "54362315A",
    "RCCMNL83S18D969A",
    "360426199101010072",
    "2341 2341 2347",
    "S1234567A",
    "NPI 1234567890",
    "NHS 9434765918",
    # what is never given
    "0000 0000 0000 0000",
    "000-12-3456",
    "666-12-3456",
    "536-00-4399",
    "536-90-0000",
    "ab12 3456 7890 1234",
    # parts of something longer
    "0.4111111111111111",
    "x4111111111111111",
    "1-536-90-4399-2",
    "550e8400-e29b-41d4-a716-446655440000",
    "3.14159265358979323846264338327950288419716939937510",
    # numbers of other kinds
    "order 123456789",
    "AB12 CDEF",
    "version 1.2.3-45",
    "version 8.8.8.8, Chrome/82.0.218.25, v1.2.3.4",
    "127.0.0.1, 10.0.0.1, 192.168.1.1, 0.0.0.0, 255.255.255.0, ::1, fe80::1",
    "2026-11-21 10:22:33,123 and 21.11.2026, 03-10-2026, 11/21/2026",
    "call 2023-11-03",
    "ISBN 978-3-16-148410-0, ISBN 0306406152",
    "1760000000, 1760000000000",
    "order 2572559470 of 123456789",
    "I phoned about my order number 12345678",
    "the phone with serial no. 123456789012",
    "each cell holds 12345678 values, call it with 4096, reach 10000000 users",
    "dl=12345678",
    "123 456 782 rows, 123 456 782 €",
    'EAN 4311560872191, order 5894202073459, product 24471110844, "sku": "00111922387"',
    "00000010  51 ed 01 47 20 38 83 cc dc 8d",
    "zip code 01234-5678",
    "$1,234,567.89 and 1 234 567,89",
    "40.712776, -74.005974",
    "+1.2345678901",
    "00000000  02 95 34 40 10 e0 d6 e1",
    "arXiv:0705.19637, P/N 047-2742-24",
    "the passport was lost, and the account too",
    "return 31 * token + 317766658; y = exp(-x) + 701.408332",
    "AG\t+1703-06148\tAmerica/Antigua",
    "portable library, Copyright (C) 2008-2019, (C) 1998--2001",
    "titrate to pH 256.76999",
    "index f40b21500..79435950e 100644",
    "clause 252.227-7013",
    "100 20 30 40\n613 90 76 46\n200 30 40 50",
    "142 229 238\t\tCadetBlue2",
    "订单号 51101707680, Bestellnummer 44051401359, SKU 54362315K",
    "版本 12.15.27.27, версии 4.16.21.27, phiên bản 8.8.8.8, Firmware: 8.16.7.15 build 98378",
    'image: "acme/value:29.11.4.17", VERSION "1.0.23.29", AssemblyVersion("1.2.3.4"), OID 2.5.29.20',
    "routes 203.0.113.0/24 and 2001:db8::/32",
    "SHA1 7e:04:de:89:6a:3e:66:6d:00:e6:87:d3",
    "c0 1.52-.87 2.83-2.12 3.51.98.32 2.03.5",
    "Free Software Foundation, Inc., 51 Franklin St, Fifth Floor, Boston, MA 02110-1301",
    # addresses that are none
    "user@localhost",
    "@handle and foo@",
    "q@k.transpose(0, 1)",
    "git@github.com:example/code.git",
    "postgres://app:secret@db.example.internal:5432/app",
    "numpy@1.2.3 at home dot",
    "12 Main Street",
    "std::vector, 10:22:33, add::bad",
]
MARKED = [(name, text) for name, texts in FOUND.items() for text in texts]


@pytest.mark.parametrize(("name", "marked"), MARKED)
def test_an_identifier_is_found_where_it_is(name: str, marked: str) -> None:
    first, last = marked.rfind("<"), marked.find(">", marked.rfind("<"))
    text, value = marked[:first] + marked[first + 1 : last] + marked[last + 1 :], marked[first + 1 : last]
    assert (name, value) in found(text)


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_only_looks_like_one_is_not_found(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "form", "value"),
    [
        ("ticket 0171 2345678", "phone", "0171 2345678"),
        ("product 24471110844", "pesel", "24471110844"),
    ],
)
def test_what_a_word_calls_something_else_is_only_possible(text: str, form: str, value: str) -> None:
    possible = {(hit.form, text[hit.start : hit.end]) for hit in SCANNER.scan(text) if hit.score < SURE}
    assert (f"identifiers.{form}", value) in possible
    assert found(text) == []


def test_every_form_has_a_name_in_the_policy_and_an_example_here() -> None:
    names = {form.name for form in FORMS}
    assert names == set(get_args(FormName)) == set(FOUND)


def test_a_text_that_is_not_unicode_hides_nothing() -> None:
    assert found("\ud800 SSN 536904399 \udfff") == [("ssn", "536904399")]


def test_several_in_one_text_are_all_found() -> None:
    text = "SSNs 536904399, 219099998; card 4111 1111 1111 1111 5500 0000 0000 0004, a@b.io,c@d.io"
    assert {value for _, value in found(text)} == {
        "536904399",
        "219099998",
        "4111 1111 1111 1111",
        "5500 0000 0000 0004",
        "a@b.io",
        "c@d.io",
    }


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"only": ["card", "iban"]}, {"card", "iban"}),
        ({"without": ["card"]}, set(FOUND) - {"card"}),
        ({"only": ["card", "iban"], "without": ["iban"]}, {"card"}),
        ({}, set(FOUND)),
    ],
)
def test_the_policy_chooses(choice: dict[str, list[str]], names: set[str]) -> None:
    assert {form.name for form in identifiers(**choice).forms} == names


def test_a_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValidationError, match="card"):
        identifiers(only=["cards"])


def test_one_value_is_one_finding() -> None:
    """The account of an IBAN may pass as a card."""
    outer = Finding("identifiers.iban", "pii", ("messages", 0), 5, 27)
    inner = Finding("identifiers.card", "pii", ("messages", 0), 10, 26)
    twin = Finding("identifiers.phone", "pii", ("messages", 0), 5, 27)
    elsewhere = Finding("identifiers.card", "pii", ("messages", 1), 10, 26)
    beside = Finding("identifiers.email", "pii", ("messages", 0), 27, 40)
    own = [inner, twin, beside, outer, elsewhere]
    assert set(ALL.conclude(own, own)) == {outer, elsewhere, beside}


def test_what_can_be_replaced_is_never_left_out_for_what_can_not() -> None:
    """A value as it is, and the longer place where a decoded text has it."""
    exact = Finding("identifiers.card", "pii", (), 10, 26)
    hidden = Finding("identifiers.card", "pii", (), 5, 40, exact=False)
    same = Finding("identifiers.iban", "pii", (), 10, 26, exact=False)
    assert set(ALL.conclude([hidden, exact, same], [])) == {hidden, exact}
    assert ALL.conclude([same, exact], []) == [exact]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("PESEL 51101707680", ["pesel"]),
        ("CPF 25622646308", ["cpf"]),
        ("SIN 123456782", ["sin"]),
        ("SSN 123456782", ["ssn"]),
        ("social insurance number 123456782", ["sin"]),
    ],
)
def test_the_nearest_name_says_which_it_is(text: str, names: list[str]) -> None:
    assert [name for name, _ in found(text)] == names


def test_three_groups_without_a_word_are_only_possibly_a_person() -> None:
    assert [hit.score for hit in SCANNER.scan("see 536 90 4399 there")] == [POSSIBLE]


def test_many_parts_of_text_are_no_telephones() -> None:
    assert SCANNER.scan('{"type":"text","text":"a"},' * 6_000) == []
