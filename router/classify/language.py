"""The languages of a text, and what it asks to be translated into."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from router.types.request import UNKNOWN, Languages, Passage, Path, Request

# Languages by what gives them away: their commonest words and letters. ISO 639-1.

WORDS: dict[str, str] = {
    "cs": "a aby ale ano až bude být byl byla bylo co do ho i jak jako je jeho jejich jen jsem jsme jsou již k která"
    " které který když má mají může na nebo není o od po pro při s se si svou také tak ten to toho tu už v ve"
    " však všechny z za ze že dobrý den děkuji prosím kde kdy",
    "da": "af alle at blev de den der deres det dette du efter eller en er et for fra få han har havde hun hvad hvis"
    " hvor hvordan i ikke jeg kan kun man med meget men mig min mit nu når og også om op os over på sig sin skal"
    " som så til ud var ved vi vil være blive god tak noget hvornår",
    "de": "aber alle als am an auch auf aus bei bin bis bitte da damit dann das dass dem den der des die diese doch"
    " du durch ein eine einem einen einer er es für gegen gibt guten haben habe hat hatte ich ihr im in ist ja"
    " kann können man mein mich mir mit morgen nach nicht noch nur oder sein seine sich sie sind so über um und"
    " uns unser unsere von vor war was wenn werden wer wie wir wird wo wurde zu zum zur",
    "en": "a about after all an and any are as at be because been but by can could do does for from good had has have"
    " he her his how i if in into is it its just like me more my not of on one or our out please she should so"
    " some than that the their them there these they this time to up was we were what when where which who will"
    " with would you your",
    "es": "al algo aquí bien como cómo con cuando cuál de del desde donde dónde el ella ellos en entre era es esta"
    " está este esto están fue gracias ha hay hasta la las le lo los más me mi mis muy nada ni no nos nosotros"
    " nuestra nuestro o para pero por porque puede que qué quién se ser si sí sin sobre son su sus también tengo"
    " tiene todo todos un una usted y ya yo buenos días",
    "et": "aga ainult ei ega ei et ja jah just ka kas keda kes kui kuidas kus kõik ma me meie mida millal minu mis"
    " mulle mul nad need neid nende nii nüüd oli olen olema on pole see seda selle sest siin siis ta tema teda"
    " tere ole palun tänan võib väga või õige kuid",
    "fi": "ei en että hän he hyvä hyvää ja jo joka jos jotka kanssa kiitos kuin kuka kun me mikä minä minun missä"
    " mitä mutta myös ne niin nyt oli olen on oma ovat se sekä sen siellä sitten sitä tai tämä tämän vain voi"
    " ole milloin miten",
    "fr": "ai alors après au aussi autre aux avec avez avoir bien bonjour ce ceci cela ces cet cette comme comment"
    " dans de depuis des deux donc du elle elles en est et été être eux il ils je la le les leur leurs lui mais"
    " me merci mes moi mon même ne nos notre nous on ont ou où par pas peut plus pour pourquoi pouvez qu quand"
    " que quel quelle qui sa sans se ses si son sont sur ta te tes toi ton tout très tu un une vos votre vous y"
    " est-ce",
    "ga": "a ag agus ach an ar as atá bhí bhfuil chun cad conas den do é go gach i in is í le leis mar mé mo na ní"
    " níl nó ó raibh sa sé seo sí sin siad sinn tá tú um agam agat againn orm dom maith maidin cén cá",
    "hr": "a ali bez bi bila bili bilo bio biti da do dobar dobro gdje hvala i ih ili iz ja je jer jesu još kada kako"
    " kao koja koje koji li može moj moja na nakon ne nego nema neće nije njegov o od on ona oni po pod prije s"
    " sa samo se si smo su su sve ste što tako te ti to u uz va vam vas već više za zašto dan",
    "hu": "a az azt csak de egy el én és ez ezt fel ha hogy hol hogyan igen is itt jó kell ki köszönöm le lesz lehet"
    " ma már meg mert mi mikor minden most nagyon nem nincs ő pedig s sem szép te több van vagy volt voltak"
    " kérem mit nap reggelt",
    "it": "a al alla allo anche buongiorno che chi ci come con cosa così da dal dalla dei del della delle di dopo"
    " dove due e è ed era fa fatto gli grazie ha hanno ho i il in io la le lei lo loro lui ma mi mia mio molto"
    " nei nel nella noi non nostro o ogni per perché più può qual quale quando quello questa questo se sei senza"
    " si sono sono sta su sua sul suo ti tra tutti tutto un una uno voi",
    "lt": "ačiū ant ar arba aš bet buvo būti dar dėl gali iki ir iš į jau jis ji jie jūs jų kad kai kaip kas kiek"
    " kokia kur labas labai mano man mes mums ne nėra nuo o per po prašau prie savo su tai taip tik tu turi už"
    " visi yra šis ši tas dieną rytas kada",
    "lv": "ar arī bet bija būs cik es ir jā jau jo jūs ka kā kad kam kas ko kur lai lūdzu man mans mēs mums ne nav no"
    " pa paldies par pie pēc savu šis šī šo tas tā tad tikai to tu un uz vai var viņa viņš visi ļoti labdien"
    " labrīt kāpēc mana",
    "mt": "aħna biex bħal dak dan darba din fejn fi fil għal għall għandu għax hija huma huwa hu hi ħafna il iktar"
    " int jekk jew jien jista kien kienet kif kollha kull kemm li ma meta mhux mill minn mal ta tal u wara"
    " x'inhu xi bonġu grazzi jekk jogħġbok",
    "nl": "aan al als alle ben bij dan dat de deze die dit door een en er ga geen goed goede had hebben heb heeft het"
    " hij hoe ik in is ja je jij kan kunnen kunt maar me meer met mij mijn moet morgen naar niet nog nu of om"
    " omdat ons onze ook op over te tot u uit van veel voor waar wat we wel werd wie wij wil wordt worden zal ze"
    " zich zij zijn zo zou",
    "no": "alle at av ble da de den der deres det dette du eller en er et etter for fra før ha han har hadde hun hva"
    " hvem hvis hvor hvordan i ikke jeg kan kun man med meg meget men min mitt mot nå når og også om opp oss"
    " over på seg sin skal som så til ut var ved vi vil være bli god takk noe mye fikk",
    "pl": "a aby ale być był była było bardzo bo co czy dla do dobry dzień dziękuję gdzie gdy go i ich ile ja jak"
    " jako je jego jej jest jestem już kiedy kto która które który lub ma mam mi mnie może można mój moja na nad"
    " nam nas nie nich niż o od on ona oni oraz po pod proszę przed przez przy się są tak także tam tego ten też"
    " to tu tylko u w we wszystko z za ze że",
    "pt": "a ao aos as até bom com como da das de dela dele do dos e é ela ele eles em entre era essa esse esta está"
    " este eu foi há isso isto já lhe mais mas me mesmo meu meus minha muito na não nas nem no nos nós nossa"
    " nosso o obrigado onde os ou para pela pelo por porque pode qual quando que quem se sem ser seu seus só sua"
    " são também tem tenho tudo um uma você vocês à às dia",
    "ro": "a acest această acum ai al ale am ar are as asta au bine bună ca că care ce cel cine cu cum când da dacă"
    " de despre din dar după ea ei el este eu fi fie foarte fost iar în într la le li lui mai mă mea meu"
    " mulțumesc ne nici nu o pe pentru poate prin sa să și sunt s-a te tot toate trebuie un una unde unei unui"
    " va vă voi vor ziua",
    "sk": "a aby aj ale alebo ani áno až bez bol bola bolo bude byť či čo dobrý deň do ďakujem ho i iba ich ja jeho"
    " jej jeho k kde keď kedy ktorá ktoré ktorý len lebo ma majú má mi mne môže môj na nie nám nás o od on ona"
    " po pre pri prosím s sa si sme som sú svoj tak tam ten tiež to tu už v veľmi viac vo však z za zo že ako sa"
    " je",
    "sl": "a ali bi bil bila bilo biti bo brez če da dan do dober dobro za ga hvala in iz ja jaz je jih k kaj kako"
    " kdaj kdo ker ki kje ko kot lahko le li me med mi moj moja mu na nas ne ni niso o ob od on ona oni pa po"
    " pod prosim pri s sem se si smo so sta ste sva ta tako te ti to tudi v več vse z zakaj zelo že bom",
    "sv": "alla allt att av bara blev de dem den denna deras det detta dig din du där efter eller en er ett finns för"
    " från få god ha hade han har hon hur här i icke inte jag kan kommer man med mig min mitt mot mycket måste"
    " när nu och också om oss på sedan sig sin ska skulle som så tack till upp ut vad var vara varför vem vi vid"
    " vill vår är över",
    "tr": "acaba ama bana ben bende bir biz bu bunu çok çünkü da daha de değil diye en gibi günaydın hangi hem hep"
    " her hiç için ile ise iyi kadar ki kim mı mi mu mü nasıl ne neden nerede o olan olarak oldu on ona onlar"
    " sen siz şey şu tüm ve var veya ya yok lütfen teşekkür ederim zaman",
}  # fmt: skip
LETTERS: dict[str, str] = {
    "cs": "ěřůčšžýáíéúďťň",
    "da": "æøå",
    "de": "ßäöü",
    "es": "ñ¿¡áíóúé",
    "et": "õäöü",
    "fi": "äö",
    "fr": "œêèûôçàùîïëé",
    "ga": "áéíóú",
    "hr": "đčćšž",
    "hu": "őűáéíóöúü",
    "it": "àèìòù",
    "lt": "ėųįąčęšūž",
    "lv": "āēīūņģķļčšž",
    "mt": "ġħżċ",
    "nl": "ë",
    "no": "æøå",
    "pl": "łąężźśćńó",
    "pt": "ãõçáâàéêíóôú",
    "ro": "ășțâîşţ",
    "sk": "ľĺŕôäčšžýáíéúďťň",
    "sl": "čšž",
    "sv": "åäö",
    "tr": "ığşçöü",
}
"""Beyond those of English."""
SCRIPTS: dict[str, tuple[int, int]] = {
    "el": (0x370, 0x3FF),
    "he": (0x590, 0x5FF),
    "ar": (0x600, 0x6FF),
    "hi": (0x900, 0x97F),
    "th": (0xE00, 0xE7F),
    "ko": (0xAC00, 0xD7A3),
    "ja": (0x3040, 0x30FF),
    "zh": (0x4E00, 0x9FFF),
    "ru": (0x400, 0x4FF),
}
"""A script, and the language that it is taken for: Japanese before Chinese, whose characters it uses."""
CYRILLIC = {"uk": "іїєґ", "ru": "ыэё", "bg": "ъщ"}
"""Letters that tell languages of one script apart, in this order: the others have no such letter."""
NAMES: dict[str, str] = {
    "ar": "Arabic arabisch arabe árabe arabo arabskiego العربية",
    "bg": "Bulgarian bulgarisch bulgare búlgaro bulgaro български",
    "cs": "Czech tschechisch tchèque checo ceco czeski češtiny čeština",
    "da": "Danish dänisch danois danés danese duński dansk",
    "de": "German deutsch deutsche allemand alemán tedesco alemão duits niemiecki němčiny tyska",
    "el": "Greek griechisch grec griego greco grecki ελληνικά",
    "en": "English englisch englische anglais inglés inglese inglês engels angielski angličtiny engelska engelsk",
    "es": "Spanish spanisch spanische espagnol español castellano spagnolo espanhol spaans hiszpański spanska",
    "et": "Estonian estnisch estonien estonio estone eesti",
    "fi": "Finnish finnisch finnois finés finlandés finlandese suomi suomeksi",
    "fr": "French französisch französische français francés francese francês frans francuski francouzštiny franska",
    "ga": "Irish irisch irlandais irlandés irlandese gaeilge",
    "he": "Hebrew hebräisch hébreu hebreo ebraico עברית",
    "hi": "Hindi हिन्दी",
    "hr": "Croatian kroatisch croate croata hrvatski",
    "hu": "Hungarian ungarisch hongrois húngaro ungherese węgierski magyar magyarra",
    "it": "Italian italienisch italienische italien italiano italiaans włoski italštiny italienska",
    "ja": "Japanese japanisch japonais japonés giapponese 日本語",
    "ko": "Korean koreanisch coréen coreano 한국어",
    "lt": "Lithuanian litauisch lituanien lituano litewski lietuvių",
    "lv": "Latvian lettisch letton letón lettone łotewski latviešu",
    "mt": "Maltese maltesisch maltais maltés malti",
    "nl": "Dutch niederländisch holländisch néerlandais neerlandés holandés olandese nederlands niderlandzki",
    "no": "Norwegian norwegisch norvégien noruego norvegese norweski norsk bokmål",
    "pl": "Polish polnisch polnische polonais polaco polacco pools polski",
    "pt": "Portuguese portugiesisch portugais portugués portoghese português portugalski",
    "ro": "Romanian rumänisch roumain rumano rumeno rumuński română",
    "ru": "Russian russisch russe ruso russo rosyjski русский",
    "sk": "Slovak slowakisch slovaque eslovaco slovacco słowacki slovenčiny",
    "sl": "Slovenian slovene slowenisch slovène esloveno sloveno slovenščino",
    "sv": "Swedish schwedisch suédois sueco svedese zweeds szwedzki svenska",
    "th": "Thai thailändisch thaï tailandés ไทย",
    "tr": "Turkish türkisch turc turco turecki türkçe",
    "uk": "Ukrainian ukrainisch ukrainien ucraniano ucraino ukraiński українська",
    "zh": "Chinese chinesisch chinois chino cinese chiński 中文",
}
"""What each is called in English, and then elsewhere."""
KNOWN = frozenset(NAMES)


# Which language a text is in, and which one it is to be translated into. By tables of words, in 2 to 60 µs.
#
# What is not clear is "": names, numbers, a few words that several languages have.

MOST = 1_000
"""Characters of a text that are looked at."""
LEAST = 0.4
"""Less evidence is none: a word that one language alone has counts 1, one that n have 1/n, a letter half as much …"""
CLEAR = 1.25
"""… and so many times that of the next language. What that yields: tests/classify/test_language.py."""
HEAD = 200
"""Characters of an instruction, at most."""
_LATIN = "\u024f"
"""Its last letter."""
_MARKS = ".,:;!?\"'()[]{}<>«»„“”‚‘’…–—-*_#`/\\|=+0123456789"
_ASKING = ("translat", "überset", "tradu", "vertal", "vertaa", "översätt", "oversæt", "oversett", "tłumacz", "přelož")
"""Beginnings and middles of words that ask for a translation."""
_INTO = frozenset(
    ("to", "in", "into", "ins", "nach", "auf", "en", "au", "al", "vers", "naar", "na", "till", "til", "para")
)
_FROM = frozenset(("from", "aus", "vom", "von", "du", "de", "dal", "del", "z", "ze", "från", "fra", "van"))
_ARTICLES = frozenset(("the", "das", "dem", "die", "le", "la", "el", "il", "lo", "het", "der"))
_TEXTS = (("messages",), ("prompt",), ("input",))
_BLANKS = " \n\t"
_QUOTES = (('"', '"'), ("“", "”"), ("„", "“"), ("«", "»"), (" '", "'"), ("‘", "’"))


def _tables() -> tuple[dict[str, tuple[tuple[str, float], ...]], dict[str, tuple[tuple[str, float], ...]]]:
    words = {language: listed.split() for language, listed in WORDS.items()}
    return _weighed(words, 1.0), _weighed(LETTERS, 0.5)


def _weighed(lists: Mapping[str, Sequence[str]], weight: float) -> dict[str, tuple[tuple[str, float], ...]]:
    found = defaultdict[str, list[str]](list)
    for language, entries in lists.items():
        for entry in dict.fromkeys(entries):
            found[entry].append(language)
    return {entry: tuple((one, weight / len(having)) for one in having) for entry, having in found.items()}


_WORDS, _LETTERS = _tables()
_NAMED = {name.lower(): code for code, names in NAMES.items() for name in names.split()}


def language(text: str) -> str:
    """ISO 639-1; "" where it is not clear."""
    seen = text[:MOST].lower()
    scores = defaultdict[str, float](float)
    if not seen.isascii():
        letters = {letter for letter in set(seen) if letter >= "\x80" and letter.isalpha()}
        if any(letter > _LATIN for letter in letters) and (script := _script(seen)):
            return _of_script(script, letters)
        _count(letters, _LETTERS, scores)
    words = set(seen.replace("'", " ").replace("’", " ").split())
    _count({word.strip(_MARKS) for word in words}, _WORDS, scores)
    (first, most), (_, second), *_ = sorted((*scores.items(), ("", 0.0), ("", 0.0)), key=_score, reverse=True)
    return first if most >= LEAST and most >= CLEAR * second else ""


def _score(item: tuple[str, float]) -> float:
    return item[1]


def _count(found: set[str], table: Mapping[str, tuple[tuple[str, float], ...]], scores: dict[str, float]) -> None:
    for one in found:
        for code, weight in table.get(one, ()):
            scores[code] += weight


def _script(text: str) -> str:
    """Of which there is more than of Latin; "" where there is none."""
    letters = [letter for letter in text[:HEAD] if letter.isalpha()]
    latin = sum(letter <= _LATIN for letter in letters)
    counts = {code: sum(first <= ord(one) <= last for one in letters) for code, (first, last) in SCRIPTS.items()}
    return next((code for code, count in counts.items() if count > latin), "")


def _of_script(script: str, letters: set[str]) -> str:
    if script != "ru":
        return script
    return next((code for code, own in CYRILLIC.items() if letters & set(own)), "")


def languages(request: Request) -> Languages:
    """What is known of a request already; else what its last message says, and its system prompt beside it."""
    if request.languages is not None:
        return request.languages
    said = _said(request.passages, ("user", ""))
    head, text = _parted(said)
    source, target = _named(head) if head else ("", "")
    if not target:
        told = _named(_said(request.passages, ("system", "developer"))[:MOST], bare=False)
        source, target = source or told[0], told[1]
    source = source or language(text)
    return Languages(source, target, _name(source), _name(target), text) if said else UNKNOWN


def _name(code: str) -> str:
    return NAMES[code].partition(" ")[0] if code else ""


def _said(passages: Sequence[Passage], roles: Sequence[str]) -> str:
    """All parts of the last message of such a role; of a request without messages, the last of its texts."""
    last: Path | None = None
    parts: list[str] = []
    for passage in reversed(passages):
        if passage.role in roles and passage.path[2:3] in ((), ("content",)) and passage.path[:1] in _TEXTS:
            if last is not None and passage.path[:2] != last:
                break
            last = passage.path[:2]
            parts.append(passage.text)
    return "\n".join(reversed(parts))


def _parted(said: str) -> tuple[str, str]:
    """The instruction and the text that it is about: "Translate into French: …", 'How do you say "…" in French?'.

    No instruction: all of it is the text.
    """
    for mark in ("\n", ":"):
        head, found, text = said.partition(mark)
        if found and len(head) <= HEAD and text.strip() and _asks(head):
            return head, text.strip().lstrip(":").strip(_BLANKS)
    if len(said) > HEAD or not _asks(said):
        return "", said
    for opening, closing in _QUOTES:
        first, last = said.find(opening), said.rfind(closing)
        if first >= 0 and first + len(opening) < last:
            return said[:first] + said[last:], said[first + len(opening) : last]
    return said, said


def _asks(head: str) -> bool:
    """It says that something is to be translated, or into which language."""
    lowered = head.lower()
    return any(word in lowered for word in _ASKING) or bool(_named(head, bare=False)[1])


def _named(head: str, *, bare: bool = True) -> tuple[str, str]:
    """Languages that are named: what it is from, and what into. `bare`: without "from" or "into" before it, too."""
    source = target = ""
    alone: list[str] = []
    words = [word.strip(_MARKS) for word in head.lower().split()]
    for at, code in enumerate(map(_NAMED.get, words)):
        lead = next((one for one in reversed(words[max(at - 2, 0) : at]) if one not in _ARTICLES), "")
        if code is None:
            continue
        if lead in _INTO:
            target = code
        elif lead in _FROM:
            source = code
        elif bare:
            alone.append(code)
    target = target or (alone.pop() if alone else "")
    return source or (alone[0] if alone else ""), target
