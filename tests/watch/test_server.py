"""The loopback server: its page and its data, to whoever has the address, and nothing to anybody else."""

import http.client
import json
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tpkd.watch.server import LiveServer
from tpkd.watch.watch import Watch
from watch.runs import metrics, write_grid


@contextmanager
def serving(directory, **options):
    with LiveServer(Watch(directory), **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(tmp_path):
    with serving(write_grid(tmp_path), every=0.0) as server:
        yield server


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), dict(answer.headers)
    connection.close()
    return found


def home(server):
    return urlsplit(server.address).path


def test_the_page_and_its_data(server):
    status, page, headers = ask(server, home(server))
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert 'src="data/cells.js"' in page
    status, script, headers = ask(server, f"{home(server)}data/cells.js?v=1")
    assert (status, headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    record = json.loads(script[len("tpkdWatch.cells(") : -3])
    assert [cell["name"] for cell in record["cells"]] == ["kd-42", "tpkd-42"]
    status, script, _ = ask(server, f"{home(server)}data/curves-0.js")
    assert status == 200
    assert json.loads(script[len("tpkdWatch.curves(") : -3])["steps"]["loss"] == [1, 2, 3, 4, 5]
    assert ask(server, home(server), "HEAD")[:2] == (200, "")


def test_data_are_read_anew(server, tmp_path):
    ask(server, f"{home(server)}data/cells.js")
    with (tmp_path / "kd-42" / "metrics.jsonl").open("a") as file:
        file.write(metrics([6]))
    assert '"step":6' in ask(server, f"{home(server)}data/cells.js")[1]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/data/cells.js",
            "//",
            "/wrong/",
            "/wrong/data/cells.js",
            "{home}data/",
            "{home}data",
            "{home}config.yaml",
        ),
        *(
            "{home}../",
            "{home}data/../../etc/passwd",
            "{home}data/curves-99.js",
            "{home}data/curves-0.js/",
            "{home}kd-42/",
        ),
        *("{home}data/curves--1.js", "{home}%2e%2e/", "{home}data/curves-0.js%00", "{bare}"),
    ],
)
def test_nothing_else_is_there(server, path):
    where = path.format(home=home(server), bare=home(server).rstrip("/"))
    status, body, _ = ask(server, where)
    assert (status, body) == (404, "")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{port}"]
)
def test_another_host_name_is_refused(server, host):
    """A site whose name is bound to this machine asks under its own name."""
    status, body, _ = ask(server, home(server), Host=host.format(port=server.server_port))
    assert (status, body) == (403, "")


def test_localhost_is_this_machine(server):
    assert ask(server, home(server), Host=f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_cannot_load_the_scripts(server, site):
    assert ask(server, f"{home(server)}data/cells.js", Sec_Fetch_Site=site)[0] == 403
    headers = ask(server, f"{home(server)}data/cells.js")[2]
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(server, method):
    assert ask(server, home(server), method)[0] == 501


def test_it_is_bound_to_the_loopback_interface_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_two_servers_have_addresses_that_nobody_can_guess(tmp_path):
    write_grid(tmp_path)
    with serving(tmp_path) as one, serving(tmp_path) as other:
        assert home(one) != home(other)
        assert len(home(one).strip("/")) >= 20
