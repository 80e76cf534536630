#!/bin/sh
# Joins a new machine to an RKE2 cluster. kproxide runs this in the machine as root, once, when cloud-init has finished,
# and hands it to /bin/sh by standard input. The machine needs curl and access to the internet.
#
# With the taint no pod comes to the Node before kproxide has recognized it and has given it its labels and taints.
# kproxide then removes the taint.
set -eu

# Edit: the address of an RKE2 server. Agents register at port 9345.
server=https://rke2.example:9345
# Edit: what is in /var/lib/rancher/rke2/server/node-token on an RKE2 server.
token=...
# Edit: what `rke2 --version` prints on an RKE2 server. A Node must not be newer than the server.
version=v1.33.4+rke2r1

fail() {
  echo "rke2-agent.sh: $*" >&2
  exit 1
}
[ "$server" != https://rke2.example:9345 ] || fail "server= is not edited: write the address of your RKE2 server there"
[ "$token" != ... ] || fail "token= is not edited: write what is in /var/lib/rancher/rke2/server/node-token there"
command -v curl >/dev/null || fail "this machine has no curl: install it in the VM template (setup.sh does)"

mkdir -p /etc/rancher/rke2
(umask 077 && tee /etc/rancher/rke2/config.yaml >/dev/null) <<CONFIG
server: "$server"
token: "$token"
node-taint:
  - kproxide.dev/unregistered=:NoExecute
CONFIG

# In two steps, so that a failed download does not look like a machine that has joined.
curl -sSfL --output /run/rke2-install.sh https://get.rke2.io </dev/null
INSTALL_RKE2_TYPE=agent INSTALL_RKE2_VERSION="$version" sh /run/rke2-install.sh </dev/null
systemctl enable --now rke2-agent.service </dev/null
