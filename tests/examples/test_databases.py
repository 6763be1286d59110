"""The programs of docs/databases.md, on real servers: transactions, SQLAlchemy, migrations, Django, rights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

asyncpg = pytest.importorskip("asyncpg")
pytest.importorskip("redis")
pytest.importorskip("sqlalchemy")

from private_servers import Postgres, Redis  # noqa: E402
from sqlalchemy import event, text  # noqa: E402
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine  # noqa: E402

from aiopurgatory import PurgatoryError  # noqa: E402
from aiopurgatory.bus import BusConnectError  # noqa: E402
from aiopurgatory.bus.postgres import PostgresBus  # noqa: E402
from aiopurgatory.bus.redis import RedisBus  # noqa: E402
from aiopurgatory.streams import StoreError  # noqa: E402
from aiopurgatory.streams.postgres import PostgresLog, tables_sql  # noqa: E402
from aiopurgatory.streams.redis import RedisLog  # noqa: E402

from .helpers import DOCS, block, installed, until  # noqa: E402

PAGE = "databases.md"

SETTINGS = """
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "bus",
    "PASSWORD": "secret", "HOST": "127.0.0.1", "PORT": {port}, "TEST": {{"NAME": "test_shop"}}}}}}
DSN = "postgresql://bus:secret@127.0.0.1:{port}/test_shop?sslmode=disable"
SECRET_KEY, INSTALLED_APPS, ROOT_URLCONF = "x", ["shop"], "urls"
DEFAULT_AUTO_FIELD, USE_TZ = "django.db.models.BigAutoField", True
"""
URLS = """
from django.urls import path
from shop.views import paid
urlpatterns = [path("orders/<int:order>/paid", paid)]
"""
MODELS = """
from django.db import models
class Order(models.Model):
    state = models.CharField(max_length=10)
"""
INITIAL = """
from django.db import migrations, models
class Migration(migrations.Migration):
    initial = True
    fields = [("id", models.BigAutoField(primary_key=True)), ("state", models.CharField(max_length=10))]
    operations = [migrations.CreateModel("Order", fields)]
"""


#: The rights of users of Redis.
(_USERS,) = re.findall(r"^```text\n(user .*?)^```$", (DOCS / PAGE).read_text("utf-8"), re.DOTALL | re.MULTILINE)
USERS = _USERS.replace("\n    ", " ").splitlines()


class Heard:
    def __init__(self) -> None:
        self.keys: list[object] = []

    def notify(self, key: object, limit: int | None = None) -> None:
        self.keys.append(key)

    def notify_all(self) -> None:
        """Nothing is missed here."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with installed(Postgres)() as server:
        yield server


@pytest.fixture
async def names(server: Postgres) -> AsyncIterator[dict[str, Any]]:
    """What the programs of the page use, with the tables."""
    heard = Heard()
    connection = await asyncpg.connect(server.url())
    await connection.execute("DROP TABLE IF EXISTS orders, events_topics, events_events")
    await connection.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, state text); INSERT INTO orders VALUES (7, 'new')"
    )
    await connection.execute(tables_sql())
    async with PostgresLog(server.url()) as log, PostgresBus(server.url(), [heard]) as bus:
        yield {"log": log, "bus": bus, "heard": heard, "connection": connection, "url": server.url()}
    await connection.close()


@asynccontextmanager
async def engine_of(names: dict[str, Any], driver: str = "asyncpg") -> AsyncIterator[AsyncEngine]:
    pytest.importorskip(driver)
    url = names["url"].replace("postgresql:", f"postgresql+{driver}:").split("?")[0]
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


async def until_heard(names: dict[str, Any], keys: list[object]) -> None:
    await until(lambda: len(names["heard"].keys) >= len(keys))
    assert names["heard"].keys == keys


async def test_outbox_of_page_appends_and_publishes(names: dict[str, Any]) -> None:
    exec(block(PAGE, "outbox.py"), names)
    await names["pay"](names["connection"], 7)
    await until_heard(names, [("orders", 7)])
    event = await anext(names["log"].follow("orders"))
    assert (event.name, event.data) == ("paid", "7")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_session_of_sqlalchemy_appends_at_its_commit(names: dict[str, Any], driver: str) -> None:
    exec(block(PAGE, "in_session.py"), names)
    async with engine_of(names, driver) as engine, AsyncSession(engine) as session:
        await names["pay_in_session"](session, 7)
        raw = await (await session.connection()).get_raw_connection()
        if driver == "asyncpg":  # SQLAlchemy has not begun at the server yet
            with pytest.raises(RuntimeError, match="connection must be in a transaction"):
                await names["log"].append("orders", "8", connection=raw.driver_connection)
        await session.execute(names["text"]("SELECT 1"))
        await names["log"].append("orders", "8", connection=raw.driver_connection)
        await session.rollback()
    await names["log"].end("orders")
    assert [event.data async for event in names["log"].follow("orders")] == ["7", "done"]


