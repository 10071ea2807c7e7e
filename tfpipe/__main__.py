"""`python -m tfpipe` runs a command, or shows the menu."""

from tfpipe.cli import menu

if __name__ == "__main__":
    raise SystemExit(menu.main())
