"""Languages of texts, and what they are to be translated into: by tables of words, on short sentences."""

import pytest

from router.classify.language import language, languages
from router.classify.tongues import KNOWN, NAMES, WORDS
from router.types.request import Endpoint, Passage, Request

SENTENCES: dict[str, tuple[str, ...]] = {
    "bg": (
        "Добро утро, приятелю.",
        "Фактурата беше платена на трети март и договорът изтича през май.",
        "Къде е гарата?",
    ),
    "cs": (
        "Dobré ráno, příteli.",
        "Faktura byla zaplacena 3. března a smlouva končí v květnu.",
        "Kde je nádraží?",
    ),
    "da": (
        "God morgen, min ven.",
        "Fakturaen blev betalt den 3. marts, og kontrakten udløber i maj.",
        "Hvor er stationen?",
    ),
    "de": (
        "Guten Morgen, mein Freund.",
        "Die Rechnung wurde am 3. März bezahlt und der Vertrag endet im Mai.",
        "Wo ist der Bahnhof?",
    ),
    "el": (
        "Καλημέρα, φίλε μου.",
        "Το τιμολόγιο πληρώθηκε στις 3 Μαρτίου.",
        "Πού είναι ο σταθμός;",
    ),
    "en": (
        "Good morning, my friend.",
        "The invoice was paid on 3 March and the contract ends in May.",
        "Where is the station?",
    ),
    "es": (
        "Buenos días, amigo mío.",
        "La factura se pagó el 3 de marzo y el contrato termina en mayo.",
        "¿Dónde está la estación?",
    ),
    "et": (
        "Tere hommikust, mu sõber.",
        "Arve maksti 3. märtsil ja leping lõpeb mais.",
        "Kus on jaam?",
    ),
    "fi": (
        "Hyvää huomenta, ystäväni.",
        "Lasku maksettiin 3. maaliskuuta ja sopimus päättyy toukokuussa.",
        "Missä asema on?",
    ),
    "fr": (
        "Bonjour, mon ami.",
        "La facture a été payée le 3 mars et le contrat se termine en mai.",
        "Où est la gare ?",
    ),
    "ga": (
        "Maidin mhaith, a chara.",
        "Íocadh an sonrasc ar an 3 Márta agus tá deireadh leis an gconradh i mí na Bealtaine.",
        "Cá bhfuil an stáisiún?",
    ),
    "hr": (
        "Dobro jutro, prijatelju.",
        "Račun je plaćen 3. ožujka, a ugovor istječe u svibnju.",
        "Gdje je kolodvor?",
    ),
    "hu": (
        "Jó reggelt, barátom.",
        "A számlát március 3-án fizették ki, és a szerződés májusban jár le.",
        "Hol van az állomás?",
    ),
    "it": (
        "Buongiorno, amico mio.",
        "La fattura è stata pagata il 3 marzo e il contratto termina a maggio.",
        "Dov'è la stazione?",
    ),
    "lt": (
        "Labas rytas, mano drauge.",
        "Sąskaita buvo apmokėta kovo 3 d., o sutartis baigiasi gegužę.",
        "Kur yra stotis?",
    ),
    "lv": (
        "Labrīt, mans draugs.",
        "Rēķins tika apmaksāts 3. martā, un līgums beidzas maijā.",
        "Kur ir stacija?",
    ),
    "mt": (
        "Bonġu, ħabib tiegħi.",
        "Il-fattura tħallset fit-3 ta' Marzu u l-kuntratt jispiċċa f'Mejju.",
        "Fejn hi l-istazzjon?",
    ),
    "nl": (
        "Goedemorgen, mijn vriend.",
        "De factuur werd op 3 maart betaald en het contract loopt af in mei.",
        "Waar is het station?",
    ),
    "no": (
        "God morgen, vennen min.",
        "Fakturaen ble betalt 3. mars, og kontrakten utløper i mai.",
        "Hvor er stasjonen?",
    ),
    "pl": (
        "Dzień dobry, mój przyjacielu.",
        "Faktura została zapłacona 3 marca, a umowa kończy się w maju.",
        "Gdzie jest dworzec?",
    ),
    "pt": (
        "Bom dia, meu amigo.",
        "A fatura foi paga em 3 de março e o contrato termina em maio.",
        "Onde fica a estação?",
    ),
    "ro": (
        "Bună dimineața, prietene.",
        "Factura a fost plătită pe 3 martie, iar contractul se încheie în mai.",
        "Unde este gara?",
    ),
    "sk": (
        "Dobré ráno, priateľ môj.",
        "Faktúra bola zaplatená 3. marca a zmluva sa končí v máji.",
        "Kde je stanica?",
    ),
    "sl": (
        "Dobro jutro, moj prijatelj.",
        "Račun je bil plačan 3. marca, pogodba pa poteče maja.",
        "Kje je postaja?",
    ),
    "sv": (
        "God morgon, min vän.",
        "Fakturan betalades den 3 mars och avtalet löper ut i maj.",
        "Var ligger stationen?",
    ),
    "tr": (
        "Günaydın arkadaşım.",
        "Fatura 3 Mart'ta ödendi ve sözleşme mayısta sona eriyor.",
        "İstasyon nerede?",
    ),
    "uk": (
        "Доброго ранку, мій друже.",
        "Рахунок було сплачено 3 березня.",
        "Де вокзал?",
    ),
    "ru": (
        "Доброе утро, мой друг.",
        "Счёт был оплачен 3 марта, договор истекает в мае.",
        "Где вокзал?",
    ),
    "ja": ("おはようございます、友よ。",),
    "zh": ("早上好，我的朋友。",),
    "ko": ("좋은 아침입니다.",),
    "ar": ("صباح الخير يا صديقي",),
    "he": ("בוקר טוב",),
    "hi": ("सुप्रभात",),
    "th": ("สวัสดีตอนเช้า",),
}
"""Greetings, a line of business, and questions of three words."""
NEITHER = (
    "3.14159",
    "Anna Meyer",
    "OK",
    "x = y + 1",
    "ACME GmbH 2024",
    "https://example.com/a",
    "Lorem ipsum dolor",
    '{"id": 4711}',
)


