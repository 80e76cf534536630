use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;

use super::*;
use crate::{Options, eventually, require_controlplane};

/// A small HTTP server in place of kproxide: it shows its world in its log, and then serves the files of its mount.
/// The executable that is the control plane happens to hold one, in kubectl.
fn server(executable: &Path) -> String {
    format!(
        "#!/bin/sh\necho \"args: $*\"\nenv | sort\n\
         exec '{}' kubectl proxy --port=\"$PORT\" --www=\"$CONFIG\" --www-prefix=/files/\n",
        executable.display()
    )
}

fn deployment(port: u16) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "probe", "namespace": "default" },
        "spec": {
            "replicas": 1,
            "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": { "app": "probe" } },
            "template": {
                "metadata": { "labels": { "app": "probe" } },
                "spec": {
                    "tolerations": [{ "operator": "Exists" }],
                    "terminationGracePeriodSeconds": 20,
                    "containers": [{
                        "name": "probe",
                        "image": "none",
                        "args": ["run", "--config=/etc/probe", "--name=$(POD_NAME)"],
                        "env": [
                            { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                            { "name": "CONFIG", "value": "/etc/probe" },
                            { "name": "PORT", "value": port.to_string() },
                            { "name": "COLOUR", "valueFrom": { "secretKeyRef": { "name": "probe", "key": "colour" } } },
                        ],
                        "ports": [{ "name": "admin", "containerPort": port }],
                        "readinessProbe": { "httpGet": { "path": "/files/open", "port": "admin" } },
                        "volumeMounts": [{ "name": "config", "mountPath": "/etc/probe" }],
                    }],
                    "volumes": [{ "name": "config", "configMap": { "name": "probe" } }],
                },
            },
        },
    })
}

#[tokio::test]
async fn a_deployments_pod_runs_reloads_dies_and_comes_back() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let api = cluster.api();
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("server");
    fs::write(&binary, server(programs.path())).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();

    let config = json!({ "metadata": { "name": "probe" }, "data": { "closed": "" } });
    api.create("/api/v1/namespaces/default/configmaps", &config)
        .await
        .unwrap();
    let secret = json!({ "metadata": { "name": "probe" }, "stringData": { "colour": "green" } });
    api.create("/api/v1/namespaces/default/secrets", &secret)
        .await
        .unwrap();
    let port = crate::free_port().unwrap();
    api.create(
        "/apis/apps/v1/namespaces/default/deployments",
        &deployment(port),
    )
    .await
    .unwrap();

    let launcher = PodLauncher::new(&cluster, &binary)
        .env("EXTRA", "more")
        .mounts_below(folder.path().join("pod"));
    let mut pod = launcher.launch("default", "app=probe").await.unwrap();
    let log = pod.log_path().to_owned();
    let seen = eventually(
        Duration::from_secs(20),
        "the process to show its world",
        async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if text.contains("POD_NAME=") {
                Ok(text)
            } else {
                Err(text)
            }
        },
    )
    .await;
    let mounted = folder.path().join("pod/etc/probe");
    assert_eq!(pod.path_of("/etc/probe"), Some(mounted.clone()));
    for line in [
        format!(
            "args: run --config={} --name={}",
            mounted.display(),
            pod.name()
        ),
        "COLOUR=green".to_owned(),
        "EXTRA=more".to_owned(),
        format!("HOSTNAME={}", pod.name()),
    ] {
        assert!(
            seen.lines().any(|seen| seen == line),
            "no line {line:?} in\n{seen}"
        );
    }

    // The kubeconfig that it was given is its ServiceAccount's, and names mounted files.
    let kubeconfig = seen
        .lines()
        .find_map(|line| line.strip_prefix("KUBECONFIG="))
        .unwrap();
    let who = programs
        .run(&["kubectl", "--kubeconfig", kubeconfig, "auth", "whoami"])
        .await
        .unwrap();
    assert!(
        who.contains("system:serviceaccount:default:default"),
        "{who}"
    );

    // Not ready before the ConfigMap opens it, and the new file arrives by an atomic swap.
    let early = pod
        .ready(Duration::from_millis(300))
        .await
        .unwrap_err()
        .to_string();
    assert!(early.contains("not ready"), "{early}");
    api.merge(
        "/api/v1/namespaces/default/configmaps/probe",
        &json!({ "data": { "open": "" } }),
    )
    .await
    .unwrap();
    pod.refresh_volumes().await.unwrap();
    pod.ready(Duration::from_secs(20)).await.unwrap();
    eventually(
        Duration::from_secs(20),
        "the Deployment to be available",
        async || {
            let deployment = api
                .get("/apis/apps/v1/namespaces/default/deployments/probe")
                .await
                .unwrap();
            if deployment["status"]["availableReplicas"] == 1 {
                Ok(())
            } else {
                Err(deployment["status"].to_string())
            }
        },
    )
    .await;

    pod.kill9().await.unwrap();
    assert_eq!(pod.ended().and_then(|status| status.signal()), Some(9));
    pod.restart().await.unwrap();
    pod.ready(Duration::from_secs(20)).await.unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{}", pod.name());
    assert_eq!(
        api.get(&path).await.unwrap()["status"]["containerStatuses"][0]["restartCount"],
        1
    );

    // Removing it makes the Deployment want another.
    let first = pod.name().to_owned();
    assert_eq!(pod.remove().await.unwrap().signal(), Some(15));
    let second = launcher.launch("default", "app=probe").await.unwrap();
    assert_ne!(second.name(), first);
}

#[tokio::test]
async fn a_missing_config_map_is_named() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let secret = json!({ "metadata": { "name": "probe" }, "stringData": { "colour": "green" } });
    cluster
        .api()
        .create("/api/v1/namespaces/default/secrets", &secret)
        .await
        .unwrap();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    cluster
        .api()
        .create(deployments, &deployment(1))
        .await
        .unwrap();
    let launcher = PodLauncher::new(&cluster, "/bin/true");
    let error = launcher
        .launch("default", "app=probe")
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the pod refers to ConfigMap default/probe, which does not exist"
    );
}
