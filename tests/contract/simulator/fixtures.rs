//! The worlds in which the answers were recorded, and in which order things happened in them.

use std::time::Duration;

use kproxide_simulator::pve::Pve;
use kproxide_simulator::pve::topology::VmSpec;
use kproxide_simulator::rng::Spread;

use super::lab::{bare, lab, local_source, machine, pair, source, world};
use super::replay::{As, Fixture, Replay, finish, pass};

pub(crate) const ALL: &[(&str, Fixture)] = &[
    ("one server", |replay| Box::pin(one_server(replay))),
    ("one server, machine 101", |replay| {
        Box::pin(one_machine(replay))
    }),
    ("one server, locked machine", |replay| {
        Box::pin(locked_machine(replay))
    }),
    ("pool token", |replay| Box::pin(pool_token(replay))),
    ("storage locks", |replay| Box::pin(storage_locks(replay))),
    ("status broadcasts", |replay| {
        Box::pin(status_broadcasts(replay))
    }),
    ("two servers", |replay| Box::pin(two_servers(replay))),
    ("two servers, quorum just lost", |replay| {
        Box::pin(quorum_just_lost(replay))
    }),
    ("two servers, running machine", |replay| {
        Box::pin(running_machine(replay))
    }),
    ("two servers, quorum lost", |replay| {
        Box::pin(quorum_lost(replay))
    }),
];

const ADMIN: As = As("aut@pve!full=secret");
const POOL: As = As("pooluser@pve!tt=secret");
const STRANGER: As = As("stranger@pve!none=secret");
const SEPARATED: As = As("aut@pve!bare=secret");

async fn one_server(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    topology.vms = vec![
        bare(100, "t1"),
        VmSpec {
            template: false,
            ..source(9000, "tmpl", Some("bar;foo"))
        },
    ];
    let pve = world(topology);
    replay
        .check(
            &pve,
            ADMIN,
            "version status nodes nodestatus nodestatus-nonode",
        )
        .await;
    replay.check(&pve, ADMIN, "resources-badtype").await;
    replay
        .check(
            &pve,
            ADMIN,
            "notfound badmethod get-with-body chunked task-bad storage",
        )
        .await;
    replay.check(&pve, ADMIN, "tmplconf").await;
    replay
        .check(&pve, ADMIN, "vm-missing-status clone-missing-source")
        .await;
    replay
        .check(&pve, As("aut@pve!full=wrong"), "bad-token")
        .await;
    replay.check(&pve, STRANGER, "forbidden").await;
    replay.check(&pve, SEPARATED, "privsep-noacl").await;

    let mut topology = lab(1);
    topology.vms = vec![bare(100, "t1")];
    replay.check(&world(topology), ADMIN, "qemulist").await;
}

