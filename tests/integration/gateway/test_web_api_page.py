"""Tests the commands of docs/web-api.md."""

import json
import re
import subprocess
from pathlib import Path

from millstream.testing.real_broker import RealBroker

PAGE = (Path(__file__).parents[3] / "docs" / "web-api.md").read_text(encoding="utf-8")


def test_every_command_of_the_web_api_guide_works(broker: RealBroker) -> None:
    commands = [
        command.replace("localhost:8080", f"127.0.0.1:{broker.http_port}").replace("curl ", "curl -sS ")
        for language, block in re.findall(r"```(sh|console)\n(.*?)```", PAGE, flags=re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if (command := line if language == "sh" else line.partition("$ ")[2])
    ]
    assert len(commands) > 15
    answers = [
        subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    problems = [answer for answer in answers if '"type":"/docs/errors' in answer]
    assert len(problems) == 1, "only the last command is an example of a problem"
    assert problems == [answers[-1]]
    first, second = (
        json.loads(answer) for command, answer in zip(commands, answers, strict=True) if "Idempotency-Key" in command
    )
    assert (first["duplicate"], second) == (False, {**first, "duplicate": True})
