#!/usr/bin/env bash
# Makes the Proxmox user and API token that kproxide works with, and grants both what it needs and no
# more: it can touch the VMs of one pool, clone the given templates, and use the given storages and
# bridges. It cannot see the console of a VM, migrate or back up anything, or change permissions.
#
# Run it on any server of the Proxmox cluster, as root. It may be run again, for example with one more
# storage; an existing token is kept.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: create-token.sh --template VMID --storage NAME --bridge NAME [options]

  --template VMID   a template to clone; repeatable (one per server for local templates)
  --storage NAME    a storage for the machines' disks and cloud-init drives; repeatable
  --bridge NAME     a bridge, or VNET, that the machines are connected to; repeatable
  --zone NAME       the SDN zone of the bridges (default: localnetwork, which holds plain bridges)
  --pool NAME       the pool of the machines; made if it does not exist (default: kproxide)
  --user USER       the user, without a password (default: kproxide@pve)
  --token NAME      the token's name (default: autoscaler)
  --guest-exec      machines join by a script through the guest agent (nodeClass.joinScript): needed
                    unless the template was made with --first-boot
TEXT
}

fail() {
  echo "create-token.sh: $*" >&2
  exit 1
}

pool=kproxide
user=kproxide@pve
token=autoscaler
zone=localnetwork
guest_exec=false
templates=()
storages=()
bridges=()

while (($#)); do
  case $1 in
    --guest-exec) guest_exec=true; shift; continue ;;
    -h | --help) usage; exit 0 ;;
  esac
  (($# >= 2)) || fail "$1 needs a value"
  case $1 in
    --pool) pool=$2 ;;
    --user) user=$2 ;;
    --token) token=$2 ;;
    --zone) zone=$2 ;;
    --template) templates+=("$2") ;;
    --storage) storages+=("$2") ;;
    --bridge) bridges+=("$2") ;;
    *) usage >&2; fail "unknown option $1" ;;
  esac
  shift 2
done
((${#templates[@]})) || fail "give at least one --template VMID"
((${#storages[@]})) || fail "give at least one --storage NAME"
((${#bridges[@]})) || fail "give at least one --bridge NAME"
command -v pveum >/dev/null || fail "pveum is not here: run this on a Proxmox server"

# Version 9 split the guest agent's rights from VM.Monitor, which it no longer has.
version=$(pveversion | sed -E 's|^pve-manager/([0-9]+)\..*|\1|')
machine_privileges="Pool.Audit VM.Allocate VM.Audit VM.Config.CPU VM.Config.Cloudinit VM.Config.Disk VM.Config.Memory"
machine_privileges+=" VM.Config.Network VM.Config.Options VM.PowerMgmt"
if ((version >= 9)); then
  machine_privileges+=" VM.GuestAgent.Audit"
  if $guest_exec; then
    machine_privileges+=" VM.GuestAgent.Unrestricted"
  fi
else
  machine_privileges+=" VM.Monitor"
fi

role() { # name, privileges
  pveum role modify "$1" --privs "$2" 2>/dev/null || pveum role add "$1" --privs "$2"
}

# A token with privilege separation has only what both it and its user have, hence every grant twice.
grant() { # path, role, further options
  local path=$1 role=$2
  shift 2
  pveum acl modify "$path" --roles "$role" --users "$user" "$@"
  pveum acl modify "$path" --roles "$role" --tokens "$user!$token" "$@"
}

pveum pool list --output-format json | grep -q "\"poolid\":\"$pool\"" || pveum pool add "$pool" --comment "Machines of kproxide"
pveum user list --output-format json | grep -q "\"userid\":\"$user\"" || pveum user add "$user" --comment "kproxide"

role KproxideAudit "Sys.Audit"
role KproxideMachines "$machine_privileges"
role KproxideTemplate "VM.Audit VM.Clone"
role KproxideStorage "Datastore.AllocateSpace Datastore.Audit"
role KproxideNetwork "SDN.Use"

secret=""
if pveum user token list "$user" --output-format json | grep -q "\"tokenid\":\"$token\""; then
  echo "The token $user!$token exists and is kept. To get a new secret, first: pveum user token remove $user $token"
else
  secret=$(pveum user token add "$user" "$token" --privsep 1 --output-format json |
    sed -nE 's/.*"value" *: *"([^"]+)".*/\1/p')
  [[ -n $secret ]] || fail "pveum made the token but did not show its secret"
fi

# "/" alone tells whether the cluster has quorum; below it only the servers' load is needed.
grant / KproxideAudit --propagate 0
grant /nodes KproxideAudit
grant "/pool/$pool" KproxideMachines
for template in "${templates[@]}"; do
  grant "/vms/$template" KproxideTemplate
done
for storage in "${storages[@]}"; do
  grant "/storage/$storage" KproxideStorage
done
for bridge in "${bridges[@]}"; do
  grant "/sdn/zones/$zone/$bridge" KproxideNetwork
done

if [[ -n $secret ]]; then
  cat <<TEXT

Proxmox shows a token's secret only once. Put it into Kubernetes now (kubectl create namespace kproxide comes first):

  kubectl create secret generic proxmox --namespace kproxide \\
    --from-literal=token-id='$user!$token' --from-literal=token-secret='$secret'
TEXT
fi