async fn one_machine(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    // Slow enough to look at a clone under way.
    topology.timings.local.lock = Spread::exactly(0.2);
    topology.vms = vec![source(9000, "tmpl", Some("bar;foo"))];
    let pve = world(topology);
    replay.check(&pve, ADMIN, "clone").await;
    tick().await;
    replay
        .check(
            &pve,
            ADMIN,
            "resources-during clone-task config pool clone-exists",
        )
        .await;
    replay.check(&pve, ADMIN, "clone-pool-missing").await;
    replay
        .check(&pve, ADMIN, "clone-target-nonode resources-after")
        .await;
    replay
        .check(
            &pve,
            ADMIN,
            "config-baddigest config-badtag config-empty config-affinity",
        )
        .await;
    replay
        .check(&pve, ADMIN, "config-hookscript skiplock config-put")
        .await;
    replay
        .act(&pve, ADMIN, "PUT /nodes/pve1/qemu/101/config -d cores=2")
        .await;
    replay
        .check(
            &pve,
            ADMIN,
            "config-after config-json config-post config-post-task",
        )
        .await;
    replay.check(&pve, ADMIN, "config-post-task-log").await;
    replay
        .check(
            &pve,
            ADMIN,
            "resize resize-task resize-task-log resize-shrink",
        )
        .await;
    replay.check(&pve, ADMIN, "resize-shrink-task").await;
    replay
        .check(
            &pve,
            ADMIN,
            "resize-shrink-task-log resize-nodisk resize-nodisk-task-log",
        )
        .await;
    replay
        .act(
            &pve,
            ADMIN,
            "PUT /nodes/pve1/qemu/101/config -d memory=2048",
        )
        .await;
    replay
        .check(&pve, ADMIN, "start start-task start-task-log")
        .await;
    let again = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/101/status/start")
        .await;
    replay.alias("start-again-task", &again);
    replay
        .check(
            &pve,
            ADMIN,
            "start-again-task start-again-task-log current delete-running",
        )
        .await;
    replay.check(&pve, ADMIN, "delete").await;
    replay
        .check(
            &pve,
            ADMIN,
            "agent-ping agent-exec agent-exec-status agent-hostname",
        )
        .await;
    replay.check(&pve, ADMIN, "agent-net").await;
    replay
        .check(
            &pve,
            ADMIN,
            "shutdown shutdown-task shutdown-task-log stop-stopped",
        )
        .await;
    replay.check(&pve, ADMIN, "stop-stopped-task").await;
    replay
        .check(
            &pve,
            ADMIN,
            "stop-stopped-task-log protect delete-protected config-numa",
        )
        .await;
}

async fn locked_machine(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    topology.vms = vec![source(9000, "tmpl", Some("bar;foo"))];
    let pve = world(topology);
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/clone -d newid=101")
        .await;
    finish(&pve, upid.as_str().unwrap()).await;
    pve.human_sets(101, "lock", Some("clone")).unwrap();
    replay
        .check(&pve, ADMIN, "locked-put locked-start locked-start-task")
        .await;
    replay.check(&pve, ADMIN, "locked-start-task-log").await;
    replay.check(&pve, ADMIN, "locked-delete").await;
    tick().await;
    replay.check(&pve, ADMIN, "delete-template-in-use").await;
    pve.human_sets(101, "lock", None).unwrap();
    pve.human_holds_lock(101, Duration::from_secs(15)).unwrap();
    tick().await;
    replay.check(&pve, ADMIN, "flock-put").await;
    let start = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/101/status/start")
        .await;
    replay.alias("flock-start-task", &start);
    replay
        .check(&pve, ADMIN, "flock-start-task flock-start-task-log tasks")
        .await;
}

async fn pool_token(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    topology.timings.local.lock = Spread::exactly(0.2);
    topology.allowed_tags = Some(vec!["a".into(), "owned".into()]);
    topology.vms = vec![
        VmSpec {
            template: false,
            ..source(9000, "tmpl", Some("tmpl"))
        },
        local_source(9001),
    ];
    let pve = world(topology);
    replay
        .check(&pve, ADMIN, "template template-task template-task-log")
        .await;
    replay
        .check(&pve, ADMIN, "template2 template2-task template2-task-log")
        .await;
    pve.human_destroys(9001).unwrap();
    replay
        .check(
            &pve,
            POOL,
            "pool-permissions pool-node-status pool-clone-nopool",
        )
        .await;
    let upid = replay
        .act(
            &pve,
            POOL,
            "POST /nodes/pve1/qemu/9000/clone -d newid=301 -d name=p1 -d pool=k8s",
        )
        .await;
    replay.alias("pool-clone-task-log", &upid);
    tick().await;
    replay
        .check(&pve, POOL, "pool-config-during pool-res-during")
        .await;
    replay.check(&pve, ADMIN, "admin-config-during").await;
    replay
        .check(
            &pve,
            POOL,
            "pool-clone-task-log pool-resources-all pool-clone2",
        )
        .await;
    replay.check(&pve, POOL, "pool-clone2-task").await;
    replay.check(&pve, POOL, "tag-listed").await;
    // Then the tags of the data centre were changed: `owned` became a registered one.
    let mut topology = lab(1);
    topology.registered_tags = vec!["owned".into()];
    topology.vms = vec![VmSpec {
        pool: Some("k8s".into()),
        ..source(310, "p2", Some("tmpl"))
    }];
    replay.check(&world(topology), POOL, "tag-registered").await;
}

