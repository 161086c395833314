"""The project of the benchmark: watches on one upstream, as the environment says."""

from __future__ import annotations

import json
import os
from importlib import import_module

from headrace import Project

path, arguments = json.loads(os.environ["BENCH_UPSTREAM"])
module, _, name = path.rpartition(".")
upstream = getattr(import_module(module), name)(**arguments)

project = Project("bench")
for number in range(int(os.environ["BENCH_WATCHES"])):
    match = {"all": None, "one in 100": {"one_in_100": [True]}, "one watch": {"hundredth": [number]}}[os.environ["BENCH_MATCH"]]
    project.watch(f"watch.{number:03}", upstream, match=match, id="$.id")
