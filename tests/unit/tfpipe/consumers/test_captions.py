"""Captions in any script: with a font that is there, or spelled in Latin letters."""

import PIL.features
import PIL.Image
import PIL.ImageDraw
import pytest

from tfpipe.consumers import captions

SPELLED = {
    "猫": "Mao",
    "кошка": "koshka",
    "قطة": "qth",
    "बिल्ली": "billi",
    "ねこ": "neko",
    "고양이": "GoYangI",
    "Γάτα": "Gata",
    "cat 😀": "cat :grinning:",
    "1 ö 猫": "1 o Mao",
}


@pytest.fixture
def fonts(monkeypatch):
    """Forgets the fonts of the machine, before and after; sets the folders of fonts."""

    def set_folders(*folders):
        monkeypatch.setattr(captions, "FOLDERS", folders)

    caches = (captions._paths, captions._best)
    for cache in caches:
        cache.cache_clear()
    yield set_folders
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize(("text", "spelled"), SPELLED.items())
def test_without_a_font_a_name_is_spelled_in_latin_letters(fonts, text, spelled):
    fonts()

    assert captions.drawable(text)[0] == spelled


def test_files_that_are_no_fonts_are_passed_over(fonts, tmp_path):
    (tmp_path / "broken.ttf").write_text("no font")
    fonts(str(tmp_path), str(tmp_path / "none"))

    assert captions.drawable("猫")[0] == "Mao"


def test_letters_of_english_take_no_search_for_fonts(fonts, monkeypatch):
    monkeypatch.setattr(captions, "_paths", lambda: pytest.fail("searched"))

    assert captions.drawable("1 tench, (Tinca) tinca")[0] == "1 tench, (Tinca) tinca"


@pytest.mark.parametrize("text", [text for text in SPELLED if "😀" not in text])
def test_with_a_font_the_name_is_drawn_as_it_is(fonts, text):
    """Fonts differ from machine to machine: one of a script may be missing."""
    fonts(*captions.FOLDERS)
    drawn, font = captions.drawable(text)
    if not set(text) <= set(drawn):
        pytest.skip(f"no font of this machine has all of {text}")

    assert drawn == text
    missing = bytes(font.getmask("\U0010ffff"))
    assert all(bytes(font.getmask(char)) != missing for char in text if char != " ")


def test_only_characters_that_the_best_font_lacks_are_spelled(fonts, monkeypatch):
    monkeypatch.setattr(captions, "_lacking", lambda path, wanted: wanted & {"猫"})
    fonts()

    assert captions.drawable("1 ö 猫")[0] == "1 ö Mao"


def test_scripts_that_need_a_shaper_are_spelled_without_one(fonts, monkeypatch):
    monkeypatch.setattr(PIL.features, "check", lambda name: False)

    assert captions.drawable("قطة")[0] == "qth"
    assert captions.drawable("बिल्ली")[0] == "billi"
    captions._best.cache_clear()
    captions._paths.cache_clear()
    fonts()
    assert captions.drawable("a\u200db\ufe0f")[0] == "ab"  # joiners would be boxes


def test_a_caption_stays_on_its_line(fonts):
    sheet = PIL.Image.new("L", (80, 3 * captions.LINE_HEIGHT), 255)
    canvas = PIL.ImageDraw.Draw(sheet)

    for text in ("Ågj|" * 20, "two\nlines\tand more", *SPELLED):
        captions.draw(canvas, (10, captions.LINE_HEIGHT), text, 60)

    left, top, right, bottom = sheet.point(lambda value: 255 - value).getbbox()
    assert 8 <= left < right <= 10 + 60 + 2
    assert captions.LINE_HEIGHT - 2 <= top < bottom <= 2 * captions.LINE_HEIGHT + 1
