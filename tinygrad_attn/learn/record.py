"""Floor 6.5. What a learner has done, in a file of the user's data directory.

A line is added for each event, so that two sessions at once lose nothing; a line that cannot be read is passed over.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

SECTIONS = ("read", "solved", "quiz")


def folder() -> Path:
    """Where data of this user's programs belong, or $TINYGRAD_ATTN_HOME."""
    if chosen := os.environ.get("TINYGRAD_ATTN_HOME"):
        return Path(chosen)
    try:
        home = Path.home()
    except RuntimeError:                    # a user without one
        home = Path()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "tinygrad_attn"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "tinygrad_attn"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "tinygrad_attn"


def note(section: str, name: str, value: Any = None) -> None:
    """Write down that a lesson was read, an exercise solved, or a quiz answered, and when. What cannot be written is an
    OSError."""
    event = {"section": section, "name": name, "date": datetime.date.today().isoformat(), "value": value}
    folder().mkdir(parents=True, exist_ok=True)
    with open(folder() / "progress.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def progress() -> dict[str, dict[str, Any]]:
    """For each section, what was done: when for the first time, and of a quiz the best result, (right, of)."""
    done: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    try:
        lines = (folder() / "progress.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return done
    for line in lines:
        try:
            event = json.loads(line)
            section, name = done[event["section"]], str(event["name"])
            if event["section"] == "quiz":
                right, of = map(int, event["value"])
                section[name] = max(section.get(name, (0, of)), (right, of))
            else:
                section.setdefault(name, str(event["date"]))
        except (ValueError, KeyError, TypeError):
            continue
    return done
