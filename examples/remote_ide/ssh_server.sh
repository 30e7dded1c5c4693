#!/bin/sh
# Serve SSH in a job, so that an editor on your machine can work there. Submit it with the code that you edit:
#
#     smq submit --interactive --no-shell --name lab --max-run 8h --env "SSH_KEY=$(cat ~/.ssh/id_ed25519.pub)" \
#         -- sh ssh_server.sh
#     smq shell lab -- cat .ssh_server/known_hosts > ~/.ssh/known_hosts_lab
#     smq shell lab --forward 2222
#
# Needs OpenSSH's server in the image, 7.8 or later. Listens on 127.0.0.1 only, accepts the key in SSH_KEY or the keys in
# the file authorized_keys, and no password. Sessions start in this folder, with the job's variables.
set -eu
port=${1:-2222}

server=$(command -v sshd || echo /usr/sbin/sshd)
if [ ! -x "$server" ]; then
    echo "This image has no SSH server. Install one in compile.sh: apt-get update && apt-get install -y openssh-server" >&2
    exit 1
fi
if [ -n "${SSH_KEY:-}" ]; then
    keys=$SSH_KEY
elif [ -r authorized_keys ]; then
    keys=$(cat authorized_keys)
else
    echo "No key may log in: pass one by --env \"SSH_KEY=\$(cat ~/.ssh/id_ed25519.pub)\", or in the file authorized_keys." >&2
    exit 1
fi

# Private files: the host's key, and the job's variables for the sessions. AWS's images have a key pair of their own in
# ~/.ssh, which everybody can download with the image: the server does not read that folder.
mask=$(umask)
umask 077
folder=$PWD/.ssh_server
rm -rf "$folder"
mkdir "$folder"
printf '%s\n' "$keys" > "$folder/authorized_keys"
export -p > "$folder/variables"
ssh-keygen -q -t ed25519 -N '' -C 'made by the job' -f "$folder/host_key"
echo "[127.0.0.1]:$port $(cut -d ' ' -f 1,2 "$folder/host_key.pub")" > "$folder/known_hosts"

cat > "$folder/session.sh" <<'END'
# Give each session the job's variables and folder; the server calls this in place of what was asked for.
folder=$(dirname "$0")
. "$folder/variables"
cd "$folder/.."
shell=$(command -v bash || echo /bin/sh)
if [ -n "${SSH_ORIGINAL_COMMAND:-}" ]; then
    exec "$shell" -c "$SSH_ORIGINAL_COMMAND"
fi
exec "$shell"
END

sftp=/usr/lib/openssh/sftp-server
if [ ! -x "$sftp" ]; then sftp=/usr/libexec/openssh/sftp-server; fi
cat > "$folder/config" <<END
ListenAddress 127.0.0.1
Port $port
HostKey $folder/host_key
AuthorizedKeysFile $folder/authorized_keys
AuthenticationMethods publickey
PasswordAuthentication no
PermitRootLogin prohibit-password
PermitUserRC no
UsePAM no
StrictModes no
PidFile none
PrintMotd no
ForceCommand /bin/sh $folder/session.sh
Subsystem sftp $sftp
END

if [ "$(id -u)" = 0 ]; then mkdir -p -m 755 /run/sshd; fi
echo "SSH on 127.0.0.1:$port for $(id -un), with the host key $(ssh-keygen -l -f "$folder/host_key.pub" | cut -d ' ' -f 2)"
umask "$mask"
exec "$server" -D -e -f "$folder/config"
