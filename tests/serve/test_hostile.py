"""Malformed and hostile requests: no 5xx but the documented 503, nothing stuck, and the server is well after them.

LITEBERT_HOSTILE=10000 sends that many, to our own fuzz and to schemathesis'; without it a few hundred.
"""

import os
import re
import subprocess
import sys

import httpx
import pytest

from litebert.bench.hostile import KINDS, bench_hostile
from tests.serve.conftest import process

COUNT = int(os.environ.get("LITEBERT_HOSTILE", "300"))


@pytest.mark.parametrize("name", ["filler", "answer"])
def test_no_request_breaks_the_server_or_stays_in_it(name, folders):
    found = bench_hostile(str(folders[name]), COUNT, seed=len(name))
    assert set(found["kinds"]) >= set(KINDS) - {"slow senders", "oversize", "deep JSON"}
    assert found["server_errors"] == 0, found["kinds"]
    assert found["stuck"] == 0, found["kinds"]
    assert found["left_inside"] == 0
    assert found["answers_as_before"]
    assert {"200", "413", "422"} <= set(found["statuses"])
    assert "408" in found["kinds"].get("slow senders", {"408": 1})


@pytest.mark.parametrize("kind", ["bad UTF-8", "lone surrogates", "wrong values", "garbage"])
def test_what_is_no_request_is_never_taken_for_one(kind, folders):
    """All of them are refused as what they are, by their status."""
    import asyncio
    import random

    from litebert.bench.hostile import exchange
    from litebert.bench.server import server

    rng = random.Random(1)
    with server([f"a={folders['filler']}"]) as address:
        statuses = {asyncio.run(exchange(address, KINDS[kind][0](rng, "/v1/embed"))) for _ in range(20)}
    assert statuses <= {422, 404} | ({200} if kind == "wrong values" else set())


def test_schemathesis_finds_no_fault(folders, tmp_path):
    pytest.importorskip("schemathesis", reason="pip install 'litebert[browser]'")
    with process(*folders.values()) as (_, address):
        done = subprocess.run(
            [
                sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", "--max-examples", str(max(5, COUNT // 40)),
                "--seed", "1", "--mode", "all", "--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
                "--no-color",
            ],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        print(done.stdout[-3000:])
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert re.search(r"\d+ passed|No issues found", done.stdout)
        assert httpx.get(f"{address}/ready").status_code == 200
