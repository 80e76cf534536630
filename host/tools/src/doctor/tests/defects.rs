//! The table of defects. A remedy that is a command is run as it is printed; any other is stood for by a change of the
//! world.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::addresses::books;
use super::ward::{Ward, ailments};
use crate::doctor::{Values, examine};
use kproxide_common::clock::Clock;
use kproxide_controller::config::Config;
use kproxide_controller::judge::Level;
use kproxide_lab::{EPOCH, config};
use kproxide_lab::{MACHINE, run_with};
use kproxide_policy::{PolicyFile, PolicyFiles};

/// One defect: how it comes about, what doctor says, and what mends it.
pub(super) struct Defect {
    pub(super) name: &'static str,
    pub(super) inject: fn(&Ward),
    pub(super) level: Level,
    pub(super) object: &'static str,
    pub(super) reason: &'static str,
    pub(super) words: &'static str,
    pub(super) mend: Mend,
}

pub(super) enum Mend {
    /// Doctor's own lines, as they stand there.
    Commands,
    ByHand(fn(&Ward)),
}
use Level::{Error, Warning};
use Mend::{ByHand, Commands};

const BROADCAST: Duration = Duration::from_secs(30);

const HOME: &str = "ProxmoxCluster/home";
const DEBIAN: &str = "NodeClass/debian";
const WORKERS: &str = "NodePool/workers";

