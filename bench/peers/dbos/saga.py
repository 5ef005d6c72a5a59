"""Three trivial steps under DBOS: how many workflows a second.

    saga.py DATABASE SECONDS CALLERS PROCESSES

The callers are threads, spread over processes, since one Python process uses one core. Each starts a
workflow under an id of its own and waits for its result, again and again. Prints the rate.
"""

import multiprocessing
import sys
import threading
import time
import uuid

from dbos import DBOS, DBOSConfig, SetWorkflowID


@DBOS.step()
def reserve(number: int) -> int:
    return number + 1


@DBOS.step()
def charge(number: int) -> int:
    return number + 1


@DBOS.step()
def ship(number: int) -> int:
    return number + 1


@DBOS.workflow()
def order(number: int) -> int:
    return ship(charge(reserve(number)))


def call(until: float, counts: list[int]) -> None:
    count = 0
    while time.monotonic() < until:
        with SetWorkflowID(str(uuid.uuid4())):
            assert order(count) == count + 3
        count += 1
    counts.append(count)


def run(number: int, url: str, seconds: float, callers: int, barrier, results) -> None:
    config: DBOSConfig = {
        "name": "saga",
        "system_database_url": url,
        # A connection for each caller and some for its own threads, all opened before it counts.
        "sys_db_pool_size": callers + 4,
        "max_executor_threads": callers * 2,
        "executor_id": f"process-{number}",
        "application_version": "1",
        "log_level": "ERROR",
        "enable_otlp": False,
        # The database is prepared by the first process; see below.
        "run_migrations": number == 0,
    }
    if number != 0:
        barrier.wait()
    DBOS(config=config)
    DBOS.launch()
    if number == 0:
        barrier.wait()
    for time_to_run in (min(seconds, 1.0), seconds):
        counts: list[int] = []
        barrier.wait()
        start = time.monotonic()
        threads = [
            threading.Thread(target=call, args=(start + time_to_run, counts))
            for _ in range(callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = sum(counts) / (time.monotonic() - start)
    # The first turn only warmed up.
    results.put(rate)
    DBOS.destroy()


def main() -> None:
    url, seconds, callers, processes = sys.argv[1], *map(int, sys.argv[2:5])
    barrier, results = multiprocessing.Barrier(processes), multiprocessing.Queue()
    workers = [
        multiprocessing.Process(
            target=run, args=(n, url, seconds, callers // processes, barrier, results)
        )
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    rate = sum(results.get(timeout=120) for _ in workers)
    for worker in workers:
        worker.join()
    print(f"rate {rate}")


if __name__ == "__main__":
    main()