async fn storage_locks(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    topology.timings.local.lock = Spread::exactly(4.0);
    topology.vms = vec![
        source(9000, "tmpl", Some("tmpl")),
        VmSpec {
            template: true,
            ..local_source(9001)
        },
    ];
    let pve = world(topology);
    replay.check(&pve, ADMIN, "lk-local1 lk-local2").await;
    for (new, name) in [(403, "lk-local3-task"), (404, "lk-local4-task")] {
        let upid = replay
            .act(
                &pve,
                ADMIN,
                &format!("POST /nodes/pve1/qemu/9001/clone -d newid={new}"),
            )
            .await;
        replay.alias(name, &upid);
    }
    replay.check(&pve, ADMIN, "lk-local5").await;
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9001/clone -d newid=406")
        .await;
    replay.alias("lk-local6-task-log", &upid);
    replay
        .check(
            &pve,
            ADMIN,
            "lk-local1-task lk-local2-task lk-local2-task-log",
        )
        .await;
    replay.check(&pve, ADMIN, "lk-local3-task").await;
    replay
        .check(
            &pve,
            ADMIN,
            "lk-local3-task-log lk-local4-task lk-local5-task",
        )
        .await;
    replay.check(&pve, ADMIN, "lk-local5-task-log").await;
    replay.check(&pve, ADMIN, "lk-local6-task-log").await;
    // The third clone's polls came at the right moments, so it goes second here.
    replay
        .check(&pve, ADMIN, "lk-shared1 lk-shared3 lk-shared2")
        .await;
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/clone -d newid=504")
        .await;
    replay.alias("lk-shared4-task-log", &upid);
    replay.check(&pve, ADMIN, "lk-shared5").await;
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/clone -d newid=506")
        .await;
    replay.alias("lk-shared6-task-log", &upid);
    replay
        .check(
            &pve,
            ADMIN,
            "lk-shared1-task lk-shared1-task-log lk-shared2-task",
        )
        .await;
    replay.check(&pve, ADMIN, "lk-shared3-task").await;
    replay
        .check(
            &pve,
            ADMIN,
            "lk-shared3-task-log lk-shared4-task-log lk-shared5-task",
        )
        .await;
    replay.check(&pve, ADMIN, "lk-shared5-task-log").await;
    replay.check(&pve, ADMIN, "lk-shared6-task-log").await;
}

async fn status_broadcasts(replay: &mut Replay<'_>) {
    let mut topology = lab(1);
    topology.timings.broadcast_s = 10.0;
    topology.vms = vec![
        VmSpec {
            pool: Some("k8s".into()),
            template: false,
            ..source(301, "p1", Some("tmpl"))
        },
        VmSpec {
            template: false,
            ..local_source(401)
        },
        VmSpec {
            template: false,
            ..local_source(402)
        },
        VmSpec {
            template: false,
            ..local_source(403)
        },
        VmSpec {
            template: false,
            ..source(503, "Copy-of-VM-tmpl", Some("tmpl"))
        },
        source(9000, "tmpl", Some("tmpl")),
        VmSpec {
            template: true,
            name: "tmpl2".into(),
            ..local_source(9001)
        },
    ];
    let pve = world(topology);
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/clone -d newid=501")
        .await;
    finish(&pve, upid.as_str().unwrap()).await;
    replay.check(&pve, ADMIN, "st-start st-start-task").await;
    pass(Duration::from_secs(20)).await;
    replay
        .check(&pve, ADMIN, "st-nodes st-resources st-stop st-stop-task")
        .await;
    let upid = replay
        .act(&pve, ADMIN, "DELETE /nodes/pve1/qemu/301?purge=1")
        .await;
    replay.alias("delete-ok-task", &upid);
    replay
        .check(
            &pve,
            ADMIN,
            "delete-ok-task delete-ok-task-log delete-ok-res",
        )
        .await;
    pve.set_disks_stuck(501, true);
    pve.human_sets(501, "ide2", None).unwrap();
    replay
        .check(
            &pve,
            ADMIN,
            "delete-warn delete-warn-task delete-warn-task-log",
        )
        .await;
}

