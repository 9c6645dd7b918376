"""Placeholders that WhatsApp writes into an export for media, deleted messages and missed calls, in the language of the
phone. They are not part of any message.
"""

import re

MARKS = str.maketrans({**dict.fromkeys("\ufeff\u200e\u200f\u202a\u202c"), "\u202f": " ", "\xa0": " "})
"""Direction marks, which messengers put before times, names and their own words, and non-breaking spaces."""
_OWN = "\u200e"
"""The mark that most phones put before WhatsApp's own words."""

_MEDIA = "media|medien|multimedia|médias|mídia|medya|multimediów|медиа|メディア|媒體|媒体|미디어|الوسائط"
_KINDS = (
    "image|imagen|imagem|immagine|bild|afbeelding|изображение|görüntü|photo|foto|фото|video|vídeo|vidéo|видео|"
    "video note|videonachricht|mensaje de video|audio|áudio|аудио|ses|gif|"
    "sticker|autocollant|figurinha|стикер|çıkartma|document|documento|dokument|документ|belge|"
    "contact card|kontaktkarte|tarjeta de contacto|fiche contact|cartão do contato|scheda contatto|contactkaart|контакт"
)
_OMITTED = (
    "omitted|weggelassen|omitido|omitida|omis|omise|absent|absente|ocultado|ocultada|oculto|oculta|omesso|omessa|weggelaten|"
    "отсутствует|dahil edilmedi"
)
_TEXTS = """
    this message was deleted|you deleted this message|this message was deleted by admin.*
    missed (?:group )?(?:voice|video) call(?:, .*)?|waiting for this message(?:\\. this may take a while)?
    diese nachricht wurde (?:vom admin .*)?gelöscht|du hast diese nachricht gelöscht
    verpasster (?:gruppen-)?(?:sprach|video)anruf
    este mensaje fue eliminado|se eliminó este mensaje|eliminaste este mensaje
    (?:video)?llamada (?:de voz )?perdida|videollamada perdida
    ce message a été supprimé|vous avez supprimé ce message|appel (?:vocal|vidéo) manqué
    mensagem apagada|(?:esta|essa) mensagem foi apagada|você apagou esta mensagem
    (?:chamada|ligação) de (?:voz|vídeo) perdida
    questo messaggio è stato eliminato|hai eliminato questo messaggio|(?:chiamata vocale|videochiamata) persa
    dit bericht (?:is|werd) verwijderd|(?:je|u) hebt dit bericht verwijderd|gemiste (?:spraak|video-)oproep
    (?:данное )?сообщение удалено|вы удалили (?:данное|это) сообщение|пропущенный (?:аудио|видео)звонок
    bu mesaj silindi|bu mesajı sildiniz|cevapsız (?:sesli|görüntülü) arama
    ta wiadomość została usunięta|usunięto tę wiadomość|nieodebrane połączenie (?:głosowe|wideo)
    pesan ini (?:telah )?dihapus|anda menghapus pesan ini
    यह संदेश हटा दिया गया था|تم حذف هذه الرسالة|このメッセージは削除されました|삭제된 메시지입니다
    此訊息已刪除|此消息已(?:被)?删除|此讯息已删除|您已刪除此訊息
"""
_EDITED_TEXTS = (
    "this message was edited|diese nachricht wurde bearbeitet|se editó este mensaje|ce message a été modifié|"
    "mensagem editada|essa mensagem foi editada|questo messaggio è stato modificato|dit bericht is bewerkt|"
    "данное сообщение изменено|bu mesaj düzenlendi"
)
_PLACEHOLDER = re.compile(
    "|".join(
        (
            rf"<[^<>]*(?:{_MEDIA})[^<>]*>|<без медиафайлов>",
            rf"<?(?:{_KINDS}) (?:{_OMITTED})>?",
            # "画像は省略されました", "图片已省略", "이미지 생략됨"
            r"\S{1,12}(?:は省略されました|已省略)|.{1,12} 생략됨",
            # A file that was exported, too: IMG-20240312-WA0001.jpg (file attached), <attached: 042-PHOTO-2024.jpg>
            r"[a-z]{3}-\d{8}-wa\d+\.\w+ \([^()]+\)|<[^<>:]{1,20}:\s?(?!/)[^<>]+\.\w+>",
            *map(str.strip, _TEXTS.strip().split("\n")),
        )
    )
)
_ENCRYPTED = (
    "end-to-end.{0,12}(?:encrypted|verschlüsselt|versleuteld)|ende-zu-ende|extremo a extremo|bout en bout|"
    "ponta a ponta|crittografat|сквозн|uçtan uca|エンドツーエンド|端到端|端對端|종단간"
)
_OWN_PLACEHOLDER = re.compile(
    rf"<[^<>]*>|\S.*\.\w{{2,5}} \([^()]+\)|.* (?:{_OMITTED})|.*(?:{_ENCRYPTED}).*",
)
"""Placeholders in any language that only the mark distinguishes from ordinary text."""
_EDITED = re.compile(rf"\u200e?<(?:{_EDITED_TEXTS})\.?>$", re.IGNORECASE)
_CHARACTERS_MAX = 300
"""Maximum length of a placeholder, including a file name."""


def without_placeholder(line: str, *, is_first: bool) -> str:
    """A line of a message without a placeholder, and without the note that the message was edited.

    `is_first`: the line begins the message; only there, a placeholder may come without its mark.
    """
    said = _EDITED.sub("", line.rstrip()).rstrip()
    # A caption comes before the placeholder, which may have further marks.
    before, mark, after = ("", _OWN, said) if said.startswith(_OWN) else said.rpartition(_OWN)
    bare = after.translate(MARKS).strip().removesuffix(".").casefold()
    is_known = len(bare) <= _CHARACTERS_MAX and (
        (mark and _OWN_PLACEHOLDER.fullmatch(bare)) or ((mark or is_first) and _PLACEHOLDER.fullmatch(bare))
    )
    said = before.rstrip() if is_known else said
    return line if said == line.rstrip() else f"{said}\n"
