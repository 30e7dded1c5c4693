"""Stand in for OpenSSH's server in a job: reads the settings that examples/remote_ide/ssh_server.sh writes.

Its own process: `python sshd_stand_in.py -D -e -f CONFIG`. It fails on a setting that it does not know.
"""

import asyncio
import os
import sys
from pathlib import Path

import asyncssh

UNUSED = {"PermitUserRC", "PidFile", "PrintMotd", "StrictModes", "Subsystem", "UsePAM"}
DEMANDED = {
    "AuthenticationMethods": "publickey",
    "PasswordAuthentication": "no",
    "PermitRootLogin": "prohibit-password",
}


class Server(asyncssh.SSHServer):
    """Lets clients connect to ports of the job, as OpenSSH does."""

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True


def settings_of(path: Path) -> dict[str, str]:
    settings = dict(line.split(" ", 1) for line in path.read_text().splitlines())
    for name, value in DEMANDED.items():
        if settings.pop(name) != value:
            sys.exit(f"{name} must be {value}")
    return {name: value for name, value in settings.items() if name not in UNUSED}


async def serve(
    ListenAddress: str,  # noqa: N803  # the settings' own names
    Port: str,  # noqa: N803
    HostKey: str,  # noqa: N803
    AuthorizedKeysFile: str,  # noqa: N803
    ForceCommand: str,  # noqa: N803
) -> None:
    async def run(process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """Run the forced command; like OpenSSH's, it gets none of the server's variables."""
        environment = {"PATH": os.defpath, "HOME": str(Path.home())}
        if process.command is not None:
            environment["SSH_ORIGINAL_COMMAND"] = process.command
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(
            ForceCommand, env=environment, stdin=pipe, stdout=pipe, stderr=pipe
        )
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        status = await child.wait()
        await process.stdout.drain()  # until everything that the child wrote is sent
        await process.stderr.drain()
        process.exit(status)

    server = await asyncssh.listen(
        ListenAddress,
        int(Port),
        server_factory=Server,
        server_host_keys=[HostKey],
        authorized_client_keys=AuthorizedKeysFile,
        process_factory=run,
        encoding=None,
    )
    await server.wait_closed()


if __name__ == "__main__":
    option, errors, file, config = sys.argv[1:]
    assert (option, errors, file) == ("-D", "-e", "-f")
    asyncio.run(serve(**settings_of(Path(config))))
