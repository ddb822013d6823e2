"""The web API is what its document says: schemathesis makes requests from the document, good ones and bad ones, and
holds the answers to it. The requests are the same every time."""

import os
import subprocess
import sys
from pathlib import Path

from builders.gateways.processes import WAIT_S, gateway
from millstream.testing.real_broker import RealBroker

HERE = Path(__file__).parent
EXAMPLES = 5
"""Of each operation, beside those that the document's limits suggest."""


def test_what_is_answered_is_what_the_document_says(tmp_path: Path) -> None:
    """A failure shows the request, as a command of curl."""
    with RealBroker(tmp_path / "data", flush="os") as broker, gateway(broker.bootstrap) as running:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "described.toml")]
        asked = ["run", f"{running.url}/openapi.json", "--seed", "1", "--max-examples", str(EXAMPLES), "--no-color"]
        paths = {"PYTHONPATH": str(HERE)}
        done = subprocess.run(
            [*command, *asked], capture_output=True, text=True, timeout=4 * WAIT_S, cwd=tmp_path, env=os.environ | paths
        )
        assert done.returncode == 0, done.stdout + done.stderr
