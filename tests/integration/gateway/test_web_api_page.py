"""The guide to the web API shows what works."""

import re
import subprocess
from pathlib import Path

from millstream.testing.real_broker import RealBroker

PAGE = (Path(__file__).parents[3] / "docs" / "web-api.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_does_what_it_is_shown_for(broker: RealBroker) -> None:
    commands = [
        command.replace("localhost:8080", f"127.0.0.1:{broker.http_port}").replace("curl ", "curl -sS ")
        for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
        for command in block.replace("\\\n", " ").splitlines()
    ]
    assert len(commands) > 15
    said = [
        subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    problems = [answer for answer in said if '"type":"/docs/errors' in answer]
    assert len(problems) == 1, "only the last command is shown for what is wrong with it"
    assert problems == [said[-1]]
    first, second = (answer for command, answer in zip(commands, said, strict=True) if "Idempotency-Key" in command)
    assert first == second
