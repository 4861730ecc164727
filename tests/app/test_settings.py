"""Settings come back as they were; a file that cannot be read is set aside and never costs a start."""

from __future__ import annotations

from pathlib import Path

from boundscope_app import settings
from boundscope_app.settings import Settings


def test_what_was_kept_comes_back(config: Path) -> None:
    kept = Settings(theme="dark", geometry=b"\x00\x01\xff", layout=b"abc", view="memory", selected_job="j")
    kept.remember(config / "net.onnx")
    assert settings.save(kept) == ""
    assert settings.load() == (kept, "")


def test_first_start_has_no_note(config: Path) -> None:
    assert settings.load() == (Settings(), "")


def test_unreadable_file_is_set_aside_with_a_note(config: Path) -> None:
    config.mkdir()
    path = config / settings.FILE_NAME
    path.write_text('{"theme": "purple"')
    loaded, note = settings.load()
    assert loaded == Settings()
    assert "set aside" in note
    assert not path.exists()
    aside = list(config.glob("*.unreadable-*"))
    assert [each.read_text() for each in aside] == ['{"theme": "purple"']


def test_unknown_theme_counts_as_unreadable(config: Path) -> None:
    config.mkdir()
    (config / settings.FILE_NAME).write_text('{"theme": "purple"}')
    assert "set aside" in settings.load()[1]


def test_settings_of_a_newer_version_are_read(config: Path) -> None:
    config.mkdir()
    (config / settings.FILE_NAME).write_text('{"theme": "dark", "invented_later": [1, 2]}')
    assert settings.load() == (Settings(theme="dark"), "")


def test_failing_to_write_is_said_not_raised(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert "cannot be written" in settings.save(Settings(), blocked / "workbench.json")


def test_recent_is_newest_first_without_repeats(tmp_path: Path) -> None:
    kept = Settings()
    for name in ("a.onnx", "b.onnx", "a.onnx"):
        kept.remember(tmp_path / name)
    assert [Path(text).name for text in kept.recent] == ["a.onnx", "b.onnx"]
    for number in range(100):
        kept.remember(tmp_path / f"{number}.onnx")
    assert len(kept.recent) == settings.RECENT_LIMIT
