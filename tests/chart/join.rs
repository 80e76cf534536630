//! The join scripts, on a machine where each program only writes down how it is called.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::render::repository;

const TAINT: &str = "kproxide.dev/unregistered=:NoExecute";

/// One script of `examples/join`.
struct Script {
    name: &'static str,
    /// What a person edits: the line as it stands, and edited.
    edits: &'static [(&'static str, &'static str)],
    /// The programs that the machine has.
    programs: &'static [&'static str],
    /// The calls, in their order, and what is written into files.
    calls: &'static str,
}

const CONTAINERD: &str = "  SystemdCgroup = false";

const SCRIPTS: [Script; 4] = [
    Script {
        name: "k3s-agent.sh",
        edits: &[
            ("server=https://k3s.example:6443", "server=https://10.0.0.5:6443"),
            ("token=...", "token=K10abc::server:xyz"),
        ],
        programs: &["curl", "sh"],
        calls: "\
curl -sSfL --output /run/k3s-install.sh https://get.k3s.io
sh /run/k3s-install.sh agent --node-taint kproxide.dev/unregistered=:NoExecute
  INSTALL_K3S_VERSION=v1.33.4+k3s1
  K3S_TOKEN=K10abc::server:xyz
  K3S_URL=https://10.0.0.5:6443
",
    },
    Script {
        name: "rke2-agent.sh",
        edits: &[
            ("server=https://rke2.example:9345", "server=https://10.0.0.5:9345"),
            ("token=...", "token=K10abc::server:xyz"),
        ],
        programs: &["curl", "mkdir", "sh", "systemctl", "tee"],
        calls: r#"mkdir -p /etc/rancher/rke2
tee /etc/rancher/rke2/config.yaml
  | server: "https://10.0.0.5:9345"
  | token: "K10abc::server:xyz"
  | node-taint:
  |   - kproxide.dev/unregistered=:NoExecute
curl -sSfL --output /run/rke2-install.sh https://get.rke2.io
sh /run/rke2-install.sh
  INSTALL_RKE2_TYPE=agent
  INSTALL_RKE2_VERSION=v1.33.4+rke2r1
systemctl enable --now rke2-agent.service
"#,
    },
    Script {
        name: "kubeadm.sh",
        edits: KUBEADM,
        programs: &["apt-get", "containerd", "curl", "mkdir", "modprobe", "sed", "sysctl", "systemctl", "tee"],
        calls: "\
curl -sSfL --create-dirs --output /etc/apt/keyrings/kubernetes.asc https://pkgs.k8s.io/core:/stable:/v1.33/deb/Release.key
mkdir -p /etc/apt/sources.list.d
tee /etc/apt/sources.list.d/kubernetes.list
  | deb [signed-by=/etc/apt/keyrings/kubernetes.asc] https://pkgs.k8s.io/core:/stable:/v1.33/deb/ /
mkdir -p /etc/modules-load.d
tee /etc/modules-load.d/kubernetes.conf
  | overlay
  | br_netfilter
mkdir -p /etc/sysctl.d
tee /etc/sysctl.d/90-kubernetes.conf
  | net.ipv4.ip_forward = 1
  | net.bridge.bridge-nf-call-iptables = 1
  | net.bridge.bridge-nf-call-ip6tables = 1
modprobe -a overlay br_netfilter
sysctl --quiet --load /etc/sysctl.d/90-kubernetes.conf
apt-get update
apt-get install --yes containerd kubelet kubeadm
mkdir -p /etc/containerd
tee /etc/containerd/config.toml
  |   SystemdCgroup = true
systemctl restart containerd.service
mkdir -p /etc/default
tee /etc/default/kubelet
  | KUBELET_EXTRA_ARGS=--register-with-taints=kproxide.dev/unregistered=:NoExecute
kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:c0ffee
",
    },
    // Where the template has it already.
    Script {
        name: "kubeadm.sh",
        edits: KUBEADM,
        programs: &["kubeadm", "mkdir", "tee"],
        calls: "\
mkdir -p /etc/default
tee /etc/default/kubelet
  | KUBELET_EXTRA_ARGS=--register-with-taints=kproxide.dev/unregistered=:NoExecute
kubeadm join 10.0.0.5:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:c0ffee
",
    },
];

const KUBEADM: &[(&str, &str)] = &[
    ("server=kubernetes.example:6443", "server=10.0.0.5:6443"),
    ("token=...", "token=abcdef.0123456789abcdef"),
    ("hash=sha256:...", "hash=sha256:c0ffee"),
];

impl Script {
    fn text(&self, edits: &[(&str, &str)]) -> String {
        let path = repository("examples/join").join(self.name);
        let mut text = fs::read_to_string(path).unwrap();
        for (line, edited) in edits {
            assert_eq!(text.matches(&format!("\n{line}\n")).count(), 1, "{line}");
            text = text.replace(&format!("\n{line}\n"), &format!("\n{edited}\n"));
        }
        text
    }

