"""Placements worked out by hand, in the literature on Kafka's timer and from its table of reaches."""

import pytest

from aiopurgatory.timer import Timer, TimerTask

Placement = tuple[int, int, int]


def add_all(timer: Timer, deadlines: list[int]) -> None:
    for deadline in deadlines:
        assert timer.add(TimerTask(deadline))


def spans(timer: Timer) -> list[Placement]:
    """The occupied buckets, without how full they are."""
    return [(level, first, last) for level, first, last, _ in timer.occupied()]


def expired_at(timer: Timer, now: int) -> list[int]:
    """The deadlines that expire at *now*."""
    expired: list[TimerTask] = []
    assert timer.advance(now, expired.append) == len(expired)
    return [task.deadline for task in expired]


# 10 s x 8 buckets


def test_add_ten_seconds_eight_buckets_places_as_drawn() -> None:
    timer = Timer(tick=10, wheel_size=8)
    add_all(timer, [35, 36, 38, 12, 18, 69, 62, 65, 53, 54])
    assert [tasks for *_, tasks in timer.occupied()] == [2, 3, 2, 3]
    assert timer.levels == 1
    assert spans(timer) == [(0, 11, 20), (0, 31, 40), (0, 51, 60), (0, 61, 70)]
    add_all(timer, [100])
    assert timer.levels == 2
    assert spans(timer)[4:] == [(1, 81, 160)]
    add_all(timer, [700])
    assert timer.levels == 3
    assert spans(timer)[5:] == [(2, 641, 1280)]


def test_advance_700_s_cascades_at_640_and_fires_at_700() -> None:
    timer = Timer(tick=10, wheel_size=8)
    add_all(timer, [700])
    assert timer.next_expiration() == 640
    assert expired_at(timer, 639) == []
    assert spans(timer) == [(2, 641, 1280)]
    assert expired_at(timer, 640) == []
    assert spans(timer) == [(0, 691, 700)]
    assert timer.next_expiration() == 700
    assert expired_at(timer, 699) == []
    assert expired_at(timer, 700) == [700]
    assert timer.next_expiration() is None


@pytest.mark.parametrize(
    ("now", "placement"),
    [
        (0, (2, 641, 1280)),
        (79, (2, 641, 1280)),
        (80, (1, 641, 720)),
        (619, (1, 641, 720)),
        (620, (0, 691, 700)),
        (640, (0, 691, 700)),
    ],
)
def test_add_700_s_later_lands_on_a_finer_level(now: int, placement: Placement) -> None:
    timer = Timer(tick=10, wheel_size=8, start=now)
    add_all(timer, [700])
    assert spans(timer) == [placement]


# 1 ms x 20 buckets


@pytest.mark.parametrize(
    ("levels", "reach"), [(1, 20), (2, 400), (3, 8_000), (4, 160_000), (5, 3_200_000), (6, 64_000_000)]
)
def test_add_beyond_reach_makes_one_level_more(levels: int, reach: int) -> None:
    timer = Timer()
    assert timer.levels == 1
    add_all(timer, [reach])
    assert timer.levels == levels
    width = reach // 20
    assert spans(timer) == [(levels - 1, reach - width + 1, reach)]
    add_all(timer, [reach + 1])
    assert timer.levels == levels + 1
    assert spans(timer)[1:] == [(levels, reach + 1, 2 * reach)]
