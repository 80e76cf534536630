//! `kproxide explain` as somebody asks it who has a kubeconfig: the replica that leads answers, through the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tokio::time::sleep;
use tower::{BoxError, ServiceExt as _};

use kproxide_controller::admin;
use kproxide_kube::client::Client;
use kproxide_lab::{Lab, Setting, config};
use kproxide_lab::{MACHINE, furnished};
use kproxide_policy::{Engine, Execution, Library};
use kproxide_tools::manifest::everything;
use kproxide_tools::whatif::{
    self, Changes, Controller, Explanation, Input, NoAnswer, Subject, Told,
};

/// The admin endpoints of each pod.
pub(super) type Pods = Arc<Mutex<BTreeMap<&'static str, Router>>>;

/// The simulated API server, with a proxy to pods for those who may use it.
pub(super) fn person(lab: &Lab, pods: &Pods, may_use_proxy: bool) -> Client {
    let api = lab.kube.as_user("person").service();
    let pods = pods.clone();
    let serve = move |request: Request<::kube::client::Body>| {
        let (api, pods) = (api.clone(), pods.clone());
        async move {
            let path = request.uri().path().to_owned();
            let prefix = "/api/v1/namespaces/kube-system/pods/";
            let Some((pod, path)) = path
                .strip_prefix(prefix)
                .and_then(|asked| asked.split_once("/proxy"))
            else {
                return whole(api.oneshot(request).await?).await;
            };
            let pod = pods.lock().unwrap().get(pod).cloned();
            let refused = |status: u16, message: &str| -> Result<_, BoxError> {
                let body = json!({"kind": "Status", "code": status, "message": message});
                let response = Response::builder().status(status);
                Ok(response.body(Full::new(Bytes::from(body.to_string())))?)
            };
            match pod {
                _ if !may_use_proxy => refused(403, "person cannot get pods/proxy"),
                None => refused(404, "there is no such pod"),
                Some(router) => {
                    whole(
                        router
                            .oneshot(Request::get(path).body(Body::empty())?)
                            .await?,
                    )
                    .await
                }
            }
        }
    };
    Client::from_service(tower::service_fn(serve))
}

async fn whole<B>(response: Response<B>) -> Result<Response<Full<Bytes>>, BoxError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(Into::into)?.to_bytes();
    Ok(Response::from_parts(parts, Full::new(body)))
}

pub(super) async fn told(client: &Client) -> Result<(String, Told), NoAnswer> {
    let leader = Controller::leading(client.clone(), "kube-system", "kproxide", None).await?;
    Ok((leader.to_string(), leader.tell().await?))
}

pub(super) async fn explained(told: Told, subject: Subject) -> Explanation {
    let policies = Library::new(Engine::new(Execution::Inline).unwrap());
    let changes = Changes::default();
    let input = Input {
        saved: Some(told.world),
        ..Input::default()
    };
    let epoch = jiff::Timestamp::UNIX_EPOCH;
    let mut scene = whatif::build(input, &changes, None, epoch).unwrap();
    scene.finish(&changes).unwrap();
    scene.take_policies(&policies);
    assert_eq!(scene.assumed, [""; 0]);
    let (plan, _) = whatif::plan(&scene.world, scene.now, &policies).await;
    whatif::explain(&scene, &plan, &told.decisions, &subject).unwrap()
}

