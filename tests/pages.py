"""Runs a page of the documentation as a reader would, block by block, and compares what it shows with what comes out.

```console                commands after `$ `, then what they print; a command that shows nothing is only run
```python                 code; one namespace per page
```text                   what the Python block before it prints; anywhere else a drawing
```json title="x.json"    a file (of any language) that the page asks its reader to write

A comment `<!-- not run: REASON -->` above a block excepts it. `...` stands for anything, on a line of its own for any lines.
Numbers agree within 2 % or 0.005; times and rates (`3.1 s`, `2,634/s`, `0:00:06`) always agree. Servers run until the page ends.
Other commands of `pbodl` run in this process, unless a line needs a shell. A reader may type everything into one.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.command_line import run_pbodl
from tests.patience import PATIENCE
from tests.ports import free_port

ROOT = Path(__file__).parents[1]
RELATIVE, ABSOLUTE = 0.02, 0.005
PORTS = ("8080", "9101", "6379")  # a page's usual ports; others take their place, so that nothing else is in the way
SERVERS = re.compile(r"(pbodl (serve|online)\b(?!.*--until-end)|redis-server\b)")

# A command of ours alone, at most with a file that takes its output.
OURS = re.compile(r"pbodl(?P<arguments> [^|&;<>$`*?~#]*)(> (?P<file>[\w./-]+))?\s*")

NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TIMES = re.compile(r"\d[\d,.]*(?= ?(?:s|ms|µs|seconds|minutes|rows/s|/s)\b)|\d+:\d\d:\d\d")
PROGRESS = re.compile(r"━━")
RULE = re.compile(r"[─━\s]+")


class Block(NamedTuple):
    """A fenced block: its language, the file it is the text of, and why it is not run."""

    line: int
    language: str
    title: str
    text: str
    reason: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    reason, n = "", 0
    while n < len(lines):
        comment = re.fullmatch(r"\s*<!-- not run: (.+) -->", lines[n])
        opening = re.fullmatch(r"(\s*)```(\w*)(?: title=\"([^\"]+)\")?\s*", lines[n])
        if comment:
            reason = comment[1]
        elif opening:
            end = next(m for m in range(n + 1, len(lines)) if lines[m].strip() == "```")
            text = "\n".join(line.removeprefix(opening[1]) for line in lines[n + 1 : end]) + "\n"
            found.append(Block(n + 1, opening[2], opening[3] or "", text, reason))
            reason, n = "", end
        elif lines[n].strip():
            assert "```" not in lines[n][:4], f"{page.name}:{n + 1}: this fence is not understood: {lines[n]}"
            reason = ""
        n += 1
    return found


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with what is shown below it."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append((command, []))
        elif found:
            found[-1][1].append(line)
        else:
            raise AssertionError(f"a console block starts with a command, not with {line!r}")
    return found


def agree(shown: str, got: str) -> bool:
    """Whether two lines say the same, up to tolerance, times and `...`."""
    shown, got = (" ".join(TIMES.sub("TIME", line).split()) for line in (shown, got))
    pattern, numbers, last = "", [], 0
    for match in re.finditer(rf"\.\.\.|…|{NUMBER.pattern}", shown):
        pattern += re.escape(shown[last : match.start()])
        if match[0] in ("...", "…"):
            pattern += ".*"
        else:
            pattern += f"({NUMBER.pattern})"
            numbers.append(match[0])
        last = match.end()
    found = re.fullmatch(pattern + re.escape(shown[last:]), got)
    return found is not None and all(close(ref, comp) for ref, comp in zip(numbers, found.groups(), strict=True))


def close(ref: str, comp: str) -> bool:
    ref_value, comp_value = (float(text.replace(",", "").replace("−", "-")) for text in (ref, comp))
    return abs(ref_value - comp_value) <= max(ABSOLUTE, RELATIVE * abs(ref_value))


def told(text: str) -> list[str]:
    """The lines of an output that count: no progress bars, no blank lines, no rules of tables."""
    return [line.rstrip() for line in text.splitlines() if not RULE.fullmatch(line) and line.strip() and not PROGRESS.search(line)]


def matches(shown: list[str], got: list[str]) -> bool:
    """Whether the lines of `got` are those shown, a line of `...` standing for any number of them."""
    if not shown:
        return not got
    if shown[0].strip() in ("...", "…"):
        return any(matches(shown[1:], got[n:]) for n in range(len(got) + 1))
    return bool(got) and agree(shown[0], got[0]) and matches(shown[1:], got[1:])


def without_comment(command: str) -> str:
    return re.sub(r"\s+# .*", "", command)


class Reader:
    """A reader who does what a page says, in a folder of their own."""

    def __init__(self, folder: Path, shell: bool = False) -> None:
        self.folder, self.shell = folder, shell
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: str | None = None  # by the Python block just before
        self.servers: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self.ports = {port: str(free_port()) for port in PORTS}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.terminal = {"COLUMNS": "120", "TERM": "dumb"}
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **self.terminal}

    def read(self, page: Path) -> None:
        """Run all blocks of a page, and stop what it started."""
        try:
            for block in blocks(page):
                self._block(block, f"{page.relative_to(ROOT)}:{block.line}")
        finally:
            self._stop()

    def _block(self, block: Block, where: str) -> None:
        printed, self.printed = self.printed, None
        if block.reason:
            return
        if block.title:
            file = self.folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self._with_ports(block.text), encoding="utf-8")
        elif block.language == "console":
            for command, shown in sessions(block.text):
                self._command(command, told("\n".join(shown)), where)
        elif block.language == "python":
            output = io.StringIO()
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(output):
                exec(compile(self._with_ports(block.text), where, "exec"), self.names)
            self.printed = self._without_ports(output.getvalue())
        elif block.language == "text":
            if printed is not None:
                self._compare(told(block.text), told(printed), where)
        else:
            raise AssertionError(f"{where}: a block of {block.language or 'no language'!r} needs a title, or a reason not to run")

    def _command(self, command: str, shown: list[str], where: str) -> None:
        if SERVERS.match(command):
            self._serve(command, shown, where)
            return
        ours = None if self.shell else OURS.fullmatch(without_comment(command))
        code, output = self._in_a_shell(command) if ours is None else self._here(ours["arguments"], ours["file"])
        output = self._without_ports(output)
        expected = 2 if any(line.startswith("error:") for line in shown) else 0
        assert code == expected, f"{where}: `{command}` exits with {code}:\n{output}"
        if shown:
            self._compare(shown, told(output), f"{where}: `{command}`")

    def _in_a_shell(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", self._with_ports(command)], cwd=self.folder, env=self.environment, timeout=600,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
        )  # fmt: skip
        return done.returncode, done.stdout

    def _here(self, arguments: str, file: str | None) -> tuple[int, str]:
        done = run_pbodl(*shlex.split(self._with_ports(arguments)), folder=self.folder, environment=self.terminal)
        if file is None:
            return done.code, done.output
        (self.folder / file).write_text(done.out, encoding="utf-8")
        return done.code, done.err

    def _serve(self, command: str, shown: list[str], where: str) -> None:
        log = (self.folder / f"output-of-server-{len(self.servers)}").open("wb+")
        port = " --port 8080" if command.startswith("pbodl serve") and "--port" not in command else ""  # the default, said aloud
        server = subprocess.Popen(
            ["bash", "-c", "exec " + self._with_ports(without_comment(command) + port)], cwd=self.folder, env=self.environment,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self.servers.append((server, log))
        until, got = time.monotonic() + PATIENCE, ""
        while shown:
            got = self._without_ports(Path(log.name).read_text(encoding="utf-8"))
            if matches([*shown, "..."], told(got)) and (not port or self._ready()):
                return
            ended = server.poll() is not None
            assert not ended and time.monotonic() < until, f"{where}: `{command}` should print {shown}, but prints:\n{got}"
            time.sleep(0.1)

    def _ready(self) -> bool:
        """Whether the server has loaded its model, which people type too slowly to notice."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['8080']}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _stop(self) -> None:
        for server, log in reversed(self.servers):
            if server.poll() is None:
                server.send_signal(signal.SIGINT)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
            log.close()

    def _compare(self, shown: list[str], got: list[str], where: str) -> None:
        assert matches(shown, got), f"{where} shows\n" + "\n".join(shown) + "\n\nbut this came out\n" + "\n".join(got)

    def _with_ports(self, text: str) -> str:
        for port, other in self.ports.items():
            text = re.sub(rf"\b{port}\b", other, text)
        return text

    def _without_ports(self, text: str) -> str:
        for port, other in self.ports.items():
            text = re.sub(rf"\b{other}\b", port, text)
        return text
