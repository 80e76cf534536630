#!/usr/bin/env bash
# Makes a VM template for kproxide from a distribution's cloud image (Ubuntu, Debian, Fedora, Rocky …):
# guest agent installed, cloud-init drive attached, no machine identity in it.
#
# How a clone becomes a Node is one of:
#   - kproxide runs your script in it through the guest agent (nodeClass.joinScript, and a token made
#     with create-token.sh --guest-exec). The template needs no secret then. This is the default here.
#   - --first-boot FILE: the template runs that script at its first boot. A join token in it can be read
#     by everybody who can read the template's disk.
#
# Run it on a Proxmox server, as root. It downloads the image and, if virt-customize is missing, says
# which package has it.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: create-template.sh --image URL|FILE --vmid VMID --name NAME --storage NAME [options]

  --image URL|FILE    a cloud image (qcow2 or raw)
  --sha256 HEX        its checksum; strongly advised for a URL
  --vmid VMID         the template's number; outside kproxide's vmidRange
  --name NAME         the template's name: nodeClass.spec.template.name
  --storage NAME      a storage for its disk. A shared one lets every server clone it (placement: shared);
                      with a local one each server needs a template of this name (placement: local)
  --pool NAME         put it into this pool; whoever may destroy its VMs may then destroy the template
  --bridge NAME       the bridge of its network card (default: vmbr0)
  --vlan TAG          a VLAN for it
  --disk SIZE         the disk's size (default: 20G); instance types can enlarge it
  --packages LIST     more packages, separated by commas, such as nfs-common,open-iscsi
  --first-boot FILE   a script that joins the cluster at first boot
  --uefi              OVMF instead of SeaBIOS
TEXT
}

fail() {
  echo "create-template.sh: $*" >&2
  exit 1
}

image="" sha256="" vmid="" name="" storage="" pool="" vlan="" first_boot=""
bridge=vmbr0
disk=20G
packages=qemu-guest-agent
uefi=false

while (($#)); do
  case $1 in
    --uefi) uefi=true; shift; continue ;;
    -h | --help) usage; exit 0 ;;
  esac
  (($# >= 2)) || fail "$1 needs a value"
  case $1 in
    --image) image=$2 ;;
    --sha256) sha256=$2 ;;
    --vmid) vmid=$2 ;;
    --name) name=$2 ;;
    --storage) storage=$2 ;;
    --pool) pool=$2 ;;
    --bridge) bridge=$2 ;;
    --vlan) vlan=$2 ;;
    --disk) disk=$2 ;;
    --packages) packages+=",$2" ;;
    --first-boot) first_boot=$2 ;;
    *) usage >&2; fail "unknown option $1" ;;
  esac
  shift 2
done
[[ -n $image && -n $vmid && -n $name && -n $storage ]] || { usage >&2; fail "--image, --vmid, --name and --storage are needed"; }
[[ -z $first_boot || -f $first_boot ]] || fail "--first-boot: there is no file $first_boot"
command -v qm >/dev/null || fail "qm is not here: run this on a Proxmox server"
command -v virt-customize >/dev/null || fail "virt-customize is not here: apt-get install --no-install-recommends libguestfs-tools"
! qm status "$vmid" >/dev/null 2>&1 || fail "VM $vmid exists already"

work=$(mktemp -d)
made=false
finish() {
  status=$?
  rm -rf "$work"
  # A half-made VM would take the number and the name.
  if ((status != 0)) && $made; then
    qm destroy "$vmid" --purge 1 || true
  fi
}
trap finish EXIT

# The work is done on a copy, so that a file of yours stays as it is.
case $image in
  http://* | https://*) wget --no-verbose --output-document="$work/image" "$image" ;;
  *) cp "$image" "$work/image" ;;
esac
if [[ -n $sha256 ]]; then
  echo "$sha256  $work/image" | sha256sum --check --quiet || fail "the image does not have the checksum $sha256"
fi
format=$(qemu-img info --output=json "$work/image" | sed -nE 's/^    "format": "([^"]+)".*/\1/p' | tail -n 1)
qemu-img resize -f "$format" "$work/image" "$disk"

# An empty machine-id, not a missing one: systemd then makes a new one at each clone's first boot, and with it
# a DHCP identity of its own. The agent is enabled by hand where its package leaves that to udev.
customize=(
  --install "$packages"
  --run-command 'systemctl enable qemu-guest-agent.service || true'
  --run-command 'cloud-init clean --logs || true'
  --truncate /etc/machine-id
)
if [[ -n $first_boot ]]; then
  customize+=(--firstboot "$first_boot")
fi
virt-customize --format "$format" --add "$work/image" "${customize[@]}"

# The serial console is for cloud images that show nothing elsewhere.
network="virtio,bridge=$bridge"
if [[ -n $vlan ]]; then
  network+=",tag=$vlan"
fi
create=(
  --name "$name" --ostype l26 --cpu host --sockets 1 --cores 2 --memory 2048
  --agent enabled=1 --scsihw virtio-scsi-single --net0 "$network"
  --serial0 socket --vga serial0
)
if $uefi; then
  create+=(--bios ovmf --machine q35 --efidisk0 "$storage:1,efitype=4m,pre-enrolled-keys=0")
fi
if [[ -n $pool ]]; then
  pvesh get "/pools/$pool" >/dev/null 2>&1 || pvesh create /pools --poolid "$pool" --comment "Machines of kproxide"
  create+=(--pool "$pool")
fi
qm create "$vmid" "${create[@]}"
made=true
qm set "$vmid" --scsi0 "$storage:0,import-from=$work/image,discard=on,iothread=1"
qm set "$vmid" --scsi1 "$storage:cloudinit" --ipconfig0 ip=dhcp --boot order=scsi0
qm template "$vmid"
made=false

echo "Template $name ($vmid) is ready: nodeClass.spec.template.name=$name"
if [[ -z $first_boot ]]; then
  echo "Its clones do not join by themselves: set nodeClass.joinScript, and give create-token.sh --guest-exec"
fi
