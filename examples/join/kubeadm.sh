#!/bin/sh
# Joins a new machine to a kubeadm cluster. kproxide runs this in the machine as root, once, when cloud-init has
# finished, and hands it to /bin/sh by standard input. A machine of Debian or Ubuntu needs curl and access to the
# internet. In any other the template has kubeadm, kubelet and a container runtime already; then nothing is installed.
#
# With the taint no pod comes to the Node before kproxide has recognized it and has given it its labels and taints.
# kproxide then removes the taint.
set -eu

# Edit: these three are in what `kubeadm token create --ttl 0 --print-join-command` prints on a control plane. Without
# `--ttl 0` the token ends after 24 hours, and no further machine joins.
server=kubernetes.example:6443
token=...
hash=sha256:...
# Edit: the version of the API server without its last number. A Node must not be newer.
version=v1.33

fail() {
  echo "kubeadm.sh: $*" >&2
  exit 1
}
write() { # file; its text comes by standard input
  mkdir -p "${1%/*}"
  tee "$1" >/dev/null
}
[ "$server" != kubernetes.example:6443 ] || fail "server= is not edited: write the API server there, without https://"
[ "$token" != ... ] || fail "token= is not edited: kubeadm token create --ttl 0 --print-join-command shows it"
[ "$hash" != sha256:... ] || fail "hash= is not edited: kubeadm token create --ttl 0 --print-join-command shows it"

if ! command -v kubeadm >/dev/null; then
  command -v apt-get >/dev/null || fail "this machine has neither kubeadm nor apt-get: install it in the VM template"
  command -v curl >/dev/null || fail "this machine has no curl: install it in the VM template (setup.sh does)"
  packages=https://pkgs.k8s.io/core:/stable:/$version/deb
  curl -sSfL --create-dirs --output /etc/apt/keyrings/kubernetes.asc "$packages/Release.key" </dev/null
  write /etc/apt/sources.list.d/kubernetes.list <<SOURCES
deb [signed-by=/etc/apt/keyrings/kubernetes.asc] $packages/ /
SOURCES
  write /etc/modules-load.d/kubernetes.conf <<'MODULES'
overlay
br_netfilter
MODULES
  write /etc/sysctl.d/90-kubernetes.conf <<'SETTINGS'
net.ipv4.ip_forward = 1
net.bridge.bridge-nf-call-iptables = 1
net.bridge.bridge-nf-call-ip6tables = 1
SETTINGS
  modprobe -a overlay br_netfilter
  sysctl --quiet --load /etc/sysctl.d/90-kubernetes.conf
  export DEBIAN_FRONTEND=noninteractive
  apt-get update </dev/null
  apt-get install --yes containerd kubelet kubeadm </dev/null
  # The kubelet and containerd must leave the cgroups to the same program, and that is systemd.
  config=$(containerd config default)
  config=$(printf '%s\n' "$config" | sed 's/SystemdCgroup = false/SystemdCgroup = true/')
  write /etc/containerd/config.toml <<CONTAINERD
$config
CONTAINERD
  systemctl restart containerd.service </dev/null
fi

write /etc/default/kubelet <<'KUBELET'
KUBELET_EXTRA_ARGS=--register-with-taints=kproxide.dev/unregistered=:NoExecute
KUBELET
kubeadm join "$server" --token "$token" --discovery-token-ca-cert-hash "$hash" </dev/null