async fn two_servers(replay: &mut Replay<'_>) {
    let pve = world(pair());
    replay.check(&pve, ADMIN, "c2-status c2-nodes").await;
    replay.check(&pve, ADMIN, "c2-template").await;
    replay
        .check(
            &pve,
            ADMIN,
            "c2-template-task c2-clone-target c2-clone-target-task",
        )
        .await;
    replay.check(&pve, ADMIN, "c2-clone-target-task-log").await;
    replay
        .check(
            &pve,
            ADMIN,
            "c2-clone-target-res2 c2-wrongnode-config c2-rightnode-start",
        )
        .await;
    replay
        .check(
            &pve,
            ADMIN,
            "c2-rightnode-start-task c2-rightnode-start-task-log",
        )
        .await;
    replay.check(&pve, ADMIN, "c2-clone-taken-elsewhere").await;
    replay
        .check(&pve, ADMIN, "c2-clone-taken-elsewhere-task")
        .await;
    replay
        .check(&pve, ADMIN, "c2-clone-taken-elsewhere-task-log")
        .await;
    let first = "POST /nodes/pve1/qemu/9000/clone -d newid=102 -d name=r1";
    let upid = replay.race(&pve, ADMIN, first, "c2-race2").await;
    replay.alias("c2-race1-task", &upid);
    replay
        .check(&pve, ADMIN, "c2-race1-task c2-race1-task-log")
        .await;
    parallel_clones(replay, &pve).await;
    replay
        .check(&pve, ADMIN, "c2-proxied-vm-missing c2-proxied-nonode")
        .await;
    pve.set_hypervisor_hung("pve2", true);
    replay.check(&pve, ADMIN, "c2-hung-proxied").await;
    pve.set_hypervisor_online("pve2", false);
    replay.check(&pve, ADMIN, "c2-unreachable-proxied").await;
    pve.set_hypervisor_online("pve2", true);
    replay.check(&pve, ADMIN, "c2-heal-status").await;
}

/// Twelve clones of one template on a shared storage at the same time.
async fn parallel_clones(replay: &mut Replay<'_>, pve: &Pve) {
    replay
        .check(
            pve,
            ADMIN,
            "c2-par1 c2-par2 c2-par3 c2-par4 c2-par5 c2-par6 c2-par7",
        )
        .await;
    replay.check(pve, ADMIN, "c2-par8").await;
    let upid = replay
        .act(
            pve,
            ADMIN,
            "POST /nodes/pve1/qemu/9000/clone -d newid=209 -d name=p9",
        )
        .await;
    replay.alias("c2-par9-task", &upid);
    replay.check(pve, ADMIN, "c2-par10 c2-par11 c2-par12").await;
    let tasks =
        ["2", "3", "4", "5", "6", "8", "9", "10", "11", "12"].map(|n| format!("c2-par{n}-task"));
    let logs =
        ["1", "2", "3", "5", "6", "9", "10", "11", "12"].map(|n| format!("c2-par{n}-task-log"));
    for name in tasks.iter().chain(&logs) {
        replay.check(pve, ADMIN, name).await;
    }
}

