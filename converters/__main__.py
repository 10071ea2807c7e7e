"""`python -m converters` shows the menu of all commands."""

from tfpipe.cli import menu

if __name__ == "__main__":
    raise SystemExit(menu.main())
