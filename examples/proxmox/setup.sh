#!/usr/bin/env bash
# Prepares a Proxmox cluster for kproxide: a pool, a user with an API token of the least rights, and a VM template on
# each server. Run it once, on any of the servers, as root. `setup.sh --help` says the rest.
set -euo pipefail
shopt -s inherit_errexit

usage() {
  cat <<'TEXT'
usage: setup.sh [--storage NAME] [options]

Makes what kproxide needs in this Proxmox cluster: a pool, a user with an API token of the least rights, and from a
distribution's cloud image a VM template on each server, or one in all on a shared storage. It prints what `kproxide
init` asks for. What is there already stays: run it again when you have added a server.

  --storage NAME     the storage of templates and machines; needed if there are several. Repeatable: the first holds
                     the templates, and kproxide may use all
  --bridge NAME[:VLAN]
                     the bridge of the machines (default: vmbr0), with a VLAN if the token shall have that VLAN alone.
                     Repeatable: the template has the first
  --zone NAME        the SDN zone of the bridges (default: localnetwork, which holds plain bridges)
  --vlan TAG         a VLAN for the template's network card
  --server NAME      make templates on this server only; repeatable (default: all servers)
  --pool NAME        (default: kproxide)
  --user USER        a user without a password (default: kproxide@pve)
  --token NAME       (default: autoscaler)
  --template NAME    the templates' name (default: k8s-node)
  --vmid NUMBER      templates get the first free VMIDs from here on (default: 9001)
  --vmid-range A-B   kproxide's VMIDs, which no template gets (default: 20000-20999)
  --image URL|FILE   a cloud image, qcow2 or raw (default: Ubuntu 24.04)
  --checksum HEX     its SHA-256 or SHA-512; for a URL by default what SHA256SUMS or SHA512SUMS beside it says
  --disk SIZE        the templates' disk (default: 20G); instance types can enlarge it
  --packages LIST    more packages than qemu-guest-agent and curl, such as nfs-common,open-iscsi
  --first-boot FILE  a script that joins each machine at its first boot. kproxide then may not run commands in
                     machines. Who can read the template's disk can read the script
  --uefi             OVMF instead of SeaBIOS
  --new-token        remove the token and make it anew, because its secret cannot be shown again
  --dry-run          change nothing, and print each command that would run
  --local-only       only this server's template. For servers that ssh does not reach
  --prepared FILE    with --local-only: an image that setup.sh has prepared on another server
  --remove           remove what setup.sh has made, and kproxide's anchor VM. It refuses while machines exist

It ends with 0 if all is done, and with 1 if something is left to do.
TEXT
}

# What a template, a pool, a user and a token carry that this script has made.
readonly MADE="Made by setup.sh of kproxide"
readonly ROLES=(KproxideAudit KproxideMachines KproxideTemplate KproxideStorage KproxideNetwork)
# Proxmox's cluster file system: the same on all servers, also about those that are off.
readonly PVE=${KPROXIDE_PVE_DIR:-/etc/pve}

pool=kproxide user=kproxide@pve token=autoscaler template=k8s-node zone=localnetwork
vmid=9001 vmid_range=20000-20999
image=https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-amd64.img
checksum="" disk=20G bridge="" vlan="" first_boot="" prepared=""
packages=qemu-guest-agent,curl
uefi=false new_token=false dry_run=false local_only=false remove=false
storages=() bridges=() only=()
# The options that a run on another server needs too.
passed=()

failed=false secret="" work="" half_made="" gone=""
no_secret="was shown when the token was made. To get a new one: setup.sh --new-token"

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

# Something that is left to do. The rest goes on.
trouble() {
  echo "setup.sh: $*" >&2
  failed=true
}

# A command as one types it.
shown() {
  local word line=""
  for word; do
    [[ $word =~ ^[A-Za-z0-9@%+=:,./_-]+$ ]] || word=${word@Q}
    line+=" $word"
  done
  echo "${line# }"
}

# Everything that changes something goes through here.
run() {
  if $dry_run && [[ $1 == on ]]; then
    echo "would run on $2: $(shown "${@:3}")"
  elif $dry_run; then
    echo "would run: $(shown "$@")"
  else
    "$@"
  fi
}

# Of a JSON list on standard input: for each entry a line with its values of these keys, with | between them.
rows() {
  perl -MJSON::PP -0777 -e '
    my $list = decode_json(<STDIN>);
    for my $entry (@$list) {
      print join("|", map { my $value = $entry->{$_} // ""; $value =~ s/\s+/ /g; $value } @ARGV), "\n";
    }' "$@"
}

parse() {
  local name
  while (($#)); do
    name=${1#--} name=${name//-/_}
    case $1 in
      -h | --help) usage && exit 0 ;;
      --uefi | --new-token | --dry-run | --local-only | --remove) printf -v "$name" true && shift && continue ;;
    esac
    [[ -n ${2-} ]] || fail "$1 needs a value, or is no option: setup.sh --help lists them"
    case $1 in
      --storage) storages+=("$2") ;;
      --bridge) bridges+=("$2") ;;
      --server) only+=("$2") ;;
      --packages) packages+=",$2" ;;
      --zone | --vlan | --pool | --user | --token | --template | --vmid | --vmid-range) printf -v "$name" %s "$2" ;;
      --image | --checksum | --disk | --first-boot | --prepared) printf -v "$name" %s "$2" ;;
      *) fail "$1 is no option: setup.sh --help lists them" ;;
    esac
    [[ $1 == --vmid || $1 == --server || $1 == --prepared ]] || passed+=("$1" "$2")
    shift 2
  done
  ! $uefi || passed+=(--uefi)
  ((${#bridges[@]})) || bridges=(vmbr0)
  for name in "${bridges[@]}"; do
    [[ $name =~ ^[A-Za-z0-9_.-]+(:[1-9][0-9]{0,3})?$ ]] || fail "--bridge $name: a name such as vmbr0, or vmbr0:7 with a VLAN"
  done
  # The template has the first.
  bridge=${bridges[0]%%:*}
  [[ ${bridges[0]} != *:* ]] || vlan=${vlan:-${bridges[0]#*:}}
  [[ $vmid =~ ^[1-9][0-9]{2,8}$ ]] || fail "--vmid $vmid: a number from 100 to 999999999"
  [[ $vmid_range =~ ^([1-9][0-9]{2,8})-([1-9][0-9]{2,8})$ ]] ||
    fail "--vmid-range $vmid_range: two numbers, such as 20000-20999"
  first=${BASH_REMATCH[1]} last=${BASH_REMATCH[2]}
  ((first <= last)) || fail "--vmid-range $vmid_range: the first number is the smaller one"
  [[ $checksum =~ ^(|[0-9a-fA-F]{64}|[0-9a-fA-F]{128})$ ]] ||
    fail "--checksum: 64 (SHA-256) or 128 (SHA-512) hexadecimal digits"
  [[ -z $first_boot || -n $prepared || -f $first_boot ]] || fail "--first-boot: there is no file $first_boot"
  [[ -z $prepared || -f $prepared ]] || $dry_run || fail "--prepared: there is no file $prepared"
}

# Where we are, and what this cluster consists of.
look() {
  local program members
  for program in pveversion pveum pvesh qm; do
    command -v "$program" >/dev/null ||
      fail "this is no Proxmox server: it has no $program. Copy this script to any server of your Proxmox cluster" \
        "and run it there as root: scp setup.sh root@SERVER: && ssh -t root@SERVER ./setup.sh"
  done
  (($(id -u) == 0)) || fail "run this as root"
  version=$(pveversion | sed -nE 's|^pve-manager/([0-9]+)\..*|\1|p')
  [[ $version =~ ^([89]|[1-9][0-9])$ ]] || fail "kproxide needs Proxmox VE 8 or 9. pveversion says: $(pveversion)"
  [[ -f $PVE/.members ]] || fail "there is no $PVE/.members: is the service pve-cluster running?"
  # The first line is this server, then one for each server of the cluster. A server alone has no list.
  members=$(perl -MJSON::PP -0777 -e '
    my $all = decode_json(<STDIN>);
    my $quorate = $all->{cluster} ? $all->{cluster}{quorate} : 1;
    print "$all->{nodename}|$quorate\n";
    my $list = $all->{nodelist} // {};
    print "$_|$list->{$_}{online}|$list->{$_}{ip}\n" for sort keys %$list;' <"$PVE/.members")
  here=${members%%|*}
  [[ ${members%%$'\n'*} == *"|1" ]] || fail "this Proxmox cluster has no quorum, so nothing can be changed"
  servers=()
  declare -gA address=() online=()
  while IFS='|' read -r name is_online ip; do
    servers+=("$name")
    online[$name]=$is_online address[$name]=$ip
  done < <(tail -n +2 <<<"$members")
  if ((${#servers[@]} == 0)); then
    servers=("$here")
    online[$here]=1 address[$here]=$(hostname --ip-address | cut -d ' ' -f 1)
  fi
  for name in "${only[@]}"; do
    [[ -n ${online[$name]-} ]] || fail "--server $name: this cluster has ${servers[*]}"
  done
  ((${#only[@]})) || only=("${servers[@]}")
}

# One line for each VM and container of the whole cluster: VMID|server|name|kind, where kind is template, machine and
# anchor (kproxide's), ours (a template that this script has made) or empty.
guests() {
  perl -e '
    for my $file (glob "$ARGV[0]/nodes/*/{qemu-server,lxc}/*.conf") {
      my ($server, $vmid) = $file =~ m{/nodes/([^/]+)/[^/]+/(\d+)\.conf$} or next;
      open my $lines, "<", $file or next;
      my ($name, $notes, $template) = ("", "", 0);
      while (<$lines>) {
        last if /^\[/; # a snapshot
        $name = $1 if /^(?:name|hostname): (\S+)/;
        $template = 1 if /^template: 1/;
        $notes .= $1 if /^#(.*\n)/;
      }
      $notes =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge;
      my $kind = $template && $notes =~ /^\Q$ARGV[1]\E as VM $vmid$/m ? "ours"
        : $template ? "template"
        : $notes =~ /^kproxide-anchor: v\d/m ? "anchor"
        : $notes =~ /^kproxide(-tombstone)?: v\d/m ? "machine" : "";
      print "$vmid|$server|$name|$kind\n";
    }' "$PVE" "$MADE"
}

# The VMID of this server's template.
template_of() { # server
  guests | awk -F '|' -v server="$1" -v name="$template" \
    '$2 == server && $3 == name && ($4 == "template" || $4 == "ours") && !n++ { print $1 }'
}

# The first free number for a template that is neither kproxide's nor was given out here.
next_vmid() {
  local taken
  taken=$(guests | cut -d '|' -f 1)
  while ((vmid >= first && vmid <= last)) || ((vmid == 9999)) || grep -qx "$vmid" <<<"$taken"; do
    vmid=$((vmid + 1))
  done
}

# With the keys and the host keys that the servers of a cluster have for each other. It never asks anything.
options_for() { # server; sets the array ssh_options
  ssh_options=(-o BatchMode=yes -o ConnectTimeout=10 -o "HostKeyAlias=$1")
  local known=$PVE/nodes/$1/ssh_known_hosts
  if [[ -f $known ]]; then
    ssh_options+=(-o "UserKnownHostsFile=$known" -o GlobalKnownHostsFile=none)
  fi
}

on() { # server, command
  local server=$1
  shift
  if [[ $server == "$here" ]]; then
    "$@"
  else
    options_for "$server"
    # shellcheck disable=SC2029 # The words are quoted for the shell over there.
    ssh "${ssh_options[@]}" "root@${address[$server]}" "${*@Q}"
  fi
}

# Makes the image of the templates: guest agent installed, no machine identity in it. $prepared is its file.
prepare_image() {
  local program source=$image list check=sha256sum
  for program in qemu-img virt-customize; do
    command -v "$program" >/dev/null ||
      fail "$here has no $program: apt-get install --no-install-recommends libguestfs-tools"
  done
  work=$(mktemp -d "${TMPDIR:-/var/tmp}/kproxide-setup.XXXXXXXX")
  if [[ $image == http://* || $image == https://* ]]; then
    source=$work/download
    for list in SHA256SUMS SHA512SUMS; do
      [[ -z $checksum ]] || break
      run wget --quiet --output-document="$work/$list" "${image%/*}/$list" || continue
      ! $dry_run || break
      checksum=$(awk -v name="${image##*/}" '($2 == name || $2 == "*" name) && !n++ { print $1 }' "$work/$list")
    done
    [[ -n $checksum ]] || $dry_run || fail "no SHA256SUMS or SHA512SUMS beside $image names it: give --checksum"
    run wget --no-verbose --output-document="$source" "$image"
  fi
  $dry_run || [[ -f $source ]] || fail "--image: there is no file $source"
  ((${#checksum} == 64)) || check=sha512sum
  [[ -z $checksum ]] || run "$check" --check --quiet <<<"$checksum  $source" ||
    fail "$image does not have the checksum $checksum"
  # A copy, so that a file of yours stays as it is.
  prepared=$work/image.qcow2
  run qemu-img convert -O qcow2 "$source" "$prepared"
  run qemu-img resize -f qcow2 "$prepared" "$disk"
  # An empty machine-id, not a missing one: systemd then makes a new one at each clone's first boot, and with it a DHCP
  # identity of its own. The agent is enabled by hand where its package leaves that to udev.
  local customize=(
    --install "$packages"
    --run-command 'systemctl enable qemu-guest-agent.service || true'
    --run-command 'cloud-init clean --logs || true'
    --truncate /etc/machine-id
  )
  [[ -z $first_boot ]] || customize+=(--firstboot "$first_boot")
  run virt-customize --format qcow2 --add "$prepared" "${customize[@]}"
}

# Storages of this server that can hold disks: name|active|shared
storages_here() {
  pvesh get "/nodes/$here/storage" --content images --enabled 1 --output-format json | rows storage active shared
}

# Without --storage it is the only one there is.
choose_storage() {
  local names found
  found=$(storages_here)
  if ((${#storages[@]} == 0)); then
    names=$(cut -d '|' -f 1 <<<"$found" | paste -sd ' ')
    [[ -n $names ]] || fail "$here has no storage for disk images"
    [[ $names != *' '* ]] || fail "give --storage, one of: $names"
    storages=("$names")
    passed+=(--storage "$names")
  fi
  placement=local
  if grep -q "^${storages[0]}|.*|1$" <<<"$found"; then
    placement=shared
  fi
}

# What a template needs on this server.
check_here() {
  local found
  found=$(storages_here)
  grep -q "^${storages[0]}|" <<<"$found" ||
    fail "$here has no storage ${storages[0]} for disk images. It has: $(cut -d '|' -f 1 <<<"$found" | paste -sd ' ')"
  grep -q "^${storages[0]}|1|" <<<"$found" || fail "the storage ${storages[0]} is not active on $here"
  found=$(pvesh get "/nodes/$here/network" --type any_bridge --output-format json | rows iface)
  grep -qxF "$bridge" <<<"$found" ||
    fail "$here has no bridge $bridge: give --bridge, one of: $(paste -sd ' ' <<<"$found")"
}

# This server's template, made if there is none, and the token's right to clone it.
local_template() {
  local have other network create
  have=$(template_of "$here")
  if [[ -n $have ]]; then
    grant "/vms/$have" KproxideTemplate 1
    return
  fi
  other=$(guests | awk -F '|' -v server="$here" -v name="$template" '$2 == server && $3 == name && !n++ { print $1 }')
  [[ -z $other ]] ||
    fail "VM $other on $here is named $template and is no template: remove it, or give --template another name"
  check_here
  next_vmid
  [[ -n $prepared ]] || prepare_image
  network="virtio,bridge=$bridge${vlan:+,tag=$vlan}"
  # The serial console is for cloud images that show nothing elsewhere.
  create=(
    --name "$template" --description "$MADE as VM $vmid" --ostype l26 --cpu host --sockets 1 --cores 2 --memory 2048
    --agent enabled=1 --scsihw virtio-scsi-single --net0 "$network" --serial0 socket --vga serial0
  )
  if $uefi; then
    create+=(--bios ovmf --machine q35 --efidisk0 "${storages[0]}:1,efitype=4m,pre-enrolled-keys=0")
  fi
  run qm create "$vmid" "${create[@]}"
  $dry_run || half_made=$vmid
  run qm set "$vmid" --scsi0 "${storages[0]}:0,import-from=$prepared,discard=on,iothread=1"
  run qm set "$vmid" --scsi1 "${storages[0]}:cloudinit" --ipconfig0 ip=dhcp --boot order=scsi0
  run qm template "$vmid"
  half_made=""
  $dry_run || echo "$here: made the template $template as VM $vmid"
  grant "/vms/$vmid" KproxideTemplate 1
}

# A run of this script on a server, for the template there.
run_on() { # server
  local server=$1 folder=/var/tmp/kproxide-setup arguments
  arguments=(--local-only --vmid "$vmid" "${passed[@]}")
  ! $dry_run || arguments+=(--dry-run)
  if [[ $server == "$here" ]]; then
    # A process of its own: if it fails, the other servers still get their templates.
    bash "$self" "${arguments[@]}" --prepared "$prepared"
    return
  fi
  options_for "$server"
  if ! $dry_run; then
    folder=$(on "$server" mktemp -d "$folder.XXXXXXXX" </dev/null) || return
  fi
  run scp -q "${ssh_options[@]}" "$prepared" "root@[${address[$server]}]:$folder/image.qcow2" &&
    on "$server" bash -s -- "${arguments[@]}" --prepared "$folder/image.qcow2" <"$self"
  local status=$?
  $dry_run || on "$server" rm -r "$folder" </dev/null || true
  return "$status"
}

# On each server, or one in all on a shared storage. The image is prepared once, here.
make_templates() {
  local server wanted=("${only[@]}") have why
  if [[ $placement == shared ]]; then
    [[ " ${wanted[*]} " != *" $here "* ]] || wanted=("$here")
    wanted=("${wanted[0]}")
    for server in "${servers[@]}"; do
      [[ -z $(template_of "$server") ]] || wanted=("$server")
    done
  fi
  for server in "${wanted[@]}"; do
    have=$(template_of "$server")
    if [[ -n $have ]]; then
      echo "$server: has the template $template already: VM $have"
      grant "/vms/$have" KproxideTemplate 1
      continue
    fi
    next_vmid
    why=""
    if [[ ${online[$server]} != 1 ]]; then
      why="$server is not online"
    else
      [[ -n $prepared ]] || prepare_image
      run_on "$server" || why="what had to run there, or ssh, failed"
    fi
    if [[ -n $why ]]; then
      trouble "$server has no template $template yet: $why. Run there as root, with a copy of this script:"
      echo "  $(shown ./setup.sh --local-only --vmid "$vmid" "${passed[@]}")" >&2
    fi
    vmid=$((vmid + 1))
  done
}

role() { # name, privileges in the order of the alphabet
  local has
  if ! has=$(grep "^$1|" <<<"$roles"); then
    run pveum role add "$1" --privs "$2"
  elif [[ $(tr , '\n' <<<"${has#*|}" | LC_ALL=C sort | paste -sd ,) != "$2" ]]; then
    run pveum role modify "$1" --privs "$2"
  fi
}

# A token with privilege separation has only what both it and its user have, hence every grant twice.
grant() { # path, role, whether also below the path
  grep -qxF "$1|$2|user|$user|$3" <<<"$acl" ||
    run pveum acl modify "$1" --roles "$2" --users "$user" --propagate "$3"
  grep -qxF "$1|$2|token|$user!$token|$3" <<<"$acl" ||
    run pveum acl modify "$1" --roles "$2" --tokens "$user!$token" --propagate "$3"
}

read_acl() {
  acl=$(pveum acl list --output-format json | rows path roleid type ugid propagate)
}

# Of a list of pveum the comment of one entry, behind a mark that shows that there is the entry.
entry() { # key, its value, command
  local key=$1 value=$2
  shift 2
  pveum "$@" --output-format json | rows "$key" comment | awk -F '|' -v value="$value" '$1 == value { print "|" $2 }'
}

# Pool, user, roles and token, and the rights that do not depend on a template.
make_access() {
  local name roles agent=VM.GuestAgent.Audit,VM.GuestAgent.Unrestricted
  [[ -z $first_boot ]] || agent=VM.GuestAgent.Audit
  # Version 9 split the guest agent's rights from VM.Monitor, which it no longer has.
  ((version >= 9)) || agent=VM.Monitor
  local machines=Pool.Audit,VM.Allocate,VM.Audit,VM.Config.CPU,VM.Config.Cloudinit,VM.Config.Disk,VM.Config.HWType
  machines+=,VM.Config.Memory,VM.Config.Network,VM.Config.Options,$agent,VM.PowerMgmt
  [[ -n $(entry poolid "$pool" pool list) ]] || run pveum pool add "$pool" --comment "$MADE"
  [[ -n $(entry userid "$user" user list) ]] || run pveum user add "$user" --comment "$MADE"
  roles=$(pveum role list --output-format json | rows roleid privs)
  role KproxideAudit Sys.Audit
  role KproxideMachines "$machines"
  role KproxideTemplate VM.Audit,VM.Clone
  role KproxideStorage Datastore.AllocateSpace,Datastore.Audit
  role KproxideNetwork SDN.Use
  make_token
  read_acl
  # "/" alone tells whether the cluster has quorum; below it only the servers' load is needed.
  grant / KproxideAudit 0
  grant /nodes KproxideAudit 1
  grant "/pool/$pool" KproxideMachines 1
  for name in "${storages[@]}"; do
    grant "/storage/$name" KproxideStorage 1
  done
  for name in "${bridges[@]}"; do
    grant "/sdn/zones/$zone/${name/:/\/}" KproxideNetwork 1
  done
}

make_token() {
  local add=(pveum user token add "$user" "$token" --privsep 1 --comment "$MADE" --output-format json)
  # In a dry run there may be no user.
  if [[ -n $(entry userid "$user" user list) && -n $(entry tokenid "$token" user token list "$user") ]]; then
    $new_token || return 0
    run pveum user token remove "$user" "$token"
  fi
  if $dry_run; then
    run "${add[@]}"
    no_secret="will be shown when setup.sh has made the token"
  else
    secret=$("${add[@]}" | perl -MJSON::PP -0777 -e 'print decode_json(<STDIN>)->{value}')
    [[ -n $secret ]] || fail "pveum made the token and did not show its secret: run this again with --new-token"
  fi
}

# The fingerprint of a server's certificate. It is in the cluster's files, so that each server knows those of all.
fingerprint_of() { # server
  local file=$PVE/nodes/$1/pveproxy-ssl.pem
  [[ -f $file ]] || file=$PVE/nodes/$1/pve-ssl.pem
  openssl x509 -noout -fingerprint -sha256 -in "$file" | cut -d = -f 2
}

# What `kproxide init` asks for, under the names of its flags. The secret is shown whatever happened: Proxmox shows it
# once.
tell() {
  local server host
  cat <<TEXT

\`kproxide init\` asks for these. It learns of the other servers from this one:
  endpoint: https://${address[$here]}:8006
  fingerprint: $(fingerprint_of "$here")
  token-id: $user!$token
  token-secret: ${secret:-$no_secret}
  pool: $pool
  vmid-range: $vmid_range
  template: $template

It writes the key endpoints of the token's Secret, too: kproxide sends the token to no other server. If you make the
Secret yourself, these are the lines of that key:
TEXT
  secret=""
  for server in "${servers[@]}"; do
    host=${address[$server]}
    [[ $host != *:* ]] || host="[$host]"
    echo "  $host:8006 $(fingerprint_of "$server" 2>/dev/null || true)"
  done
}

# shellcheck disable=SC2317 # It is called at the end, however that comes.
finish() {
  local status=$?
  # A half-made VM would take the number and the name.
  [[ -z $half_made ]] || qm destroy "$half_made" --purge 1 || true
  [[ -z $work ]] || rm -rf "$work"
  [[ -z $secret ]] || echo "The secret of the token $user!$token, which cannot be shown again: $secret"
  exit $((status != 0))
}

# Each VM of this kind and, where it is in one, its pool: VMID|server|name|pool
of_kind() { # kind
  local pools
  pools=$(pvesh get /cluster/resources --type vm --output-format json | rows vmid pool)
  guests | awk -F '|' -v kind="$1" '
    NR == FNR { pool[$1] = $2; next }
    $4 == kind { print $1 "|" $2 "|" $3 "|" pool[$1] }' <(echo "$pools") -
}

destroy() { # VMID, server
  echo "$2: VM $1 is removed"
  if run on "$2" qm destroy "$1" --purge 1 </dev/null; then
    gone+=" $1 "
  else
    trouble "VM $1 is still there. Run on $2: qm destroy $1 --purge 1"
  fi
}

remove_all() {
  local left vm server name of path role roles who others made
  # A clone gets into its pool last.
  left=$(of_kind machine | awk -F '|' -v pool="$pool" '$4 == "" || $4 == pool { print "VM " $1 " (" $2 ")" }')
  [[ -z $left ]] || fail "nothing is removed, because machines of kproxide exist: ${left//$'\n'/, }." \
    "Remove them first: kubectl delete nodepools --all"
  while IFS='|' read -r vm server name of; do
    [[ $of != "$pool" ]] || destroy "$vm" "$server"
  done <<<"$(of_kind anchor)"
  read_acl
  while IFS='|' read -r path role _ who _; do
    [[ " ${ROLES[*]} " == *" $role "* ]] || continue
    [[ $who != "$user" ]] || run pveum acl delete "$path" --roles "$role" --users "$user"
    [[ $who != "$user!$token" ]] || run pveum acl delete "$path" --roles "$role" --tokens "$user!$token"
  done <<<"$acl"
  # What is left belongs to others.
  acl=$(awk -F '|' -v user="$user" -v token="$user!$token" '$4 != user && $4 != token' <<<"$acl")
  while IFS='|' read -r vm server name of; do
    [[ $name == "$template" && -n $vm ]] || continue
    others=$(awk -F '|' -v path="/vms/$vm" '$1 == path { print $4 }' <<<"$acl" | sort -u | paste -sd ' ')
    if [[ -n $others ]]; then
      echo "$server: the template VM $vm stays, because others may clone it: $others"
    else
      destroy "$vm" "$server"
    fi
  done <<<"$(of_kind ours)"
  made=$(entry userid "$user" user list)
  if [[ -n $made && $(entry tokenid "$token" user token list "$user") == "|$MADE" ]]; then
    run pveum user token remove "$user" "$token"
  fi
  if [[ $made == "|$MADE" ]]; then
    run pveum user delete "$user"
  elif [[ -n $made ]]; then
    echo "the user $user stays, because setup.sh did not make it"
  fi
  roles=$(pveum role list --output-format json | rows roleid)
  for role in "${ROLES[@]}"; do
    grep -qx "$role" <<<"$roles" || continue
    if grep -q "|$role|" <<<"$acl"; then
      echo "the role $role stays, because others have it"
    else
      run pveum role delete "$role"
    fi
  done
  made=$(entry poolid "$pool" pool list)
  left=$(pvesh get /cluster/resources --type vm --output-format json | rows pool vmid |
    awk -F '|' -v pool="$pool" -v gone="$gone" '$1 == pool && !index(gone, " " $2 " ") { print $2 }' | paste -sd ' ')
  if [[ $made == "|$MADE" && -n $left ]]; then
    echo "the pool $pool stays, because others' VMs are in it: $left"
  elif [[ $made == "|$MADE" ]]; then
    run pveum pool delete "$pool"
  elif [[ -n $made ]]; then
    echo "the pool $pool stays, because setup.sh did not make it"
  fi
}

main() {
  self=${BASH_SOURCE[0]-}
  parse "$@"
  look
  trap finish EXIT
  if $remove; then
    remove_all
  elif $local_only; then
    choose_storage
    [[ -n $(entry userid "$user" user list) ]] || $dry_run ||
      fail "there is no user $user yet: run this on one server without --local-only first"
    read_acl
    local_template
  else
    [[ -f $self ]] || fail "save this script as a file and run that: it runs itself on the other servers too"
    choose_storage
    [[ " ${only[*]} " != *" $here "* ]] || check_here
    make_access
    make_templates
    tell
  fi
  ! $failed || exit 1
  exit 0
}

main "$@"
