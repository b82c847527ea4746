"""The server of the live page answers whoever has the token, for a loopback name, and no page of another origin."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from starlette.testclient import TestClient

from harness.live.page import POLICY, read_files
from harness.live.server import Hub, make_app
from harness.live.snapshot import Snapshot, Stage
from harness.stages.serving import Gate
from tests.live_snapshots import STAGE, make_snapshot

HOST = "http://127.0.0.1:4711"
LOGS = {3: b"ready\n\xff\n"}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def reader(gate: Gate, hub: Hub) -> Iterator[TestClient]:
    """A browser that has not shown the token."""
    with TestClient(make_app(hub, STAGE, LOGS.get, gate), base_url=HOST, follow_redirects=False) as client:
        yield client


@pytest.fixture
def admitted(reader: TestClient, gate: Gate) -> TestClient:
    """A browser that has opened the address with the token."""
    reader.get("/", params={"token": gate.token})
    return reader


PATHS = ["/", "/stage", "/events", "/logs/3", "/live.js", "/missing"]


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(reader: TestClient, path: str) -> None:
    answer = reader.get(path)
    assert answer.status_code == 403
    assert "token" in answer.text


@pytest.mark.parametrize("path", ["/", "/stage"])
def test_a_wrong_token_is_refused(reader: TestClient, path: str) -> None:
    assert reader.get(path, params={"token": "wrong"}).status_code == 403
    assert reader.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 403


def test_the_address_with_the_token_gives_a_cookie_and_leads_to_the_page(reader: TestClient, gate: Gate) -> None:
    answer = reader.get("/", params={"token": gate.token})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert answer.headers["Set-Cookie"].split("; ")[1:] == ["Path=/", "HttpOnly", "SameSite=Lax"]
    assert reader.get("/").content == read_files()["index.html"].content


def test_a_program_shows_the_token_in_a_header(reader: TestClient, gate: Gate) -> None:
    assert reader.get("/stage", headers={"Authorization": f"Bearer {gate.token}"}).status_code == 200


@pytest.mark.parametrize("host", ["site.example", "site.example:4711", "127.0.0.1.site.example", ""])
@pytest.mark.parametrize("path", ["/", "/stage"])
def test_other_names_are_refused(admitted: TestClient, host: str, path: str) -> None:
    assert admitted.get(path, headers={"Host": host}).status_code == 403


def test_other_names_are_refused_with_the_token_too(reader: TestClient, gate: Gate) -> None:
    answer = reader.get("/", params={"token": gate.token}, headers={"Host": "site.example"})
    assert (answer.status_code, "Set-Cookie" in answer.headers) == (403, False)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8080", "https://127.0.0.1:4711", "http://site.example", "null"])
def test_pages_of_other_origins_are_refused(admitted: TestClient, origin: str) -> None:
    assert admitted.get("/stage", headers={"Origin": origin}).status_code == 403


def test_the_page_itself_may_ask(admitted: TestClient) -> None:
    assert admitted.get("/stage", headers={"Origin": HOST}).status_code == 200


def test_no_answer_may_be_kept_or_have_scripts_of_others(admitted: TestClient) -> None:
    for path in ("/", "/stage", "/logs/3"):
        headers = admitted.get(path).headers
        assert (headers["Content-Security-Policy"], headers["Cache-Control"]) == (POLICY, "no-store")


def test_every_file_of_the_page_is_sent_as_what_it_is(admitted: TestClient) -> None:
    for name, file in read_files().items():
        answer = admitted.get(f"/{name}")
        assert (answer.content, answer.headers["Content-Type"]) == (file.content, file.media_type)


def test_the_stage_is_sent_as_json(admitted: TestClient) -> None:
    assert msgspec.json.decode(admitted.get("/stage").content, type=Stage) == STAGE


def test_logs_are_sent_as_text(admitted: TestClient) -> None:
    answer = admitted.get("/logs/3")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.text == "ready\n\N{REPLACEMENT CHARACTER}\n"


@pytest.mark.parametrize("node", ["4", "x", "-1", "../3"])
def test_there_is_nothing_but_logs_of_nodes(admitted: TestClient, node: str) -> None:
    assert admitted.get(f"/logs/{node}").status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(admitted: TestClient, method: str) -> None:
    assert admitted.request(method, "/stage").status_code == 405


def test_events_are_snapshots_until_the_end(admitted: TestClient, hub: Hub) -> None:
    asyncio.run(hub.publish(make_snapshot(4)))
    asyncio.run(hub.close())
    answer = admitted.get("/events")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.content.startswith(b"data: ") and answer.content.endswith(b"\n\n")
    found = msgspec.json.decode(answer.content.removeprefix(b"data: "), type=Snapshot)
    assert found == make_snapshot(4)


def test_each_reader_gets_the_last_snapshot_and_those_that_follow() -> None:
    async def read() -> list[float | None]:
        hub = Hub()
        await hub.publish(make_snapshot(1))
        await hub.publish(make_snapshot(2))
        seen = []
        async for content in hub.follow():
            seen.append(msgspec.json.decode(content, type=Snapshot).now_s)
            if len(seen) == 1:
                await hub.publish(make_snapshot(3))
            else:
                await hub.close()
        return seen

    assert asyncio.run(read()) == [2.0, 3.0]


def test_all_readers_that_wait_are_told() -> None:
    async def read() -> list[list[bytes]]:
        hub = Hub()

        async def follow() -> list[bytes]:
            return [content async for content in hub.follow()]

        readers = [asyncio.create_task(follow()) for _ in range(3)]
        await asyncio.sleep(0)
        await hub.publish(make_snapshot(1))
        await hub.close()
        return list(await asyncio.gather(*readers))

    found = asyncio.run(read())
    assert found == [[msgspec.json.encode(make_snapshot(1))]] * 3
