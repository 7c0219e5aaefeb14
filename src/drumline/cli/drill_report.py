"""The report of a drill as text and JSON, and whether the drill passed."""

from __future__ import annotations

from drumline.cli.drill_run import Report
from drumline.cli.terminal import print_json, print_line
from drumline.cli.text import rounded
from drumline.record import Record
from drumline.run.describe import describe_cause
from drumline.store.folder import RunFolder
from drumline.store.summary import spell_verdict
from drumline.words import count, format_duration


class Bounds(Record):
    """The limits for a recovery; None means no limit."""

    within_seconds: float | None = None  # from the fault to the first new step
    steps_lost: int | None = None


def show_report(folder: RunFolder, report: Report, bounds: Bounds, form: str) -> bool:
    """Print the report of a drill; return whether the drill passed."""
    exceeded = failures(report, bounds)
    passed = report.came_back and not report.wrong and not exceeded
    if form == "json":
        print_json(_data(folder, report, bounds, exceeded, passed=passed))
        return passed
    facts = {
        "Fault": _fault(folder, report),
        "Noticed": _after(report.notice_seconds) or "never",
        "Stopped": _after(report.teardown_seconds, "later") or "no replica was stopped",
        "First step": _first_step(report),
        "Steps lost": _lost(report),
        "Verdict": _verdict(folder, report),
    }
    for word, text in facts.items():
        print_line(f"{f'{word}:':<11} {text}")
    for each in exceeded:
        print_line(f"{'Exceeded:':<11} {each}")
    print_line(f"{'Drill:':<11} {'passed' if passed else 'FAILED'}")
    return passed


def failures(report: Report, bounds: Bounds) -> list[str]:
    """Return the limits that were exceeded; one that cannot be checked counts as exceeded."""
    found = []
    within, most = bounds.within_seconds, bounds.steps_lost
    if within is not None and report.first_step_seconds is None:
        found.append(f"no new step was seen within {format_duration(within)}")
    elif within is not None and report.first_step_seconds is not None and report.first_step_seconds > within:
        found.append(
            f"the first new step took {format_duration(report.first_step_seconds)}, more than {format_duration(within)}"
        )
    if most is not None and report.lost.steps is None:
        found.append("the number of lost steps is not known")
    elif most is not None and report.lost.steps is not None and report.lost.steps > most:
        found.append(f"{count(report.lost.steps, 'step')} lost, more than {most}")
    return found


def _fault(folder: RunFolder, report: Report) -> str:
    at = "" if report.step is None else f", at step {report.step}"
    return f"{folder.id}.{report.replica} ({report.fault}), attempt {report.attempt}{at}"


def _first_step(report: Report) -> str:
    if report.first_step_seconds is not None:
        return f"{_after(report.first_step_seconds)}, in attempt {report.outcome.attempt}"
    if report.came_back:
        return f"not known: no step can be read; attempt {report.outcome.attempt} runs"
    if report.outcome.is_over:
        return f"never: the run did not recover, it is {report.outcome.phase}"
    return f"none yet: the run is {report.outcome.phase}"


def _lost(report: Report) -> str:
    if report.lost.epochs is not None:
        return f"not known; epochs lost: {report.lost.epochs}"
    return "not known" if report.lost.steps is None else str(report.lost.steps)


def _verdict(folder: RunFolder, report: Report) -> str:
    cause = report.outcome.cause
    named = spell_verdict(folder.id, cause, describe_cause(cause)) if cause else ""
    if report.wrong:
        return f"wrong: {report.wrong}" + (f" ({named})" if named else "")
    return f"right: {named}"


def _after(seconds: float | None, word: str = "") -> str:
    return "" if seconds is None else f"{spell(seconds)} {word}".strip()


def spell(seconds: float) -> str:
    """Return `0.024s`, `1.3s` or `2m5s`: milliseconds only below one second."""
    return f"{seconds:.3f}s" if seconds < 1 else format_duration(seconds)


def _data(folder: RunFolder, report: Report, bounds: Bounds, exceeded: list[str], *, passed: bool) -> dict[str, object]:
    cause = report.outcome.cause
    return {
        "run": folder.id,
        "replica": f"{folder.id}.{report.replica}",
        "harm": report.fault.value,
        "attempt": report.attempt,
        "step": report.step,
        "notice_seconds": rounded(report.notice_seconds),
        "teardown_seconds": rounded(report.teardown_seconds),
        "first_step_seconds": rounded(report.first_step_seconds),
        "steps_lost": report.lost.steps,
        "epochs_lost": report.lost.epochs,
        "came_back": report.came_back,
        "next_attempt": report.outcome.attempt,
        "state": report.outcome.phase.value,
        "cause": cause
        and {
            "replica": f"{folder.id}.{cause.replica}" if cause.replica else None,
            "failure": cause.failure,
            "reason": cause.reason,
            "message": spell_verdict(folder.id, cause, describe_cause(cause)),
        },
        "verdict": "wrong" if report.wrong else "right",
        "wrong_because": report.wrong or None,
        "within_seconds": bounds.within_seconds,
        "most_steps_lost": bounds.steps_lost,
        "exceeded": exceeded,
        "passed": passed,
    }
