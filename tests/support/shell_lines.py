"""Shell lines from documents, run in this process: `mnemon` commands joined by &&, | and >."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import Done, run


@dataclass(frozen=True)
class Shell:
    """Runs lines in the working folder, against one server."""

    address: str

    def run(self, line: str) -> Done:
        """The output of the line and the result of its last command. It stops at the first failure."""
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&>")
        lexer.whitespace_split = True
        words = list(lexer)
        done, stdin, target = Done(0, "", ""), "", ""
        command: list[str] = []
        for word in [*words, "&&"]:
            if word == ">":
                target = ">"
            elif target == ">":
                target = word
            elif word in ("|", "&&"):
                done = self._mnemon(command, stdin)
                if target:
                    Path(target).write_text(done.stdout, encoding="utf-8")
                if done.returncode:
                    return done
                stdin, target, command = done.stdout if word == "|" else "", "", []
            else:
                command.append(word)
        return done

    def _mnemon(self, command: list[str], stdin: str) -> Done:
        name, *arguments = command
        assert name.rpartition("/")[2] == "mnemon", command
        return run(self.address, *arguments, stdin=stdin)
