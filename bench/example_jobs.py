"""Draws examples/jobs.csv: four weeks of a small cluster as a job log has them. The same seed, the same file.

    python bench/example_jobs.py > examples/jobs.csv

Three teams share 48 GPUs, first come, first served. Research trains by day, the platform team evaluates by night, and
once a sweep of 60 jobs comes at once.
"""

from __future__ import annotations

import heapq
import sys
from datetime import UTC, datetime, timedelta
from random import Random

GPUS, DAYS = 48, 28
START = datetime(2026, 3, 2, tzinfo=UTC)
TEAMS = {  # jobs an hour by day and by night, sizes, mean hours
    "research": (1.6, 0.5, (1, 2, 4, 8, 8, 16), 3.0),
    "vision": (1.2, 0.3, (1, 1, 2, 4), 2.0),
    "platform": (0.2, 1.5, (1, 2, 2), 0.6),
}


def draw(random: Random) -> list[tuple[float, str, int, float]]:
    """Jobs as (hour, team, GPUs, hours), in order of time."""
    jobs = []
    for hour in range(DAYS * 24):
        day, weekend = 8 <= hour % 24 < 20, hour // 24 % 7 >= 5
        for team, (by_day, by_night, sizes, mean) in TEAMS.items():
            rate = (by_day if day else by_night) * (0.3 if weekend else 1.0)
            at = random.expovariate(rate)
            while at < 1:
                jobs.append((hour + at, team, random.choice(sizes), min(random.expovariate(1 / mean) + 0.05, 48)))
                at += random.expovariate(rate)
    sweep = 16 * 24 + 10.2
    jobs += [(sweep + number / 360, "vision", 4, 0.4 + random.random() / 5) for number in range(60)]
    return sorted(jobs)


def main() -> None:
    """Let the jobs queue for the GPUs, and write the log."""
    print("job_id,team,gpus,submitted,started,ended", file=sys.stdout)
    running: list[tuple[float, int]] = []
    free, clock = GPUS, 0.0
    for number, (at, team, gpus, hours) in enumerate(draw(Random(7)), start=1):
        clock = max(clock, at)
        while running and (running[0][0] <= clock or free < gpus):
            end, back = heapq.heappop(running)
            clock, free = max(clock, end), free + back
        free -= gpus
        heapq.heappush(running, (clock + hours, gpus))
        times = ((START + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ") for hour in (at, clock, clock + hours))
        print(f"job-{number},{team},{gpus},{','.join(times)}")


if __name__ == "__main__":
    main()
