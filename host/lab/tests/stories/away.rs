//! A Proxmox cluster that is away: what its pools say, and that a change of its credentials is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use kproxide_simulator::faults::{Broken, Dialect, Fault, Faults};
use kproxide_simulator::matcher::Matcher;
use kproxide_simulator::pve::Pve;
use serde_json::json;
use tokio::time::sleep;

use super::conditions::*;
use super::degraded::lively;
use kproxide_controller::observe::Connect;
use kproxide_kube::client::Client;
use kproxide_lab::furnished;
use kproxide_lab::{Setting, config};
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client as PveClient;
use kproxide_pve::transport::{Endpoint, TransportError};

/// Connections to a Proxmox cluster through which faults can be put, with credentials that can be wrong.
fn connection(pve: &Pve, faults: &Faults, right: &Arc<AtomicBool>) -> PveClient {
    let service = faults.around(pve.service(), Dialect::Proxmox);
    let service = tower::ServiceExt::map_err(service, |broken: Broken| {
        TransportError::Broken(broken.into())
    });
    let right = right.clone();
    let credentials = Arc::new(move || {
        let secret = match right.load(Ordering::Relaxed) {
            true => "secret",
            false => "wrong",
        };
        Credentials::token("kproxide@pve!ci", secret)
    });
    let endpoint = Endpoint::new("lab", service);
    PveClient::new(
        vec![endpoint],
        credentials,
        kproxide_pve::limits::Concurrency::default(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_away_makes_its_pools_degraded_or_not_ready_after_a_minute() {
    let lab = furnished(Setting::new(1, 2), json!({}), lively());
    let of_home = json!({ "nodeClass": "debian", "clusters": ["home"] });
    let (away, only) = (
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "ProxmoxCluster", "metadata": { "name": "away" },
            "spec": { "endpoints": ["https://away:8006"], "tls": { "insecureSkipVerify": true },
                "credentials": "away", "pool": "k8s", "vmidRange": { "first": 600, "last": 699 } },
        }),
        json!({
            "apiVersion": "kproxide.dev/v1alpha1", "kind": "NodePool", "metadata": { "name": "only" }, "spec": of_home,
        }),
    );
    lab.apply([
        ("proxmoxclusters.kproxide.dev", away),
        ("nodepools.kproxide.dev", only),
    ]);
    const ONLY: Object = ("nodepools", "NodePool", "only");
    const AWAY: Object = ("proxmoxclusters", "ProxmoxCluster", "away");
    let (faults, nothing) = (Faults::new(1), Faults::new(2));
    let (right, wrong) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let connect: Connect = {
        let (pve, faults, wrong) = (lab.pve.clone(), faults.clone(), wrong.clone());
        Arc::new(move |of, _| {
            Ok(match &*of.credentials {
                "away" => connection(&pve, &nothing, &wrong),
                _ => connection(&pve, &faults, &right),
            })
        })
    };
    let kube = Client::from_service(lab.kube.as_user("kproxide-0").service());
    let (app, host) = lab
        .host_over("kproxide-0", config("kproxide-0"), kube, connect)
        .unwrap();
    let story = async {
        // Refused credentials do not pass by themselves.
        sleep(SOON).await;
        says(
            &lab,
            AWAY,
            "Ready",
            "False",
            "CredentialsRefused",
            "check token-id",
        );
        says(
            &lab,
            POOL,
            "Degraded",
            "True",
            "ClusterNotReady",
            "ProxmoxCluster away (CredentialsRefused)",
        );
        is(&lab, POOL, "Ready", "True");
        wrong.store(true, Ordering::Relaxed);
        sleep(LONG).await;
        is(&lab, AWAY, "Ready", "True");
        is(&lab, POOL, "Degraded", "False");
        assert_eq!(told(&lab, POOL, "NotDegraded").len(), 1);

        // The next edit of its Secret is wrong again. It stays Ready, and the other cluster is not meant.
        is(&lab, AWAY, "TokenFits", "True");
        wrong.store(false, Ordering::Relaxed);
        sleep(LONG).await;
        is(&lab, AWAY, "Ready", "True");
        let unusable = "NewCredentialsUnusable";
        says(
            &lab,
            AWAY,
            "TokenFits",
            "False",
            unusable,
            "kproxide@pve!ci",
        );
        is(&lab, CLUSTER, "TokenFits", "True");
        assert_eq!(told(&lab, AWAY, unusable).len(), 1);
        assert_eq!(told(&lab, CLUSTER, unusable), []);
        wrong.store(true, Ordering::Relaxed);
        sleep(LONG).await;
        is(&lab, AWAY, "TokenFits", "True");

        // What passes within a minute is no news.
        let looks = Matcher::new(Method::GET, "/cluster/status");
        faults.inject(looks.clone(), Fault::Fail, u32::MAX);
        sleep(SOON).await;
        is(&lab, CLUSTER, "Ready", "True");
        is(&lab, ONLY, "Ready", "True");
        faults.calm();
        sleep(SOON).await;
        assert_eq!(told(&lab, CLUSTER, "Unreachable"), []);

        faults.inject(looks, Fault::Fail, u32::MAX);
        sleep(3 * SOON).await;
        says(
            &lab,
            CLUSTER,
            "Ready",
            "False",
            "Unreachable",
            "cluster/status",
        );
        says(
            &lab,
            ONLY,
            "Ready",
            "False",
            "NoUsableCluster",
            "ProxmoxCluster home (Unreachable)",
        );
        is(&lab, POOL, "Ready", "True");
        is(&lab, POOL, "Degraded", "True");
        let warned = told(&lab, CLUSTER, "Unreachable");
        assert_eq!(warned[0].0, "Warning");
        faults.calm();
        sleep(LONG).await;
        is(&lab, CLUSTER, "Ready", "True");
        is(&lab, ONLY, "Ready", "True");
        is(&lab, POOL, "Degraded", "False");

        // Proxmox states it, so it is no silence that may end.
        lab.pve.set_quorate(false);
        sleep(SOON).await;
        says(&lab, CLUSTER, "Ready", "False", "NoQuorum", "has no quorum");
        lab.pve.set_quorate(true);
        sleep(LONG).await;
        is(&lab, CLUSTER, "Ready", "True");
        host.stop.cancel();
    };
    let ((), ended) = tokio::join!(story, app.run());
    ended.unwrap();
}
