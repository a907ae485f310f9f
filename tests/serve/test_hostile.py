"""Malformed and hostile requests: no 5xx but the documented 503, nothing stuck, and the server is well after them.

LITEBERT_HOSTILE=10000 sends that many, to our own fuzz and to schemathesis'; without it a few hundred.
"""

import asyncio
import os
import random
import re
import subprocess
import sys

import pytest

from litebert.bench.hostile import KINDS, bench_hostile, send_all
from litebert.bench.server import server
from tests.serve.conftest import process

httpx = pytest.importorskip("httpx", reason="pip install httpx")
COUNT = int(os.environ.get("LITEBERT_HOSTILE", "300"))


@pytest.mark.parametrize(("name", "seed"), [("filler", 1), ("answer", 2)])
def test_no_request_breaks_the_server_or_stays_in_it(name, seed, folders):
    found = bench_hostile(str(folders[name]), COUNT, seed=seed)
    assert set(found["kinds"]) >= set(KINDS) - {"slow senders", "oversize", "deep JSON"}
    assert found["server_errors"] == 0, found["kinds"]
    assert found["stuck"] == 0, found["kinds"]
    assert found["left_inside"] == 0
    assert found["answers_as_before"]
    assert {"200", "413", "422"} <= set(found["statuses"])
    assert set(found["kinds"]["good"]) == {"200"}
    assert {"200", "422"} <= set(found["kinds"]["wrong values"]), "some are no fault of theirs"
    assert "408" in found["kinds"].get("slow senders", {"408": 1})


def test_what_is_no_request_is_never_taken_for_one(folders):
    """Refused as what they are, by their status."""
    rng = random.Random(1)
    with server([f"a={folders['filler']}"]) as address:
        for kind in ("bad UTF-8", "lone surrogates", "garbage", "deep JSON"):
            drawn = [(kind, KINDS[kind][0](rng, "/v1/embed")) for _ in range(20)]
            assert set(asyncio.run(send_all(address, drawn, 8, print))) <= {404, 413, 422}, kind


def test_schemathesis_finds_no_fault(folders, tmp_path):
    pytest.importorskip("schemathesis", reason="pip install 'litebert[browser]'")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    words = [
        "--max-examples",
        str(max(2, COUNT // 100)),
        "--seed",
        "1",
        "--mode",
        "all",
        "--checks",
        checks,
        "--no-color",
    ]
    with process(*folders.values()) as (_, address):
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        print(done.stdout[-3000:])
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        assert re.search(r"\d+ passed|No issues found", done.stdout)
        assert httpx.get(f"{address}/ready").status_code == 200