/// The value of the rule with this name.
pub(super) fn value<'a>(explanation: &'a Explanation, rule: &str) -> &'a str {
    let rules = explanation.rules.iter();
    let found = rules.clone().find(|one| one.rule.starts_with(rule));
    &found
        .unwrap_or_else(|| panic!("{rule}: {explanation}"))
        .value
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_the_one_that_leads_says_why_a_machine_is_not_elsewhere() {
    let pool = json!({ "limits": { "minNodes": 2, "maxNodes": 3 } });
    let lab = furnished(Setting::new(1, 2), json!({}), pool);
    let pods = Pods::default();
    let client = person(&lab, &pods, true);
    assert!(
        matches!(told(&client).await, Err(NoAnswer::Nobody(lease, _)) if lease == "kube-system/kproxide")
    );

    let names = ["kproxide-0", "kproxide-1"];
    let hosts = names.map(|name| lab.host(name, config(name)).unwrap());
    for (name, (app, _)) in names.iter().zip(&hosts) {
        let router = admin::router(app.vitals(), app.metrics());
        pods.lock().unwrap().insert(*name, router);
    }
    let [(first, first_handle), (second, second_handle)] = hosts;
    let look = async {
        sleep(MACHINE).await;
        let (leader, told_of) = told(&client).await.unwrap();
        let claims = lab.kube.list("nodeclaims.kproxide.dev");
        assert_eq!(claims.len(), 2);
        for claim in &claims {
            let name = claim["metadata"]["name"].as_str().unwrap();
            let on = claim["spec"]["hypervisor"].as_str().unwrap();
            let other = if on == "pve1" { "pve2" } else { "pve1" };
            // Asked again within a second, it lets one wait.
            let (same, told_of) = told(&client).await.unwrap();
            assert_eq!(same, leader);
            let explanation = explained(told_of, Subject::Claim(name.into())).await;
            let chosen = value(&explanation, &format!("placed on home/{on}"));
            assert!(
                chosen.starts_with("score ") && chosen.ends_with("by policy spread"),
                "{chosen}"
            );
            let not = value(&explanation, &format!("not on home/{other}"));
            assert!(not.starts_with("score "), "{not}");
        }
        let explanation = explained(told_of, Subject::Hypervisor("pve2".to_owned())).await;
        let of_pve2 = |claim: &&serde_json::Value| claim["spec"]["hypervisor"] == "pve2";
        let chosen = claims.iter().find(of_pve2).unwrap()["metadata"]["name"].as_str();
        let lost =
            claims.iter().find(|claim| !of_pve2(claim)).unwrap()["metadata"]["name"].as_str();
        let of = |claim: Option<&str>| value(&explanation, &format!("for {} at ", claim.unwrap()));
        assert!(of(chosen).ends_with(": chosen"), "{explanation}");
        assert!(of(lost).contains("; home/pve1 has "), "{explanation}");

        let refused = told(&person(&lab, &pods, false))
            .await
            .err()
            .unwrap()
            .to_string();
        for part in [
            "person cannot get pods/proxy",
            "namespace: kube-system",
            "resources: [pods/proxy]",
            "--compute",
        ] {
            assert!(refused.contains(part), "{refused}");
        }

        let (leads, follows) = match &*leader {
            "pod kube-system/kproxide-0" => (&first_handle, "kproxide-1"),
            "pod kube-system/kproxide-1" => (&second_handle, "kproxide-0"),
            _ => panic!("{leader}"),
        };
        leads.stop.cancel();
        sleep(MACHINE).await;
        let (next, told_of) = told(&client).await.unwrap();
        assert_eq!(next, format!("pod kube-system/{follows}"));
        let placed = told_of.decisions.iter().filter(|one| one.claim.is_some());
        assert_eq!(placed.count(), 0, "the other replica placed them");

        pods.lock().unwrap().remove(follows);
        let gone = told(&client).await.err().unwrap();
        assert!(
            matches!(gone, NoAnswer::Refused { status: 404, .. }),
            "{gone}"
        );
        first_handle.stop.cancel();
        second_handle.stop.cancel();
    };
    let ((), first, second) = tokio::join!(look, first.run(), second.run());
    first.unwrap();
    second.unwrap();
}

/// `kproxide plan --from-cluster`: the cluster lists no hypervisors, and the controller knows them.
#[tokio::test(start_paused = true)]
async fn o24_a_plan_of_the_cluster_has_the_servers_that_the_leader_sees() {
    let lab = furnished(Setting::new(1, 2), json!({}), json!({}));
    let pods = Pods::default();
    let client = person(&lab, &pods, true);
    let (app, handle) = lab.host("kproxide-0", config("kproxide-0")).unwrap();
    let router = admin::router(app.vitals(), app.metrics());
    pods.lock().unwrap().insert("kproxide-0", router);
    let scene = async |controller: Result<Told, String>| {
        let (cluster, _) = everything(&client).await.unwrap();
        let input = Input {
            cluster,
            controller: Some(controller),
            ..Input::default()
        };
        let changes = Changes::default();
        let now = lab.clock.now();
        let mut scene = whatif::build(input, &changes, None, now).unwrap();
        scene.finish(&changes).unwrap();
        scene
    };
    let look = async {
        sleep(MACHINE).await;
        let (_, told) = told(&client).await.unwrap();
        let found = scene(Ok(told)).await;
        let home = &found.world.inventories()["home"];
        let servers: Vec<&str> = home.hypervisors.keys().map(|name| &**name).collect();
        assert_eq!(servers, ["pve1", "pve2"]);
        let is_real = |it: &kproxide_planner::facts::HypervisorFacts| it.threads < 1024;
        assert!(home.hypervisors.values().all(is_real));
        assert_eq!(
            found.assumed,
            ["the hypervisors of ProxmoxCluster home are as pod kube-system/kproxide-0 sees them"]
        );

        let why = "no replica of kproxide leads".to_owned();
        let found = scene(Err(why)).await;
        let assumed = found.assumed.join("; ");
        for part in [
            "each with 1024 cores",
            "kproxide was not asked for the hypervisors: no replica of kproxide leads",
        ] {
            assert!(assumed.contains(part), "{assumed}");
        }
        handle.stop.cancel();
    };
    let ((), ended) = tokio::join!(look, app.run());
    ended.unwrap();
}
