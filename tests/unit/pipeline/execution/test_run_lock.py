"""The lock that attempts at runs share, and that an exchange of a folder has alone."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from headrace.pipeline.execution.run_lock import RunLock

TURNS = 200
THREADS = 4


def test_an_exclusive_holder_that_waits_for_too_long_is_refused_and_leaves_the_lock_free() -> None:
    run_lock = RunLock()
    with run_lock.shared():
        with run_lock.exclusive(0.01) as is_held:
            assert not is_held
        with run_lock.shared(), run_lock.shared():
            pass


def test_a_shared_holder_waits_for_the_exclusive_one() -> None:
    run_lock = RunLock()
    began = threading.Event()

    def share() -> None:
        with run_lock.shared():
            began.set()

    with ThreadPoolExecutor(1) as pool:
        with run_lock.exclusive(0) as is_held:
            assert is_held
            waiting = pool.submit(share)
            assert not began.wait(0.1)
        waiting.result(60)
    assert began.is_set()


def test_an_exclusive_holder_is_alone_although_shared_ones_follow_each_other() -> None:
    run_lock, stop = RunLock(), threading.Event()
    shared = turns = 0
    lock = threading.Lock()

    def work(seed: int) -> None:
        nonlocal shared
        dice = random.Random(seed)
        while not stop.is_set():
            with run_lock.shared():
                with lock:
                    shared += 1
                time.sleep(dice.random() / 1000)
                with lock:
                    shared -= 1

    with ThreadPoolExecutor(THREADS) as pool:
        workers = [pool.submit(work, seed) for seed in range(THREADS)]
        for _ in range(TURNS):
            with run_lock.exclusive(10) as is_held:
                assert is_held
                assert shared == 0
                turns += 1
        stop.set()
        for worker in workers:
            worker.result(60)
    assert turns == TURNS
