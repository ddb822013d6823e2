"""Tests that answers conform to the OpenAPI document, with valid and invalid requests that schemathesis generates.

A fixed seed makes the requests the same in every run.
"""

import os
import subprocess
import sys
from pathlib import Path

from builders.gateways.processes import WAIT_S, gateway
from millstream.testing.real_broker import RealBroker

HERE = Path(__file__).parent
EXAMPLES = 5
"""Generated requests per operation, besides those at the limits of the document."""


def test_answers_conform_to_the_openapi_document(tmp_path: Path) -> None:
    """A failure prints the request as a curl command."""
    with RealBroker(tmp_path / "data", flush="os") as broker, gateway(broker.bootstrap) as running:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "described.toml")]
        arguments = ["run", f"{running.url}/openapi.json", "--seed", "1", "--max-examples", str(EXAMPLES), "--no-color"]
        paths = {"PYTHONPATH": str(HERE)}
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=4 * WAIT_S,
            cwd=tmp_path,
            env=os.environ | paths,
        )
        assert done.returncode == 0, done.stdout + done.stderr
