//! kproxide as a service outside of the cluster: the kubeconfig for it has the rights of the chart's ServiceAccount.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use kproxide_testkit::{ControlPlane, Options, require_controlplane};
use serde_json::{Value, json};

use crate::render::{NO_HOOK, chart, repository, values, values_file};

const NAMESPACE: &str = "autoscaling";

#[tokio::test]
async fn a_kubeconfig_for_outside_is_the_charts_service_account() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let cluster = ControlPlane::start(&programs, Options::default())
        .await
        .unwrap();
    let file = values_file(&values(json!({})));
    let path = file.path().display().to_string();
    let install = ["install", "kproxide", &chart(), NO_HOOK, "--values", &path];
    let there = ["--namespace", NAMESPACE, "--create-namespace"];
    cluster
        .helm(&[&install[..], &there].concat())
        .await
        .unwrap();

    // kubectl of the tests, by the name under which scripts find it.
    let folder = tempfile::tempdir().unwrap();
    let kubectl = folder.path().join("kubectl");
    let text = format!(
        "#!/bin/sh\nexec '{}' kubectl \"$@\"\n",
        programs.path().display()
    );
    fs::write(&kubectl, text).unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    // Twice: the second time the Secret is there.
    let made = [(); 2].map(|()| {
        let output = Command::new(repository("examples/systemd/kubeconfig.sh"))
            .arg(NAMESPACE)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .env("KUBECONFIG", cluster.admin_kubeconfig_path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    });
    assert_eq!(made[0], made[1]);

    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, &made[0]).unwrap();
    let asked = |arguments: &[&str]| {
        let output = Command::new(&kubectl)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .env("HOME", folder.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let whoami: Value = serde_json::from_str(&asked(&["auth", "whoami", "--output=json"])).unwrap();
    let account = format!("system:serviceaccount:{NAMESPACE}:kproxide");
    assert_eq!(whoami["status"]["userInfo"]["username"], *account);
    // Its rights, and no others.
    let may = |verb: &str, kind: &str| asked(&["auth", "can-i", verb, kind]).trim().to_owned();
    assert_eq!(may("create", "nodeclaims.kproxide.dev"), "yes");
    assert_eq!(may("create", "deployments.apps"), "no");
}

/// What systemd starts is what the chart starts, but for what the pod tells it. (That these are flags of `kproxide run`, `args.rs` shows.)
#[tokio::test]
async fn the_service_has_the_flags_of_the_charts_pod() {
    let Some(programs) = require_controlplane() else {
        return;
    };
    let unit = fs::read_to_string(repository("examples/systemd/kproxide.service")).unwrap();
    let file = values_file(&values(json!({})));
    let path = file.path().display().to_string();
    let rendered = programs
        .helm(&["template", "kproxide", &chart(), "--values", &path])
        .await
        .unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let pod = &crate::render::the(&objects, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for name in ["--credentials-dir", "--join-dir"] {
        let args = container["args"].as_array().unwrap();
        let mut given = args.iter().filter_map(Value::as_str);
        let flag = given.find(|arg| arg.starts_with(name)).unwrap();
        assert!(unit.contains(&format!(" {flag} ")), "{flag}");
    }
    for (variable, flag) in [("POD_NAMESPACE", "--namespace"), ("POD_NAME", "--pod-name")] {
        let env = container["env"].as_array().unwrap();
        assert!(env.iter().any(|one| one["name"] == variable), "{variable}");
        assert!(unit.contains(&format!(" {flag}=")), "{flag}");
    }
    // What both tell glibc's allocator.
    let env = container["env"].as_array().unwrap().iter();
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let env = env.map(|one| (text(one, "name"), text(one, "value")));
    let allocator: Vec<_> = env
        .filter(|(name, _)| name.starts_with("MALLOC_"))
        .collect();
    assert_eq!(allocator.len(), 2);
    for (name, value) in allocator {
        let set = format!("\nEnvironment={name}={value}\n");
        assert!(unit.contains(&set), "{set}");
    }
}
