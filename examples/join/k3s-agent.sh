#!/bin/sh
# Joins a new machine to a k3s cluster. kproxide runs this in the machine as root, once, when cloud-init has finished,
# and hands it to /bin/sh by standard input. The machine needs curl and access to the internet.
#
# With the taint no pod comes to the Node before kproxide has recognized it and has given it its labels and taints.
# kproxide then removes the taint.
set -eu

# Edit: the address of a k3s server.
server=https://k3s.example:6443
# Edit: what is in /var/lib/rancher/k3s/server/node-token on a k3s server.
token=...
# Edit: what `k3s --version` prints on a k3s server. A Node must not be newer than the server.
version=v1.33.4+k3s1

fail() {
  echo "k3s-agent.sh: $*" >&2
  exit 1
}
[ "$server" != https://k3s.example:6443 ] || fail "server= is not edited: write the address of your k3s server there"
[ "$token" != ... ] || fail "token= is not edited: write what is in /var/lib/rancher/k3s/server/node-token there"
command -v curl >/dev/null || fail "this machine has no curl: install it in the VM template (setup.sh does)"

# In two steps, so that a failed download does not look like a machine that has joined.
curl -sSfL --output /run/k3s-install.sh https://get.k3s.io </dev/null
K3S_URL="$server" K3S_TOKEN="$token" INSTALL_K3S_VERSION="$version" \
  sh /run/k3s-install.sh agent --node-taint kproxide.dev/unregistered=:NoExecute </dev/null