async def test_publish_after_commit_of_sqlalchemy(names: dict[str, Any]) -> None:
    exec(block(PAGE, "after_commit.py"), names)
    try:
        async with engine_of(names) as engine, AsyncSession(engine) as session:
            for order in (1, 2):
                await session.execute(text("SELECT 1"))
                names["changed"](session.sync_session, ("orders", order))
                for step in ("commit", "rollback"):  # of a savepoint: neither publishes nor forgets
                    savepoint = await session.begin_nested()
                    await getattr(savepoint, step)()
                assert names["heard"].keys == []
                await (session.rollback() if order == 1 else session.commit())
            assert names["heard"].keys == [("orders", 2)]
    finally:
        event.remove(names["Session"], "after_commit", names["publish"])
        event.remove(names["Session"], "after_rollback", names["forget"])


async def test_migration_of_alembic_runs_on_asyncpg(names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    alembic = pytest.importorskip("alembic")
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    def migrate(connection: Any, steps: tuple[str, ...]) -> None:
        monkeypatch.setattr(alembic, "op", Operations(MigrationContext.configure(connection)))
        exec(block(PAGE, "alembic_migration.py"), names)
        for step in steps:
            names[step]()

    function = "SELECT count(*) FROM pg_proc WHERE proname = 'aiopurgatory_orders'"
    async with engine_of(names) as engine:
        async with engine.begin() as connection:
            await connection.run_sync(migrate, ("upgrade", "downgrade", "upgrade", "upgrade"))
        await names["connection"].execute("UPDATE orders SET state = 'paid'")
        await until_heard(names, [("orders", 7)])
        await names["log"].append("orders", "a")
        async with engine.begin() as connection:
            await connection.run_sync(migrate, ("upgrade", "downgrade"))
    assert await names["connection"].fetchval(function) == 0


def test_project_of_django_passes_its_tests(server: Postgres, tmp_path: Path) -> None:
    pytest.importorskip("django")
    pytest.importorskip("psycopg")
    titles = ("shop/waits.py", "shop/views.py", "shop/migrations/0002_notify.py", "shop/tests.py")
    files = {title: block(PAGE, title) for title in titles}
    files |= {"settings.py": SETTINGS.format(port=server.port), "urls.py": URLS, "shop/models.py": MODELS}
    files |= {"shop/__init__.py": "", "shop/migrations/__init__.py": "", "shop/migrations/0001_initial.py": INITIAL}
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths, "DJANGO_SETTINGS_MODULE": "settings"}
    command = [sys.executable, "-m", "django", "test", "shop"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr


@pytest.fixture
def restricted() -> Iterator[Redis]:
    """A Redis with the users of the page."""

    class Restricted(Redis):
        settings = tuple(USERS)

    with Restricted() as server:
        yield server


async def test_users_of_page_may_use_a_log_and_a_bus(restricted: Redis) -> None:
    tenant, log, bus = (restricted.url(user=f"{user}:secret") for user in ("tenant", "app-log", "app-bus"))
    prefixed: dict[str, Any] = {"prefix": "app1:"}
    for url, options in ((log, {}), (tenant, prefixed)):
        async with RedisLog(url, **options) as one, RedisLog(url, **options) as other:
            events = other.follow("room")
            for data in ("a", "x" * 2_000):  # too long for its wake-up
                await one.append("room", data)
                assert (await anext(events)).data == data
            await events.aclose()
    for url, name in ((bus, "aiopurgatory"), (tenant, "app1:bus")):
        async with RedisBus(url, [Heard()], name=name) as either:
            either.publish("key")
            await either.flush()
    shared = RedisBus(tenant, [], name="app1:bus")
    async with shared, RedisLog(tenant, bus=shared, **prefixed) as other:
        assert await other.last_id("room") is not None
    async with RedisLog(log) as other:
        await other.append("only without a prefix", "a")
    async with RedisLog(tenant, **prefixed) as other:
        assert await other.last_id("only without a prefix") is None
    with pytest.raises(StoreError, match=r"NOPERM.*channel"):  # the control: without the prefix
        await RedisLog(tenant).start()


async def use(log: RedisLog, topic: str) -> None:
    async with log:
        await log.append(topic, "a")
        await anext(log.follow(topic))


async def test_users_of_page_without_a_command_are_told_which(restricted: Redis) -> None:
    tenant, bus = (restricted.url(user=f"{user}:secret") for user in ("tenant", "app-bus"))
    for command in re.findall(r"\+(\w+)", USERS[-1]):
        await restricted.asked(f"ACL SETUSER tenant -{command}")
        with pytest.raises(PurgatoryError, match=rf"(?i)'{command}'|in {command}"):
            await use(RedisLog(tenant, prefix="app1:", timeout=15.0), f"topic of {command}")
        await restricted.asked(f"ACL SETUSER tenant +{command}")
    for command in ("subscribe", "publish"):
        await restricted.asked(f"ACL SETUSER app-bus -{command}")
        with pytest.raises(BusConnectError, match=f"NOPERM.*'{command}' command"):
            await RedisBus(bus, [], timeout=15.0).start()
        await restricted.asked(f"ACL SETUSER app-bus +{command}")


@pytest.mark.parametrize("prefix", ["\u00e4", "x" * 45, "\n"])
def test_prefix_that_no_channel_may_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"prefix \+ 'aiopurgatory.' \+ name must be 1 to 63 printable"):
        RedisLog("redis://127.0.0.1", prefix=prefix)
