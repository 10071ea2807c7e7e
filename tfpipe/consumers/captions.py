"""Captions: text in any script, drawn with a font that is on this machine.

In: a text, such as the name of a class. Out: the text and the font to draw it with.
Pillow's own font has the letters of English. For others the usual folders are searched
for a font with the characters. A character that no font has is spelled in Latin
letters, so that no caption is a row of empty boxes.
"""

import functools
import pathlib
import unicodedata

import PIL.features
import PIL.ImageDraw
import PIL.ImageFont

# Pixels.
FONT_SIZE = 11
LINE_HEIGHT = 14

FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/System/Library/Fonts",
    "/Library/Fonts",
)
_SUFFIXES = (".ttf", ".otf", ".ttc")
# Words in names of fonts that are harder to read in this size.
_UNUSUAL = (
    *("bold", "light", "thin", "italic", "oblique", "condensed", "narrow"),
    *("serif", "mono", "math"),
)
# Unicode gives no font a glyph for this character: it is drawn as a missing one.
_MISSING = "\U0010ffff"
# Fonts that are open at a time; a machine may have thousands.
_MOST_OPEN = 64

_Font = PIL.ImageFont.FreeTypeFont


def draw(
    canvas: PIL.ImageDraw.ImageDraw, place: tuple[int, int], text: str, width: int
) -> None:
    """Draws a text on one line, and cuts it where it is too wide.

    Args:
        canvas: Drawing of the sheet.
        place: Left and top of the line in pixels.
        text: Text in any script.
        width: Width of the line in pixels.
    """
    text, font = drawable(" ".join(text.split()))
    while len(text) > 1 and canvas.textlength(text, font=font) > width:
        text = text[:-1]
    # On a common baseline, because fonts differ in their heights.
    baseline = place[0], place[1] + FONT_SIZE
    canvas.text(baseline, text, fill="black", font=font, anchor="ls")


def drawable(text: str) -> tuple[str, PIL.ImageFont.FreeTypeFont]:
    """Returns a text that can be drawn, and the font to draw it with.

    The font is the one that has most characters of the text, the first one of several.
    The other characters are spelled in Latin letters.
    """
    path, missing = _best(frozenset(text))
    if missing:
        import anyascii  # its tables are read for this only

        text = "".join(anyascii.anyascii(c) if c in missing else c for c in text)
    return text, _open(path, _layout())


@functools.lru_cache(maxsize=4096)
def _best(wanted: frozenset[str]) -> tuple[str | None, frozenset[str]]:
    """Returns the best font, None for Pillow's own, and the characters it lacks."""
    best: tuple[str | None, frozenset[str]] = None, _lacking(None, wanted)
    for path in _paths() if best[1] else ():
        missing = _lacking(path, wanted)
        if len(missing) < len(best[1]):
            best = path, missing
        if not missing:
            break
    return best


@functools.cache
def _paths() -> list[str]:
    """Returns the fonts of this machine, the plainest first."""
    found = [
        path
        for folder in FOLDERS
        for path in sorted(pathlib.Path(folder).expanduser().rglob("*"))
        if path.suffix.lower() in _SUFFIXES
    ]
    found.sort(key=lambda path: sum(word in path.name.lower() for word in _UNUSUAL))
    return [str(path) for path in found]


@functools.lru_cache(maxsize=_MOST_OPEN)
def _open(path: str | None, layout: PIL.ImageFont.Layout) -> _Font:
    """Opens a font; OSError for a font of pictures, which has other sizes."""
    if path is not None:
        return PIL.ImageFont.truetype(path, FONT_SIZE, layout_engine=layout)
    own = PIL.ImageFont.load_default(FONT_SIZE)
    assert isinstance(own, _Font)
    return own.font_variant(layout_engine=layout)


def _layout() -> PIL.ImageFont.Layout:
    """Returns the shaper of scripts such as Arabic and Devanagari, if it is there."""
    has_shaper = PIL.features.check("raqm")
    return PIL.ImageFont.Layout.RAQM if has_shaper else PIL.ImageFont.Layout.BASIC


def _lacking(path: str | None, wanted: frozenset[str]) -> frozenset[str]:
    """Returns the characters that a font cannot draw, alone or in a word."""
    try:
        # A shaper would draw a mark on a circle of its own, also without a glyph.
        font = _open(path, PIL.ImageFont.Layout.BASIC)
    except OSError:
        return wanted
    no_glyph = bytes(font.getmask(_MISSING))
    shaped = PIL.features.check("raqm")

    def is_lacking(char: str) -> bool:
        if char == " " or (shaped and _is_invisible(char)):
            return False
        needs_shaper = _is_shaped(char) and not shaped
        return needs_shaper or bytes(font.getmask(char)) == no_glyph

    return frozenset(filter(is_lacking, wanted))


def _is_invisible(char: str) -> bool:
    """Returns whether a shaper draws nothing for a character, which joins others."""
    return "\ufe00" <= char <= "\ufe0f" or unicodedata.category(char) == "Cf"


def _is_shaped(char: str) -> bool:
    """Returns whether a script needs a shaper: right to left, or Indic."""
    return unicodedata.bidirectional(char) in ("R", "AL") or "\u0900" <= char < "\u1000"
