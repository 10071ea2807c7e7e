"""tfpipe.cli.completion: what the scripts for shells hold."""

import re

import pytest

from tfpipe.cli import completion, names


def test_scripts_have_all_commands_flags_and_choices() -> None:
    """tests/system types the Tab key in each shell."""
    scripts = {shell: completion.script([shell]) for shell in ("bash", "zsh", "fish")}

    for name, command in names.commands_of(""):
        for option in command.flags:
            words = [*name.split(), command.form, *(option.choices or ())]
            words += [] if option.about.is_argument else [option.name]
            for shell, text in scripts.items():
                assert all(word in text for word in words), (shell, words)
    assert "--nobars" not in scripts["bash"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["csh"], "one of bash, zsh, fish, got csh. Did you mean zsh?"),
        ([], "one of bash, zsh, fish, got nothing."),
        (["bash", "zsh"], "one of bash, zsh, fish, got bash zsh."),
    ],
)
def test_other_shells_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        completion.script(words)
