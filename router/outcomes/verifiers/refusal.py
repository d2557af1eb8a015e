"""Whether the model says that it won't or can't."""

from typing import Any, Literal

import re2
from pydantic import Field

from router.outcomes.part import Part
from router.outcomes.reading import calls_only
from router.types.outcome import Answer
from router.types.request import Request

OPENING = 240
"""Characters in which a refusal begins; later ones are about something else."""
_FILTERED = "content_filter"
_SAID = (
    # English
    r"\b(?:i(?:'m| am) (?:very |so |really |truly )?sorry,? (?:but )?(?:i|as an)|i apologi[sz]e,? but)\b",
    r"\bi(?:'m| am)? (?:can(?:'t|not| not)|won't|will not|(?:am |'m )?(?:not able|unable) to|not able to|unable to)"
    r" (?:\w+ )?(?:help|assist|provide|answer|comply|fulfil|fulfill|do that|do this|discuss|create|generate|write"
    r"|engage|support|share|give|complete|offer|respond|access|browse|tell|say)",
    r"\bas an ai(?: language)?(?: model)?,? i (?:can(?:'t|not| not)|don't|do not|am not|am unable)",
    r"\bi (?:must|have to) (?:decline|refuse)|\bi(?:'d| would) rather not\b",
    # German
    r"(?:tut mir (?:sehr )?leid|entschuldigung|ich bedau(?:e)?re).{0,40}\b(?:kann|darf|möchte|bin|ist)\b",
    r"\bich (?:kann|darf|werde)\b.{0,60}\bnicht (?:helfen|beantworten|bereitstellen|erfüllen|weiterhelfen"
    r"|dabei|nachkommen|unterstützen)",
    r"\bdabei kann ich\b.{0,20}\bnicht\b|\bals ki(?:-(?:sprach)?modell)?\b.{0,40}\bnicht\b",
    # French
    r"\bje (?:suis )?(?:vraiment )?(?:désolée?|navrée?).{0,20}\bje ne\b",
    r"\bje ne (?:peux|puis|suis) (?:pas|malheureusement pas).{0,30}\b(?:aider|répondre|fournir|assister"
    r"|satisfaire|en mesure|autorisé)",
    # Spanish
    r"\b(?:lo siento|disculpa|lamento).{0,30}\bno (?:puedo|me es posible)",
    r"\bno puedo (?:ayudar|proporcionar|responder|asistir|cumplir|ofrecer|ayudarte|darte|generar)",
    # Italian
    r"\bmi (?:di)?spiace.{0,30}\bnon (?:posso|sono in grado)",
    r"\bnon posso (?:aiutar|fornire|rispondere|assister|soddisfare)",
    # Portuguese
    r"\b(?:desculpe|lamento|sinto muito).{0,30}\bnão (?:posso|consigo)",
    r"\bnão posso (?:ajudar|fornecer|responder|atender|auxiliar)",
    # Dutch
    r"\b(?:het spijt me|sorry).{0,30}\bik kan\b.{0,40}\bniet\b",
    r"\bik kan (?:je|u|daar|dit|hier).{0,40}\bniet (?:helpen|geven|beantwoorden|mee)",
    # Polish, Czech
    r"\b(?:przykro mi|przepraszam).{0,30}\bnie mogę\b|\bnie mogę (?:pomóc|odpowiedzieć|udzielić|spełnić)",
    r"\b(?:omlouvám se|je mi líto).{0,30}\bnemohu\b|\bnemohu (?:pomoci|poskytnout|odpovědět|vyhovět)",
    # Swedish, Danish, Norwegian
    r"\bjag kan (?:tyvärr )?inte (?:hjälpa|svara|ge|tillhandahålla)",
    r"\bjeg kan (?:desværre |dessverre )?ikke (?:hjælpe|hjelpe|svare|gi|give)",
    # Turkish
    r"\b(?:üzgünüm|özür dilerim).{0,60}(?:amam|emem|amıyorum|emiyorum|amayız|emeyiz)\b|\byardımcı olamam\b",
    # Russian, Ukrainian
    r"(?:извините|к сожалению|простите|мне жаль).{0,30}(?:я )?не (?:могу|буду)",
    r"я не могу (?:помочь|ответить|предоставить|выполнить)",
    r"(?:вибачте|на жаль).{0,30}(?:я )?не можу|я не можу (?:допомогти|відповісти|надати|виконати)",
    # Greek
    r"(?:λυπάμαι|συγγνώμη).{0,30}δεν μπορώ",
    # Arabic, Persian, Hebrew
    r"(?:آسف|عذرا|عذرًا|أعتذر|للأسف).{0,30}(?:لا (?:أستطيع|يمكنني)|لن)",
    r"لا (?:أستطيع|يمكنني) (?:المساعدة|مساعدتك|تقديم|الإجابة)",
    r"متأسفم.{0,40}نمی|نمی(?:\x{200c})?توانم (?:کمک|پاسخ)|(?:מצטער|סליחה).{0,30}(?:לא יכול|איני)",
    # Hindi
    r"(?:क्षमा|माफ़ ?कीजिए|मुझे खेद).{0,60}(?:नहीं|असमर्थ)",
    # Chinese, Japanese, Korean, Vietnamese, Thai, Indonesian
    r"(?:抱歉|对不起|對不起|很遗憾).{0,20}(?:无法|不能|無法|没法|不会)|我(?:无法|不能|無法)(?:帮助|协助|提供|回答|满足|幫助|協助)",
    r"(?:申し訳|すみません|ごめんなさい|恐れ入りますが).{0,60}(?:できません|できかねます|いたしかねます|お答えできない)",
    r"(?:죄송|미안|유감).{0,60}(?:수 없|못합니다|어렵습니다)|도와드릴 수 없",
    r"\bxin lỗi.{0,30}không thể|\btôi không thể (?:giúp|cung cấp|trả lời)",
    r"ขออภัย.{0,40}ไม่สามารถ",
    r"\bmaaf.{0,30}\btidak (?:bisa|dapat)\b",
    r"\bsaya tidak (?:bisa|dapat) (?:membantu|memberikan|menjawab)",
)
_OPTIONS: Any = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.dot_nl = True
_OPTIONS.max_mem = 64 << 20
_REFUSES: Any = re2.compile("|".join(f"(?:{one})" for one in _SAID), _OPTIONS)
_QUOTES = str.maketrans("’‘ʼ", "'''")


class Refusal(Part):
    """By the API's own field, by the provider's filter, or by what is said first, in some thirty languages."""

    kind: Literal["refusal"]
    decides: bool = Field(False, description="Its yes means that the answer is right, not only that there is one.")

    def check(self, request: Request, answer: Answer) -> float | None:
        if answer.refusal or answer.finish_reason == _FILTERED:
            return 0.0
        return None if calls_only(answer) else float(not refuses(answer.text))


def refuses(text: str) -> bool:
    return _REFUSES.search(text.lstrip()[:OPENING].translate(_QUOTES)) is not None