    /// Runs it as kproxide does: as the standard input of a shell. Also returns what was called.
    fn run(
        &self,
        edits: &[(&str, &str)],
        programs: &[&str],
        fails: Option<&str>,
    ) -> (Output, String) {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        let log = folder.path().join("log");
        fs::create_dir(&bin).unwrap();
        fs::write(&log, "").unwrap();
        for program in programs {
            stand_in(&bin, &log, program, fails == Some(*program));
        }
        let script = folder.path().join("script");
        fs::write(&script, self.text(edits)).unwrap();
        let output = Command::new("/bin/sh")
            .arg("-s")
            .env_clear()
            // Nothing else: no program of this computer is called.
            .env("PATH", &bin)
            .stdin(fs::File::open(&script).unwrap())
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        (output, fs::read_to_string(log).unwrap())
    }
}

/// A program that writes down its arguments, what of its environment an installer reads, and for `tee` the text.
fn stand_in(bin: &Path, log: &Path, program: &str, fails: bool) {
    let log = log.display();
    let does = match program {
        "sed" => "exec /bin/sed \"$@\"".to_owned(),
        "containerd" => format!("echo '{CONTAINERD}'"),
        _ => format!(
            "echo \"{program} $*\" >>'{log}'\n\
             /usr/bin/env | /bin/grep -E '^(K3S|INSTALL)_' | /usr/bin/sort | /bin/sed 's/^/  /' >>'{log}'\n\
             case {program} in\n\
             tee) /bin/sed 's/^/  | /' >>'{log}' ;;\n\
             apt-get) case $1 in install) /bin/cp '{0}/apt-get' '{0}/kubeadm' && /bin/sed -i 's/apt-get/kubeadm/' '{0}/kubeadm' ;; esac ;;\n\
             esac",
            bin.display()
        ),
    };
    let code = i32::from(fails);
    let path = bin.join(program);
    fs::write(&path, format!("#!/bin/sh\n{does}\nexit {code}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Its one line of error; nothing was done before it.
fn refusal((output, calls): (Output, String)) -> String {
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(calls, "", "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn each_join_script_that_is_edited_joins_with_the_taint() {
    let named: BTreeSet<&str> = SCRIPTS.iter().map(|script| script.name).collect();
    let there = fs::read_dir(repository("examples/join")).unwrap();
    let there: BTreeSet<String> = there
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        named
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>(),
        there
    );
    for script in &SCRIPTS {
        let (output, calls) = script.run(script.edits, script.programs, None);
        assert!(output.status.success(), "{}: {output:?}", script.name);
        assert_eq!(calls, script.calls, "{}", script.name);
        assert!(calls.contains(TAINT), "{}", script.name);
    }
}

#[test]
fn a_join_script_with_a_value_unedited_says_which_and_does_nothing() {
    for script in &SCRIPTS {
        for (line, _) in script.edits {
            let others = script.edits.iter().filter(|(other, _)| other != line);
            let others: Vec<(&str, &str)> = others.copied().collect();
            let told = refusal(script.run(&others, script.programs, None));
            let value = line.split('=').next().unwrap();
            let says = format!("{}: {value}= is not edited: ", script.name);
            assert!(told.starts_with(&says), "{told}");
        }
    }
}

#[test]
fn a_join_script_says_in_one_line_which_program_the_machine_lacks() {
    for (script, missing, says) in [
        (&SCRIPTS[0], "curl", "this machine has no curl"),
        (&SCRIPTS[1], "curl", "this machine has no curl"),
        (&SCRIPTS[2], "curl", "this machine has no curl"),
        (
            &SCRIPTS[2],
            "apt-get",
            "this machine has neither kubeadm nor apt-get",
        ),
    ] {
        let programs: Vec<&str> = script
            .programs
            .iter()
            .copied()
            .filter(|it| *it != missing)
            .collect();
        let told = refusal(script.run(script.edits, &programs, None));
        assert!(
            told.starts_with(&format!("{}: {says}", script.name)),
            "{told}"
        );
    }
}

#[test]
fn a_join_script_fails_with_each_program_that_fails() {
    for script in &SCRIPTS {
        let called = script.programs.iter().filter(|program| **program != "sed");
        for program in called {
            let (output, _) = script.run(script.edits, script.programs, Some(program));
            assert!(
                !output.status.success(),
                "{}: {program}: {output:?}",
                script.name
            );
        }
    }
}

#[test]
fn each_join_script_is_a_program_of_a_plain_shell() {
    for script in &SCRIPTS {
        let path = repository("examples/join").join(script.name);
        assert!(
            script.text(&[]).starts_with("#!/bin/sh\n"),
            "{}",
            script.name
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o111,
            0o111
        );
        let read = Command::new("/bin/sh")
            .arg("-n")
            .arg(&path)
            .output()
            .unwrap();
        assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
    }
}
