"""docs/run/shell-and-jupyter.md, "VS Code or PyCharm": SSH over a forwarded port, by a real client.

The job runs examples/remote_ide/ssh_server.sh, with sshd_stand_in.py as OpenSSH's server.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from local_cloud.ports import free_ports
from tests.client.conftest import ROOT
from tests.client.terminal import Terminal
from tests.system.conftest import FOREVER, System
from tests.system.sshd_stand_in import __file__ as stand_in
from tests.system.test_shell import Person
from tests.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not (shutil.which("ssh") and shutil.which("ssh-keygen")), reason="no SSH client on this machine"
    ),
]
PAGE = (ROOT / "docs/run/shell-and-jupyter.md").read_text()
(CONFIG,) = re.findall(r"^```\w+\n(Host lab\n.*?)```", PAGE, re.DOTALL | re.MULTILINE)
SERVER = "PATH=$PWD:$PATH exec sh ssh_server.sh"


class Editor:
    """A person's SSH client, with the page's settings for `lab`; `stranger` is the same job with another key."""

    def __init__(self, person: Person, port: int, job: str) -> None:
        self.person, self.port, self.job = person, port, job
        self.folder = person.folder.parent / "ssh"
        self.folder.mkdir()
        for name in ("id_ed25519", "other_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        settings = CONFIG.replace("2222", str(port)).replace("~/.ssh", str(self.folder)) + "    BatchMode yes\n"
        others = settings.replace("Host lab\n", "Host stranger\n").replace("id_", "other_")
        (self.folder / "config").write_text(settings + others)

    @property
    def key(self) -> str:
        return (self.folder / "id_ed25519.pub").read_text().strip()

    @property
    def hosts(self) -> Path:
        return self.folder / "known_hosts_lab"

    def know(self, inside: int) -> None:
        """Fetch the key of the job's server, as the page says; here the two ports differ."""
        known = self.person.smq("shell", self.job, "--", "cat", ".ssh_server/known_hosts").stdout
        self.hosts.write_text(known.replace(f":{inside}", f":{self.port}"))

    def command(self, *words: str) -> list[str]:
        return ["ssh", "-F", str(self.folder / "config"), *words]

    def ssh(self, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words), input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
        )


@pytest.fixture
def person(system: System, tmp_path: Path) -> Iterator[Person]:
    """Somebody with the example's script in the folder, and a server for the job beside it."""
    folder = tmp_path / "code"
    folder.mkdir()
    shutil.copy(ROOT / "examples/remote_ide/ssh_server.sh", folder)
    server = folder / "sshd"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    server.chmod(0o755)
    yield Person(system, folder)


def submit(person: Person, editor: Editor, inside: int, *options: str) -> None:
    """Submit the page's job, and wait until its server listens."""
    key, command = f"SSH_KEY={editor.key}", f"{SERVER} {inside}"
    person.smq(
        "submit", "--interactive", "--no-shell", "--name", editor.job, "--env", key, *options, "--", "sh", "-c", command
    )
    person.system.wait_state(editor.job, "running")
    until(lambda: "SSH on 127.0.0.1" in " ".join(person.system.log(f"{editor.job}-qstamp-1")))


def test_an_editor_works_in_a_job(system: System, person: Person) -> None:
    inside, outside, site, shown = range(first := free_ports(4), first + 4)
    (person.folder / "train.py").write_text("print('from the job')")
    editor = Editor(person, outside, "lab")
    submit(person, editor, inside, "--env", "COLOUR=b'l u\"e")
    editor.know(inside)
    with person.terminal("shell", "lab", "--forward", f"{inside}:{outside}") as terminal:
        terminal.shows("Waiting for connections")
        until(lambda: editor.ssh("lab", "true").returncode == 0)

        words = 'echo "$COLOUR|$SM_CURRENT_HOST|$(python train.py)"; echo aside >&2; exit 7'
        done = editor.ssh("lab", words)
        assert (done.returncode, done.stdout) == (7, "b'l u\"e|algo-1|from the job\n")
        assert "aside" in done.stderr
        assert editor.ssh("lab", "sh", stdin="echo changed > train.py; echo $COLOUR").stdout == "b'l u\"e\n"
        assert person.smq("shell", "lab", "--", "cat", "train.py").stdout == "changed\n"

        refused = editor.ssh("stranger", "true")
        assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr
        refused = editor.ssh("-o", "PubkeyAuthentication=no", "lab", "true")
        assert refused.returncode == 255 and "Permission denied (publickey)" in refused.stderr

        serve_site = f"exec python -m http.server {site} --bind 127.0.0.1"
        tunnel = editor.command("-L", f"127.0.0.1:{shown}:127.0.0.1:{site}", "lab", serve_site)
        with subprocess.Popen(tunnel, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as both:
            try:
                assert until(lambda: page(shown)) == "changed\n"
                done = editor.ssh("lab", "echo beside")
                assert done.stdout == "beside\n", done
            finally:
                both.terminate()

        editor.hosts.write_text(f"[127.0.0.1]:{outside} {' '.join(editor.key.split()[:2])}\n")
        refused = editor.ssh("lab", "true")
        assert refused.returncode == 255 and "Host key verification failed" in refused.stderr
        leave(terminal)
    assert system.state("lab") == "running"


def test_after_a_preemption_the_port_leads_to_the_next_attempt_which_has_another_key(
    system: System, person: Person
) -> None:
    inside = free_ports(2)
    outside = inside + 1
    editor = Editor(person, outside, "moved-lab")
    submit(person, editor, inside, "--tag", "preemptible=true", "--checkpoint")
    with person.terminal("shell", "moved-lab", "--forward", f"{inside}:{outside}") as terminal:
        terminal.shows("Waiting for connections")
        editor.know(inside)
        until(lambda: editor.ssh("lab", "true").returncode == 0)
        assert editor.ssh("lab", "echo kept > $SM_CHECKPOINT_DIR/kept; echo lost > lost").returncode == 0
        system.submit("urgent", FOREVER, priority=9, instances=2)
        terminal.wait(lambda: terminal.has("moved-lab was preempted"))
        system.queue.cancel("urgent")
        system.wait_state("moved-lab", "running")
        until(lambda: "Host key verification failed" in editor.ssh("lab", "true").stderr)
        editor.know(inside)
        assert editor.ssh("lab", "cat $SM_CHECKPOINT_DIR/kept; ls lost").stdout == "kept\n"
        leave(terminal)


def page(port: int) -> str:
    try:
        return requests.get(f"http://127.0.0.1:{port}/train.py", timeout=PATIENCE).text
    except requests.ConnectionError:  # the tunnel or the server behind it is not up yet
        return ""


def leave(terminal: Terminal) -> None:
    terminal.press("\x03")
    assert terminal.end() == 0
    assert "lab continues to run." in terminal.text


def test_without_a_key_nobody_can_log_in_and_the_job_says_so(system: System, person: Person) -> None:
    person.smq("submit", "--interactive", "--no-shell", "--name", "keyless", "--", "sh", "-c", SERVER)
    system.wait_state("keyless", "failed")
    assert "No key may log in: pass one by --env" in " ".join(system.log("keyless-qstamp-1"))
