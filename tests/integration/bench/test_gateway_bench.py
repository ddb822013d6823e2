"""The bench of the web API works."""

import re

import pytest
from bench.gateway.__main__ import main


def test_the_web_api_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--tiny"])
    said = capsys.readouterr().out
    assert len(re.findall(r"connections: [\d,]+ events/s", said)) == 4
    assert "p99" in said
