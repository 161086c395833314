"""The project of the benchmark: watches on one topic, as the environment says."""

from __future__ import annotations

import os

from headrace import Kafka, Project

project = Project("bench")
upstream = Kafka(os.environ["BENCH_TOPIC"], connection="bench", group=os.environ["BENCH_TOPIC"])
for number in range(int(os.environ["BENCH_WATCHES"])):
    project.watch(
        f"watch.{number:03}", upstream, match={"one_in_100": [True]} if os.environ["BENCH_MATCH"] == "one in 100" else None, id="$.id"
    )