#[rustfmt::skip]
pub(super) const DEFECTS: &[Defect] = &[
    Defect { name: "a pool names a class that is not there", level: Error, object: WORKERS, reason: "ClassMissing",
        words: "there is no NodeClass debain", inject: |w| w.edit("nodepools/workers", json!({"nodeClass": "debain"})),
        mend: ByHand(|w| w.edit("nodepools/workers", json!({"nodeClass": "debian"}))) },
    Defect { name: "a pool names a cluster that is not there", level: Error, object: WORKERS, reason: "ClusterMissing",
        words: "there is no ProxmoxCluster hame", inject: |w| w.edit("nodepools/workers", json!({"clusters": ["hame"]})),
        mend: ByHand(|w| w.edit("nodepools/workers", json!({"clusters": null}))) },
    Defect { name: "a pool names a policy that is not there", level: Error, object: WORKERS, reason: "PolicyMissing",
        words: "mount mine.wasm",
        inject: |w| w.edit("nodepools/workers", json!({"policies": {"hostSelection": {"use": "mine"}}})),
        mend: ByHand(|w| w.edit("nodepools/workers", json!({"policies": null}))) },
    Defect { name: "a pool wants more machines than it may have", level: Error, object: WORKERS, reason: "InvalidSettings",
        words: "minNodes 5 is larger than maxNodes 3",
        inject: |w| w.edit("nodepools/workers", json!({"limits": {"minNodes": 5}})),
        mend: ByHand(|w| w.edit("nodepools/workers", json!({"limits": {"minNodes": 1}}))) },
    Defect { name: "a pool may have no machine", level: Warning, object: WORKERS, reason: "MaxNodes",
        words: "set it higher", inject: |w| w.edit("nodepools/workers", json!({"limits": {"minNodes": 0, "maxNodes": 0}})),
        mend: ByHand(|w| w.edit("nodepools/workers", json!({"limits": {"maxNodes": 3}}))) },
    Defect { name: "there is no pool", level: Error, object: "NodePool", reason: "NoPool",
        words: "makes no machine", inject: |w| w.lab.kube.delete("nodepools.kproxide.dev", "", "workers").unwrap(),
        mend: ByHand(|w| {
            let pool = json!({"apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "workers"},
                "spec": {"nodeClass": "debian", "limits": {"maxNodes": 3}}});
            w.lab.kube.create("nodepools.kproxide.dev", pool).unwrap();
        }) },
    Defect { name: "a range of numbers is empty", level: Error, object: HOME, reason: "InvalidSettings",
        words: "700-599 is empty", inject: |w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 700}})),
        mend: ByHand(|w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 500}}))) },
    Defect { name: "there is no template of that name", level: Error, object: DEBIAN, reason: "TemplateMissing",
        words: "there is no template k8s-nod", inject: |w| w.edit("nodeclasses/debian", json!({"template": {"name": "k8s-nod"}})),
        mend: ByHand(template_is_right) },
    Defect { name: "the template is a VM", level: Error, object: DEBIAN, reason: "TemplateUnusable",
        words: "convert it with `qm template 9100`", inject: |w| w.edit("nodeclasses/debian", json!({"template": {"name": "plain"}})),
        mend: ByHand(template_is_right) },
    Defect { name: "the template's storage holds no linked clones", level: Error, object: DEBIAN, reason: "CloneImpossible",
        words: "which cannot hold linked clones",
        inject: |w| w.edit("nodeclasses/debian", json!({"template": {"name": "fat", "clone": "linked"}})),
        mend: ByHand(template_is_right) },
    Defect { name: "the template is on one of two servers", level: Warning, object: DEBIAN, reason: "NotEverywhere",
        words: "pve2: there is no template only-one on it",
        inject: |w| w.edit("nodeclasses/debian", json!({"template": {"name": "only-one"}})),
        mend: ByHand(template_is_right) },
    Defect { name: "one of two templates has no guest agent", level: Warning, object: DEBIAN, reason: "NotEverywhere",
        words: "pve2: template 9002 has no guest agent", inject: |w| w.lab.pve.human_sets(9002, "agent", Some("0")).unwrap(),
        mend: Commands },
    Defect { name: "no template has a guest agent", level: Error, object: DEBIAN, reason: "NoAgent",
        words: "template 9001 has no guest agent", inject: |w| {
            w.lab.pve.human_sets(9001, "agent", Some("0")).unwrap();
            w.lab.pve.human_sets(9002, "agent", Some("0")).unwrap();
        },
        mend: Commands },
    Defect { name: "a template has no cloud-init drive", level: Error, object: DEBIAN, reason: "NoCloudInit",
        words: "template 9001 on pve1", inject: |w| w.lab.pve.human_sets(9001, "ide2", None).unwrap(),
        mend: ByHand(|w| w.lab.pve.human_sets(9001, "ide2", Some("local-lvm:vm-9001-cloudinit,media=cdrom")).unwrap()) },
    Defect { name: "a template is connected to a bridge that its server lacks", level: Error, object: DEBIAN,
        reason: "BridgeMissing", words: "template 9002 is connected to the bridge vmbr7, which is not on pve2",
        inject: |w| {
            w.grant("/sdn/zones/localnetwork/vmbr7", &["SDN.Use"]);
            w.lab.pve.human_sets(9002, "net0", Some("virtio,bridge=vmbr7")).unwrap();
        },
        mend: ByHand(|w| {
            w.lab.pve.human_sets(9002, "net0", Some("virtio,bridge=vmbr0")).unwrap();
            w.grant("/sdn/zones/localnetwork/vmbr7", &[]);
        }) },
    Defect { name: "the template's disk is larger than asked", level: Warning, object: DEBIAN, reason: "DiskLarger",
        words: "asks for a disk of 5 GiB, and template 9002 has one of 10 GiB",
        inject: |w| w.edit("nodeclasses/debian", json!({"instanceTypes": [{"name": "medium", "cores": 4, "memoryMiB": 8192, "diskGiB": 5}]})),
        mend: ByHand(size_is_right) },
    Defect { name: "no server has the memory of a size", level: Error, object: DEBIAN, reason: "NoRoom",
        words: "no server has room for a machine of any size",
        inject: |w| w.edit("nodeclasses/debian", json!({"instanceTypes": [{"name": "medium", "cores": 4, "memoryMiB": 81920}]})),
        mend: ByHand(size_is_right) },
    Defect { name: "no server has the cores of one of two sizes", level: Warning, object: DEBIAN, reason: "SizeNowhere",
        words: "size huge: no server has room",
        inject: |w| w.edit("nodeclasses/debian", json!({"instanceTypes": [{"name": "medium", "cores": 4, "memoryMiB": 8192},
            {"name": "huge", "cores": 32, "memoryMiB": 8192}]})),
        mend: ByHand(size_is_right) },
    Defect { name: "the storage is full", level: Error, object: DEBIAN, reason: "StorageFull",
        words: "no storage has room for a machine of any size", inject: |w| w.lab.pve.fill_storage("local-lvm", 1 << 30),
        mend: ByHand(|w| w.lab.pve.fill_storage("local-lvm", 300 << 30)) },
    Defect { name: "a storage is not there", level: Error, object: HOME, reason: "StorageMissing",
        words: "asks for storage cef",
        inject: |w| w.edit("nodeclasses/debian", json!({"template": {"storage": "cef", "clone": "full"}})),
        mend: ByHand(|w| w.edit("nodeclasses/debian", json!({"template": {"storage": null, "clone": null}}))) },
    Defect { name: "the key that marks machines is gone", level: Error, object: HOME, reason: "OwnershipKeyUnusable",
        words: "Secret kproxide/kproxide-ownership-key is gone", inject: |w| {
            let patch = json!({"status": {"keyFingerprint": "11:22"}});
            w.lab.kube.patch("proxmoxclusters.kproxide.dev", "status", "", "home", patch).unwrap();
        },
        mend: ByHand(|w| {
            let patch = json!({"status": {"keyFingerprint": null}});
            w.lab.kube.patch("proxmoxclusters.kproxide.dev", "status", "", "home", patch).unwrap();
        }) },
    Defect { name: "the Proxmox pool is not there", level: Error, object: HOME, reason: "PoolMissing",
        words: "pveum pool add k9s", inject: |w| w.edit("proxmoxclusters/home", json!({"pool": "k9s"})),
        mend: ByHand(|w| w.edit("proxmoxclusters/home", json!({"pool": "k8s"}))) },
    Defect { name: "a server is named that is not there", level: Error, object: HOME, reason: "UnknownHypervisor",
        words: "has no server pve9", inject: |w| w.edit("proxmoxclusters/home", json!({"hypervisors": {"exclude": ["pve9"]}})),
        mend: ByHand(|w| w.edit("proxmoxclusters/home", json!({"hypervisors": null}))) },
    Defect { name: "every number is taken", level: Error, object: HOME, reason: "VmidsUsedUp",
        words: "each VMID from 9001 to 9002",
        inject: |w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 9001, "last": 9002}})),
        mend: ByHand(|w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 500, "last": 599}}))) },
    Defect { name: "a stranger's VM has a number of the range", level: Warning, object: HOME, reason: "VmidsTaken",
        words: "9100 (plain) on pve1",
        inject: |w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 9050, "last": 9150}})),
        mend: ByHand(|w| w.edit("proxmoxclusters/home", json!({"vmidRange": {"first": 500, "last": 599}}))) },
    Defect { name: "a class has fewer addresses than its pool may make machines", level: Warning, object: DEBIAN,
        reason: "AddressesFew", words: "that are free: 2; machines that its NodePools may still make: 3",
        inject: |w| addresses(w, "10.1.0.11"), mend: ByHand(|w| addresses(w, "10.1.0.12")) },
    Defect { name: "all addresses of a class rest", level: Error, object: DEBIAN, reason: "NoHypervisor",
        words: "the address pool of NodeClass debian has no free address",
        inject: |w| {
            addresses(w, "10.1.0.11");
            books(w, &[("workers", "10.1.0.10", "quarantined"), ("gone", "10.1.0.11", "quarantined")]);
        },
        mend: ByHand(|w| addresses(w, "10.1.0.14")) },
    Defect { name: "another installation uses the Proxmox pool", level: Warning, object: HOME, reason: "PoolShared",
        words: "300 (theirs) on pve1", inject: |w| {
            w.lab.pve.human_clones_vm(9100, 300, "theirs").unwrap();
            w.lab.pve.human_sets_pool(300, Some("k8s")).unwrap();
        },
        mend: ByHand(|w| w.lab.pve.human_destroys(300).unwrap()) },
    Defect { name: "there is no quorum", level: Error, object: HOME, reason: "NoQuorum",
        words: "has no quorum", inject: |w| w.lab.pve.set_quorate(false),
        mend: ByHand(|w| w.lab.pve.set_quorate(true)) },
    Defect { name: "the template may not be cloned", level: Error, object: HOME, reason: "PrivilegesMissing",
        words: "/vms/9002: VM.Clone is missing", inject: |w| w.grant("/vms/9002", &["VM.Audit"]), mend: Commands },
    Defect { name: "machines may not be connected", level: Error, object: HOME, reason: "PrivilegesMissing",
        words: "/sdn/zones/localnetwork/vmbr0: SDN.Use is missing",
        inject: |w| w.grant("/sdn/zones/localnetwork/vmbr0", &[]), mend: Commands },
    Defect { name: "machines may not be started", level: Error, object: HOME, reason: "PrivilegesMissing",
        words: "VM.PowerMgmt is missing", inject: |w| w.grant("/pool/k8s", &["Pool.Audit", "VM.Allocate", "VM.Audit",
            "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.Memory", "VM.Config.Network",
            "VM.Config.Options", "VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]), mend: Commands },
    Defect { name: "the token may do too much", level: Warning, object: HOME, reason: "TokenOverPrivileged",
        words: "/access: Permissions.Modify", inject: |w| w.grant("/access", &["Permissions.Modify"]),
        mend: ByHand(|w| w.grant("/access", &[])) },
    Defect { name: "the token's secret is wrong", level: Error, object: HOME, reason: "CredentialsRefused",
        words: "check token-id", inject: |w| w.wires(|wires| wires.secret = Some("other".to_owned())),
        mend: ByHand(|w| w.wires(|wires| wires.secret = None)) },
    Defect { name: "one of two endpoints is dead", level: Warning, object: HOME, reason: "EndpointDown",
        words: "endpoint https://pve2:8006", inject: |w| w.wires(|wires| { wires.dead.insert("https://pve2:8006".to_owned()); }),
        mend: ByHand(|w| w.wires(|wires| wires.dead.clear())) },
    Defect { name: "one of two endpoints has another certificate", level: Warning, object: HOME, reason: "CertificateUntrusted",
        words: "has the fingerprint 11:50:7A", inject: |w| w.wires(|wires| { wires.renewed.insert("https://pve1:8006".to_owned()); }),
        mend: ByHand(|w| w.wires(|wires| wires.renewed.clear())) },
    Defect { name: "Proxmox is older than 8", level: Error, object: HOME, reason: "VersionOld",
        words: "endpoint https://pve1:8006 runs Proxmox VE 7.4", inject: |w| {
            w.edit("proxmoxclusters/home", json!({"endpoints": ["https://pve1:8006"]}));
            w.wires(|wires| wires.version = Some("7.4-20".to_owned()));
        },
        mend: ByHand(|w| w.wires(|wires| wires.version = None)) },
    Defect { name: "the join script is not mounted", level: Error, object: DEBIAN, reason: "JoinFileMissing",
        words: "join.guestExec.commandSecretFile debian", inject: |w| std::fs::remove_file(w.join.path().join("debian")).unwrap(),
        mend: ByHand(|w| w.script("--node-taint kproxide.dev/unregistered=:NoExecute\n")) },
    Defect { name: "two Nodes have one machine ID", level: Warning, object: "Node/a", reason: "MachineIdTwice",
        words: "the Nodes a, b have the machine ID 77", inject: |w| { node(w, "a", json!({}), "77"); node(w, "b", json!({}), "77"); },
        mend: ByHand(|w| w.lab.kube.delete("nodes", "", "b").unwrap()) },
    Defect { name: "a Node has the label of a claim that is gone", level: Warning, object: "Node/a", reason: "NodeWithoutClaim",
        words: "has the label kproxide.dev/claim", inject: |w| node(w, "a", json!({"kproxide.dev/claim": "gone"}), ""),
        mend: Commands },
    Defect { name: "a driver of a class is not there", level: Warning, object: DEBIAN, reason: "CsiDriverMissing",
        words: "there is no CSIDriver topolvm.io",
        inject: |w| w.edit("nodeclasses/debian", json!({"csi": [{"driver": "topolvm.io"}]})),
        mend: ByHand(|w| { w.lab.kube.create("csidrivers.storage.k8s.io", json!({"apiVersion": "storage.k8s.io/v1",
            "kind": "CSIDriver", "metadata": {"name": "topolvm.io"}, "spec": {}})).unwrap(); }) },
    Defect { name: "Helm's values no longer have a pool", level: Warning, object: "NodePool/old", reason: "LeftOver",
        words: "release scaler made it", inject: |w| { released(w, "workers"); released(w, "old"); }, mend: Commands },
    Defect { name: "the controller may not evict pods", level: Error, object: "ServiceAccount", reason: "RightMissing",
        words: "it may not create pods/eviction", inject: |w| w.wires(|wires| { wires.denied.insert("create pods".to_owned()); }),
        mend: ByHand(|w| w.wires(|wires| wires.denied.clear())) },
    Defect { name: "a definition is missing", level: Error, object: "CustomResourceDefinition/ledgers.kproxide.dev",
        reason: "DefinitionMissing", words: "there is none",
        inject: |w| w.lab.kube.delete("customresourcedefinitions.apiextensions.k8s.io", "", "ledgers.kproxide.dev").unwrap(),
        mend: ByHand(|w| { w.lab.kube.create("customresourcedefinitions.apiextensions.k8s.io", definition("ledgers.kproxide.dev")).unwrap(); }) },
    Defect { name: "a definition is older than the program", level: Error, object: "CustomResourceDefinition/nodepools.kproxide.dev",
        reason: "DefinitionOld", words: "it does not know the field spec.weight", inject: |w| {
            let mut old = definition("nodepools.kproxide.dev");
            let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
            let fields = old.pointer_mut(fields).unwrap().as_object_mut().unwrap();
            fields.remove("weight").unwrap();
            replace(w, old);
        },
        mend: ByHand(|w| replace(w, definition("nodepools.kproxide.dev"))) },
];

fn template_is_right(ward: &Ward) {
    let template = json!({ "name": "k8s-node", "clone": null });
    ward.edit("nodeclasses/debian", json!({ "template": template }));
}

fn size_is_right(ward: &Ward) {
    let types = json!([{ "name": "medium", "cores": 4, "memoryMiB": 8192 }]);
    ward.edit("nodeclasses/debian", json!({ "instanceTypes": types }));
}

fn addresses(ward: &Ward, last: &str) {
    ward.edit("nodeclasses/debian", super::addresses::class(last));
}

fn node(ward: &Ward, name: &str, labels: Value, machine_id: &str) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
        "spec": {}, "status": { "nodeInfo": { "machineID": machine_id } },
    });
    kproxide_simulator::kube::fixtures::add_node(&ward.lab.kube, node).unwrap();
}

