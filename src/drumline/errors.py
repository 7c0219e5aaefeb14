"""The errors of drumline, each with a hint and an exit code.

    DrumlineError
    ├── InputError       2   the input of the user is wrong: a spec, an argument, a TF_CONFIG
    │   └── SpecError    2   every problem of one file, each with its line
    ├── EngineError      3   the engine refused the request, or cannot be reached
    ├── NotFoundError    4   no such run, replica or file of a run
    └── SeveralError         several errors at once; the exit code is the lowest of theirs

Exit code 1 is that of a failed training, 130 of an interrupted command.
"""

from collections.abc import Sequence

from drumline.record import Record


class DrumlineError(Exception):
    """An error that a user can correct: one sentence, and a hint."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(DrumlineError):
    """The user's input cannot be used; nothing was started."""

    exit_code = 2


class EngineError(DrumlineError):
    """The engine refused the request, or cannot be reached."""

    exit_code = 3


class NotFoundError(DrumlineError):
    """The run, replica or file that was named does not exist."""

    exit_code = 4


class SeveralError(DrumlineError):
    """Several errors that are shown together, each with its hint."""

    def __init__(self, errors: Sequence[DrumlineError]) -> None:
        super().__init__("\n".join(error.message for error in errors))
        self.errors = tuple(errors)
        self.exit_code = min(error.exit_code for error in errors)


class Problem(Record):
    """A problem or warning about a file; `line` and `path` name the place in it, if they are known."""

    source: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


class SpecError(InputError):
    """Every problem of a spec, in the order of its lines."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(str(problem) for problem in self.problems))