async fn quorum_just_lost(replay: &mut Replay<'_>) {
    let mut topology = pair();
    topology.timings.local.start = Spread::exactly(1.0);
    topology.vms = vec![
        source(9000, "tmpl", None),
        machine(201, "p1"),
        machine(202, "p2"),
    ];
    let pve = world(topology);
    pve.set_quorate(false);
    replay
        .check(
            &pve,
            ADMIN,
            "c2-nq-status c2-nq-nextid c2-nq-config c2-nq-clone",
        )
        .await;
    replay.check(&pve, ADMIN, "c2-nq-start").await;
    tick().await;
    replay
        .check(
            &pve,
            ADMIN,
            "c2-nq-delete c2-nq-delete-task-log c2-nq-resize",
        )
        .await;
    replay.check(&pve, ADMIN, "c2-nq-resize-task").await;
    replay
        .check(&pve, ADMIN, "c2-nq-resize-task-log c2-nq-pool")
        .await;
}

async fn running_machine(replay: &mut Replay<'_>) {
    let pve = world(pair());
    replay
        .check(
            &pve,
            ADMIN,
            "c3-start c3-start-task-log c3-hotplug-cores c3-pending",
        )
        .await;
    replay.check(&pve, ADMIN, "c3-pool-full").await;
    replay
        .check(
            &pve,
            ADMIN,
            "c3-ha-none c3-start-template-lock c3-content c3-content-delete",
        )
        .await;
    pve.set_agent_ready(9000, true).unwrap();
    replay
        .check(&pve, ADMIN, "c3-agent-exec c3-agent-exec-json")
        .await;
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/status/stop")
        .await;
    replay.alias("c3-stop-task", &upid);
    replay
        .check(
            &pve,
            ADMIN,
            "c3-stop-task c3-stop-task-log c3-template c3-template-task",
        )
        .await;
    replay.check(&pve, ADMIN, "c3-template-task-log").await;
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/status/start")
        .await;
    replay.alias("c3-start-template-task", &upid);
    replay
        .check(
            &pve,
            ADMIN,
            "c3-start-template-task c3-start-template-task-log",
        )
        .await;
    replay.check(&pve, ADMIN, "c3-clone201").await;
    replay
        .check(
            &pve,
            ADMIN,
            "c3-clone201-task c3-clone201-task-log c3-storage-content",
        )
        .await;
    replay.check(&pve, ADMIN, "c3-tasks-cluster").await;

    let login = replay
        .act(
            &pve,
            As(""),
            "POST /access/ticket -d username=aut@pve -d password=password",
        )
        .await;
    replay.secret("<ticket>", &login["ticket"]);
    replay.secret("<csrf>", &"0:wrong".into());
    replay
        .check(
            &pve,
            As(""),
            "c3-ticket-get c3-ticket-put-nocsrf c3-ticket-put-badcsrf",
        )
        .await;
}

async fn quorum_lost(replay: &mut Replay<'_>) {
    let mut topology = pair();
    topology.vms[0].template = true;
    let pve = world(topology);
    let upid = replay
        .act(&pve, ADMIN, "POST /nodes/pve1/qemu/9000/clone -d newid=201")
        .await;
    finish(&pve, upid.as_str().unwrap()).await;
    replay
        .act(&pve, ADMIN, "PUT /nodes/pve1/qemu/201/config -d cores=2")
        .await;
    pve.set_quorate(false);
    pass(Duration::from_secs(30)).await;
    replay
        .check(
            &pve,
            ADMIN,
            "c3-nq-status c3-nq-clone c3-nq-config c3-nq-start",
        )
        .await;
    replay.check(&pve, ADMIN, "c3-nq-nextid").await;
    replay
        .check(
            &pve,
            ADMIN,
            "c3-nq-delete c3-nq-delete-task c3-nq-delete-task-log",
        )
        .await;
    pve.set_quorate(true);
    replay
        .check(&pve, ADMIN, "c3-heal-status c3-heal-201")
        .await;
}

/// Lets the tasks begin that were just started.
async fn tick() {
    pass(Duration::from_millis(300)).await;
}