/// Makes the pool one of the Helm release `scaler`, whose values have the pool `workers` alone.
fn released(ward: &Ward, pool: &str) {
    let kube = &ward.lab.kube;
    let annotations =
        json!({ "meta.helm.sh/release-name": "scaler", "meta.helm.sh/release-namespace": "ops" });
    let mut object = kube.get("nodepools.kproxide.dev", "", "workers").unwrap();
    object["metadata"] = json!({ "name": pool, "annotations": annotations });
    let made = kube.create("nodepools.kproxide.dev", object);
    if made.is_err() {
        let patch = json!({ "metadata": { "annotations": annotations } });
        kube.patch("nodepools.kproxide.dev", "", "", pool, patch)
            .unwrap();
        let manifest = "---\nkind: NodePool\nmetadata: {name: workers}\n---\nkind: NodeClass\nmetadata: {name: debian}\n";
        kube.create(
            "namespaces",
            kproxide_simulator::kube::fixtures::namespace("ops"),
        )
        .unwrap();
        kube.create("secrets", record(manifest)).unwrap();
    }
}

/// As Helm writes it.
fn record(manifest: &str) -> Value {
    let release = json!({ "name": "scaler", "manifest": manifest }).to_string();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(release.as_bytes()).unwrap();
    let text = STANDARD.encode(STANDARD.encode(packed.finish().unwrap()));
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": { "release": text },
        "metadata": { "name": "sh.helm.release.v1.scaler.v1", "namespace": "ops",
            "labels": { "owner": "helm", "name": "scaler", "status": "deployed" } },
    })
}

