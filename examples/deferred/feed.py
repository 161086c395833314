"""Put a day's legs into the feed: whole, by rename."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

LEGS = 500


def main(day: str) -> None:
    chance = random.Random(day)  # noqa: S311
    feed = Path(os.environ.get("FEED", Path(__file__).resolve().parent / "feed"))
    feed.mkdir(parents=True, exist_ok=True)
    draft = feed / f".{day}.new"
    lanes = [("EWR", "ORD"), ("JFK", "LAX"), ("LGA", "ATL"), ("EWR", "SFO")]
    legs = [(*chance.choice(lanes), round(chance.gauss(180, 40), 1)) for _ in range(LEGS)]
    draft.write_text("".join(json.dumps({"origin": origin, "dest": dest, "minutes": minutes}) + "\n" for origin, dest, minutes in legs))
    draft.rename(feed / f"{day}.jsonl")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "2013-01-01")
