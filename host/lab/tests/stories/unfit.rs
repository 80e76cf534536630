//! A process that can do nothing more gives the Lease away, and ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::*;
use kproxide_controller::app::{App, AppError};
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::{Endpoint, TransportError};

/// As `kproxide run` runs it, but that everything is in one thread. `errno`: what opening something says, 0 for a success.
fn start(app: App, errno: &Arc<AtomicI32>) -> JoinSet<Result<(), AppError>> {
    let errno = errno.clone();
    let fitness = app.fitness(Arc::new(move || match errno.load(Ordering::Relaxed) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }));
    let mut watched = JoinSet::new();
    watched.spawn(async move {
        let mut running = JoinSet::new();
        running.spawn(app.run());
        fitness.watch(running).await
    });
    watched
}

fn holder(lab: &Lab) -> String {
    let lease = lab
        .kube
        .get("leases.coordination.k8s.io", "kube-system", "kproxide");
    let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
    holder
        .unwrap_or_default()
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn s2_a_process_without_descriptors_leaves_the_lease_to_another() {
    let lab = lab();
    let errno = Arc::new(AtomicI32::new(0));
    let (app, _host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let mut first = start(app, &errno);
    sleep(Duration::from_secs(30)).await;
    let (app, _standby) = lab.host("kproxide-1", config("kproxide-1")).unwrap();
    let _second = start(app, &Arc::default());
    sleep(Duration::from_secs(30)).await;
    assert!(holder(&lab).starts_with("kproxide-0_"), "{}", holder(&lab));

    // Not for a minute yet, nor for an error that another process would have too.
    for (code, seconds) in [
        (libc::EMFILE, 50),
        (0, 20),
        (libc::ENFILE, 50),
        (libc::EACCES, 600),
    ] {
        errno.store(code, Ordering::Relaxed);
        sleep(Duration::from_secs(seconds)).await;
    }
    assert!(holder(&lab).starts_with("kproxide-0_"), "{}", holder(&lab));

    errno.store(libc::EMFILE, Ordering::Relaxed);
    let ended = first.join_next();
    let ended = tokio::time::timeout(Duration::from_secs(70), ended).await;
    let problem = ended.unwrap().unwrap().unwrap().unwrap_err().to_string();
    for part in ["for 60 s", "could be opened", "Too many open files"] {
        assert!(problem.contains(part), "{problem}");
    }
    sleep(Duration::from_secs(20)).await;
    assert!(holder(&lab).starts_with("kproxide-1_"), "{}", holder(&lab));
}

#[tokio::test(start_paused = true)]
async fn s2_descriptors_that_come_and_go_do_not_keep_the_lease() {
    let lab = lab();
    let errno = Arc::new(AtomicI32::new(0));
    let (app, _host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let mut running = start(app, &errno);
    let come_and_go = async {
        for _ in 0..10 {
            errno.store(libc::EMFILE, Ordering::Relaxed);
            sleep(Duration::from_secs(25)).await;
            errno.store(0, Ordering::Relaxed);
            sleep(Duration::from_secs(5)).await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = running.join_next() => ended,
        () = come_and_go => panic!("it keeps the Lease"),
    };
    let problem = ended.unwrap().unwrap().unwrap_err().to_string();
    assert!(problem.contains("for 60 s hardly"), "{problem}");
}

/// A machine is on its way when Proxmox falls silent: steps, inventories and looks for orphans all wait for it.
#[tokio::test(start_paused = true)]
async fn s2_a_silent_proxmox_is_no_reason_to_leave() {
    let lab = lab();
    let silent = Arc::new(AtomicBool::new(false));
    let connect: Connect = {
        let (pve, silent) = (lab.pve.clone(), silent.clone());
        Arc::new(move |_, concurrency| {
            let (pve, silent) = (pve.clone(), silent.clone());
            let service = tower::service_fn(move |request| {
                let (pve, silent) = (pve.service(), silent.clone());
                async move {
                    if silent.load(Ordering::Relaxed) {
                        return std::future::pending().await;
                    }
                    pve.oneshot(request).await.map_err(|never| match never {})
                }
            });
            let endpoint = Endpoint::new("lab", service.map_err(|broken: TransportError| broken));
            let credentials = Arc::new(|| Credentials::token("kproxide@pve!ci", "secret"));
            Ok(PveClient::new(vec![endpoint], credentials, concurrency))
        })
    };
    let kube = Client::from_service(lab.kube.as_user("kproxide-0").service());
    let config = config("kproxide-0");
    let (app, host) = lab.host_over("kproxide-0", config, kube, connect).unwrap();
    let mut running = start(app, &Arc::default());
    sleep(Duration::from_secs(30)).await;
    assert_eq!(lab.kube.list("nodeclaims.kproxide.dev").len(), 1);
    silent.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        sleep(Duration::from_secs(30)).await;
        assert!(holder(&lab).starts_with("kproxide-0_"), "{}", holder(&lab));
    }
    host.stop.cancel();
    running.join_next().await.unwrap().unwrap().unwrap();
}

/// The loop hangs while it computes: nothing polls it any more, but the tasks beside it go on, and renew the Lease.
#[tokio::test(start_paused = true)]
async fn s2_a_process_whose_loop_hangs_leaves_the_lease() {
    let lab = lab();
    let (app, _host) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let fitness = app.fitness(Arc::new(|| Ok(())));
    let mut running = JoinSet::new();
    running.spawn(async move {
        let mut run = std::pin::pin!(app.run());
        let _ = tokio::time::timeout(Duration::from_secs(60), &mut run).await;
        std::future::pending().await
    });
    let watched = fitness.watch(running);
    let mut first = JoinSet::new();
    first.spawn(watched);
    sleep(Duration::from_secs(30)).await;
    let (app, _standby) = lab.host("kproxide-1", config("kproxide-1")).unwrap();
    let _second = start(app, &Arc::default());
    sleep(Duration::from_secs(300)).await;
    assert!(holder(&lab).starts_with("kproxide-0_"), "{}", holder(&lab));
    sleep(Duration::from_secs(60)).await;
    assert!(holder(&lab).starts_with("kproxide-1_"), "{}", holder(&lab));
    let problem = first.join_next().await.unwrap().unwrap().unwrap_err();
    let problem = problem.to_string();
    let expected = "the loop has not turned for 300 s";
    assert!(problem.contains(expected), "{problem}");
}

/// In a quiet cluster nothing happens between two polls.
#[tokio::test(start_paused = true)]
async fn a_long_poll_interval_makes_no_process_look_dead() {
    let lab = furnished(Setting::new(1, 1), json!({}), json!({}));
    let mut config = config("kproxide-0");
    config.timing.poll_interval = Duration::from_secs(30 * 60);
    let (app, host) = lab.host("kproxide-0", config).unwrap();
    let turned = app.vitals().turned;
    let story = async {
        for _ in 0..29 {
            sleep(Duration::from_secs(59)).await;
            assert!(turned.borrow().elapsed() < Duration::from_secs(30));
        }
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
