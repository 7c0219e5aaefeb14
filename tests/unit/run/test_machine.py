"""What decides the end of a run, told as stories; see `stories.txt`."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.run.machine import fold
from stories import Story, Telling, read_stories

STORIES = read_stories(Path(__file__).with_name("stories.txt"))


@pytest.mark.parametrize("story", STORIES, ids=[story.title for story in STORIES])
def test_a_run_goes_as_its_story_tells(story: Story) -> None:
    telling = Telling(story.plan)
    for number, text in story.lines:
        if text.startswith("="):
            assert telling.stand() == text.removeprefix("=").strip(), f"line {number}"
            continue
        rest, _, phase = (part.strip() for part in text.partition("::"))
        words, _, expected = (part.strip() for part in rest.partition("->"))
        assert telling.tell(words) == expected, f"line {number}: {text}"
        if phase:
            assert telling.state.phase == phase, f"line {number}: {text}"
    assert fold(story.plan, telling.events) == telling.state