def measured() -> tuple[int, int, int, int, int]:
    """Sentences, languages; told right, not at all, and wrong."""
    found = [(code, language(text)) for code, texts in SENTENCES.items() for text in texts]
    right = sum(code == told for code, told in found)
    unclear = sum(not told for _, told in found)
    return len(found), len(SENTENCES), right, unclear, len(found) - right - unclear


def test_hardly_a_sentence_is_taken_for_another_language() -> None:
    count, codes, right, unclear, wrong = measured()
    assert codes == len(KNOWN)
    assert right >= 70
    assert wrong <= 1
    assert unclear == count - right - wrong


@pytest.mark.parametrize("text", NEITHER)
def test_what_is_no_language_is_taken_for_none(text: str) -> None:
    assert language(text) == ""


@pytest.mark.parametrize("code", ["de", "en", "es", "fr", "it", "nl", "pl", "pt", "sv"])
def test_whole_paragraphs_are_told(code: str) -> None:
    assert language(" ".join(SENTENCES[code]) * 3) == code


def test_what_is_named_is_known_and_what_has_words_has_a_name() -> None:
    assert set(WORDS) <= KNOWN
    names = [name.lower() for listed in NAMES.values() for name in listed.split()]
    assert len(names) == len(set(names))


def said(text: str, system: str = "", before: str = "") -> Request:
    roles = [("system", system)] * bool(system) + [("user", before), ("assistant", "Certainly.")] * bool(before)
    passages = tuple(
        Passage(("messages", place, "content"), words, role)
        for place, (role, words) in enumerate([*roles, ("user", text)])
    )
    return Request(id="r", endpoint=Endpoint.CHAT, model="auto", body={}, passages=passages, prompt_bytes=1)


@pytest.mark.parametrize(
    ("text", "source", "target", "bare"),
    [
        ("Translate to French: Good morning, my friend.", "en", "fr", "Good morning, my friend."),
        ("Translate into German:\n\nWhere is the station?", "en", "de", "Where is the station?"),
        ("Please translate the following English text to Polish: Hello there.", "en", "pl", "Hello there."),
        ("Translate from Italian to English: Dov'è la stazione?", "it", "en", "Dov'è la stazione?"),
        ("Übersetze ins Englische: Wo ist der Bahnhof?", "de", "en", "Wo ist der Bahnhof?"),
        ("Traduis en anglais : Le magasin est fermé.", "fr", "en", "Le magasin est fermé."),
        ("Traduce al inglés: ¿Dónde está la estación?", "es", "en", "¿Dónde está la estación?"),
        ('How do you say "Where is my luggage?" in Spanish?', "en", "es", "Where is my luggage?"),
        ("Translate «Où est la gare ?» into Dutch.", "fr", "nl", "Où est la gare ?"),
        ("English to Polish: the invoice is overdue", "en", "pl", "the invoice is overdue"),
        ("Swedish translation: the invoice is overdue", "en", "sv", "the invoice is overdue"),
        ("Where is the station?", "en", "", "Where is the station?"),
        ("Dear all: the station is closed.", "en", "", "Dear all: the station is closed."),
        ("I have a French friend: she is called Anne.", "en", "", "I have a French friend: she is called Anne."),
        ("", "", "", ""),
    ],
)
def test_what_is_to_be_translated_into_what(text: str, source: str, target: str, bare: str) -> None:
    found = languages(said(text))
    assert (found.source, found.target, found.text) == (source, target, bare)
    assert (found.source_name == "English") == (source == "en")


def test_the_system_prompt_may_say_it() -> None:
    found = languages(said("She has lost her keys.", system="You translate all that the user says into German."))
    assert (found.source, found.target_name, found.text) == ("en", "German", "She has lost her keys.")


def test_the_last_message_counts() -> None:
    assert languages(said("Wo ist der Bahnhof?", before="Translate to French: Where is it?")).source == "de"


def test_a_prompt_without_messages_is_read_too() -> None:
    passages = (Passage(("prompt",), "Wo ist der Bahnhof?"), Passage(("user",), "the one who asks"))
    asked = Request(id="r", endpoint=Endpoint.COMPLETIONS, model="a", body={}, passages=passages, prompt_bytes=1)
    assert languages(asked).source == "de"


def test_nothing_of_the_text_is_printed() -> None:
    assert "station" not in repr(languages(said("Where is the station?")))