fn definition(name: &str) -> Value {
    let all = kproxide_kube::crd::crds().iter();
    let mut all = all.map(|crd| serde_json::to_value(crd).unwrap());
    all.find(|crd| crd["metadata"]["name"] == name).unwrap()
}

fn replace(ward: &Ward, definition: Value) {
    let name = definition["metadata"]["name"].as_str().unwrap();
    let resource = "customresourcedefinitions.apiextensions.k8s.io";
    let mut stands = ward.lab.kube.get(resource, "", name).unwrap();
    stands["spec"] = definition["spec"].clone();
    ward.lab.kube.update(resource, "", stands).unwrap();
}

async fn is_well(ward: &Ward, when: &str) {
    let report = ward.examined().await;
    assert_eq!(ailments(&report), [], "{when}:\n{report}");
}

#[tokio::test(start_paused = true)]
async fn a_healthy_world_has_no_finding() {
    let ward = Ward::new();
    is_well(&ward, "healthy").await;
    let report = ward.examined().await;
    // Both endpoints, the cluster, the class, the pool, the script and five definitions.
    assert!(report.summary.ok >= 10, "{report}");
}

#[tokio::test(start_paused = true)]
async fn each_defect_is_found_alone_and_mended_by_its_remedy() {
    let mut wrong = Vec::new();
    for defect in DEFECTS {
        let ward = Ward::new();
        (defect.inject)(&ward);
        // Proxmox tells numbers every ten seconds.
        sleep(BROADCAST).await;
        let report = ward.examined().await;
        let expected = [(defect.level, defect.object, defect.reason)];
        let found = report
            .findings
            .iter()
            .find(|it| it.reason.word == defect.reason);
        let says = found.is_some_and(|it| it.message.contains(defect.words));
        if ailments(&report) != expected || !says {
            wrong.push(format!("{}:\n{report}", defect.name));
            continue;
        }
        let found = found.unwrap();
        let is_told = found.reason.means.contains("The message ");
        let says_how = is_told || !found.remedy().is_empty() || !found.commands.is_empty();
        assert!(says_how, "{}", defect.name);
        match defect.mend {
            ByHand(mend) => mend(&ward),
            Commands => {
                assert!(!found.commands.is_empty(), "{}: {report}", defect.name);
                found.commands.iter().for_each(|line| ward.run(line));
            }
        }
        sleep(BROADCAST).await;
        let report = ward.examined().await;
        if !ailments(&report).is_empty() {
            wrong.push(format!("{}, mended:\n{report}", defect.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(DEFECTS.len() >= 25);
}

const VALUES: &str = "
clusters:
  home:
    credentials: {existingSecret: proxmox}
    spec: {endpoints: ['https://pve1:8006'], pool: k8s, tls: {insecureSkipVerify: true}}
nodeClasses:
  debian:
    joinScript: {existingSecret: join}
    spec: {template: {name: k8s-node, placement: local}}
nodePools:
  workers: {spec: {limits: {maxNodes: 3}}}
";

#[tokio::test(start_paused = true)]
async fn values_are_examined_before_anything_is_installed() {
    let ward = Ward::new();
    let examined = async |text: &str| {
        let mut sources = ward.sources();
        sources.kube = None;
        sources.account = None;
        sources.objects = Values::read("values.yaml", text).unwrap().objects;
        examine(&sources, Vec::new()).await.unwrap()
    };
    let report = examined(VALUES).await;
    assert_eq!(ailments(&report), [], "{report}");
    assert!(report.summary.ok >= 4, "{report}");
    for (right, wrong, object, reason) in [
        ("name: k8s-node", "name: k8s-nod", DEBIAN, "TemplateMissing"),
        ("pool: k8s", "pool: k9s", HOME, "PoolMissing"),
        ("maxNodes: 3", "maxNodes: many", WORKERS, "InvalidSettings"),
        ("limits:", "limit:", WORKERS, "InvalidSettings"),
    ] {
        let report = examined(&VALUES.replace(right, wrong)).await;
        let expected = [(Error, object, reason)];
        assert_eq!(ailments(&report), expected, "{report}");
    }
}

/// What the controller makes is no finding: its machine, the Node, the books, the anchor.
#[tokio::test(start_paused = true)]
async fn a_world_in_which_kproxide_runs_machines_has_no_finding() {
    let ward = Ward::new();
    let joins = json!({ "template": {}, "guestExec": null });
    ward.edit("nodeclasses/debian", json!({ "join": joins }));
    let config = Config {
        anchor: true,
        ..config("kproxide-0")
    };
    run_with(&ward.lab, config, MACHINE).await;
    assert_eq!(ward.lab.kube.list("nodeclaims.kproxide.dev").len(), 1);
    assert_eq!(ward.lab.kube.list("nodes").len(), 1);
    let mut sources = ward.sources();
    sources.namespace = "kube-system".to_owned();
    let report = examine(&sources, Vec::new()).await.unwrap();
    assert_eq!(ailments(&report), [], "{report}");
    // A CSI driver that is in the cluster, and on no Node of the class.
    let kube = &ward.lab.kube;
    let driver = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "csi.a" }, "spec": {} });
    kube.create("csidrivers.storage.k8s.io", driver).unwrap();
    ward.edit(
        "nodeclasses/debian",
        json!({ "csi": [{ "driver": "csi.a" }] }),
    );
    let report = examine(&sources, Vec::new()).await.unwrap();
    let expected = [(Warning, DEBIAN, "CsiNodeMissing")];
    assert_eq!(ailments(&report), expected, "{report}");
    ward.edit("nodeclasses/debian", json!({ "csi": null }));
    // The values alone, as before an upgrade: its own machines and its anchor are no strangers'.
    let of_kind = |kind: &str| {
        let all = ward.lab.kube.list(&format!("{kind}.kproxide.dev"));
        let all = all.iter().map(|it| {
            let name = it["metadata"]["name"].as_str().unwrap();
            (name.to_owned(), json!({ "spec": it["spec"] }))
        });
        all.collect::<serde_json::Map<_, _>>()
    };
    let values = json!({ "clusters": of_kind("proxmoxclusters"), "nodeClasses": of_kind("nodeclasses"),
        "nodePools": of_kind("nodepools") });
    let before = || {
        let mut sources = ward.sources();
        (sources.kube, sources.account) = (None, None);
        sources.objects = Values::read("values.yaml", &values.to_string())
            .unwrap()
            .objects;
        sources
    };
    let report = examine(&before(), Vec::new()).await.unwrap();
    assert_eq!(ailments(&report), [], "{report}");
    let claim = &ward.lab.kube.list("nodeclaims.kproxide.dev")[0];
    let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
    for known in [&*name, "kproxide-anchor"] {
        assert!(report.to_string().contains(known), "{report}");
    }
    // That of another installation is one all the same.
    ward.lab.pve.human_clones_vm(9100, 300, "theirs").unwrap();
    ward.lab.pve.human_sets_pool(300, Some("k8s")).unwrap();
    sleep(BROADCAST).await;
    let report = examine(&before(), Vec::new()).await.unwrap();
    assert_eq!(
        ailments(&report),
        [(Warning, HOME, "PoolShared")],
        "{report}"
    );
    let of_pool = report
        .findings
        .iter()
        .find(|it| it.reason.word == "PoolShared");
    let said = &of_pool.unwrap().message;
    assert!(
        said.contains("300 (theirs)") && !said.contains(&name),
        "{said}"
    );
    ward.lab.pve.human_destroys(300).unwrap();
    sleep(BROADCAST).await;
    // Somebody else's books, so to speak.
    let claim = &ward.lab.kube.list("nodeclaims.kproxide.dev")[0];
    let name = claim["metadata"]["name"].as_str().unwrap();
    let patch = json!({ "metadata": { "finalizers": null } });
    let kube = &ward.lab.kube;
    kube.patch("nodeclaims.kproxide.dev", "", "", name, patch)
        .unwrap();
    kube.delete("nodeclaims.kproxide.dev", "", name).unwrap();
    kube.delete("ledgers.kproxide.dev", "", "kproxide").unwrap();
    let report = examine(&sources, Vec::new()).await.unwrap();
    let node = format!("Node/{name}");
    let expected = [
        (Warning, HOME, "PoolShared"),
        (Warning, &*node, "NodeWithoutClaim"),
    ];
    assert_eq!(ailments(&report), expected, "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_file_that_cannot_be_used_is_told() {
    let ward = Ward::new();
    let files = [("mine".into(), PolicyFile::alone(b"no WebAssembly"))];
    ward.policies.sync(files.into()).await;
    let uses = json!({ "policies": { "hostSelection": { "use": "mine" } } });
    ward.edit("nodepools/workers", uses);
    let report = ward.examined().await;
    let expected = [(Error, WORKERS, "PolicyRefused")];
    assert_eq!(ailments(&report), expected, "{report}");
    ward.policies.sync(PolicyFiles::new()).await;
    ward.edit("nodepools/workers", json!({ "policies": null }));
    is_well(&ward, "without the file").await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_off_is_told() {
    let ward = Ward::new();
    let late: jiff::Timestamp = EPOCH.parse().unwrap();
    let late = late + jiff::SignedDuration::from_mins(7);
    *ward.clock.lock().unwrap() = Clock::starting_at(late);
    let report = ward.examined().await;
    assert_eq!(
        ailments(&report),
        [(Error, "Clock", "ClockOff")],
        "{report}"
    );
    assert!(report.to_string().contains("seen from a test"), "{report}");
}

/// A server's clock is 41 seconds slow, then fast, then 29 seconds. The other server's is right.
#[tokio::test(start_paused = true)]
async fn a_clock_of_a_proxmox_server_that_is_off_by_more_than_30_seconds_is_told() {
    let ward = Ward::new();
    for (seconds, words) in [
        (-41, "s behind the one here"),
        (41, "s ahead of the one here"),
        (29, ""),
    ] {
        let now = ward.clock.lock().unwrap().now();
        let there = now + jiff::SignedDuration::from_secs(seconds);
        ward.wires(|wires| wires.time = Some(("https://pve2:8006".to_owned(), there)));
        let report = ward.examined().await;
        if words.is_empty() {
            assert_eq!(ailments(&report), [], "{report}");
            continue;
        }
        let expected = [(Warning, HOME, "ProxmoxClockOff")];
        assert_eq!(ailments(&report), expected, "{report}");
        let found = report.findings.iter().find(|it| it.level == Warning);
        let said = &found.unwrap().message;
        // Servers tell whole seconds.
        let begin = "endpoint https://pve2:8006 answers, and its clock is 4";
        assert!(said.starts_with(begin) && said.ends_with(words), "{said}");
    }
}
