# Joins a new machine to a k3s cluster. kproxide runs it in the machine as root with /bin/sh, once, when cloud-init has
# finished. The machine needs curl and access to the internet.
#
# Edit the three values. On a k3s server the token is in /var/lib/rancher/k3s/server/node-token, and `k3s --version`
# prints the version. A Node must not be newer than the server.
#
# With the taint no pod comes to the Node before kproxide has recognized it and has given it its labels and taints.
# kproxide then removes the taint.
set -eu
export K3S_URL=https://k3s.example:6443
export K3S_TOKEN=...
export INSTALL_K3S_VERSION=v1.33.4+k3s1

# In two steps, so that a failed download does not look like a machine that has joined.
curl -sfL --output /run/k3s-install.sh https://get.k3s.io </dev/null
sh /run/k3s-install.sh agent --node-taint kproxide.dev/unregistered=:NoExecute </dev/null
