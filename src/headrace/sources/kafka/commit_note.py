"""The note that each commit leaves beside its offset. Commits of other programs have another text or none."""

from __future__ import annotations

from headrace.sources.progress_note import ProgressNote


class CommitNote(ProgressNote, omit_defaults=True, kw_only=True):
    """What a commit leaves beside its offset. `topic` is the id of the topic."""

    topic: str | None = None
