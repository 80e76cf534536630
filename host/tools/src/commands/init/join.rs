//! How machines join: one of the shipped scripts, with the lines that a person would edit.

use secrecy::{ExposeSecret as _, SecretString};

use super::Problem;
use super::ask::{Asker, Question};
use super::kubernetes::Kubernetes;
use crate::args::{Init, Way};

const K3S: &str = include_str!("../../../../../examples/join/k3s-agent.sh");
const RKE2: &str = include_str!("../../../../../examples/join/rke2-agent.sh");
const KUBEADM: &str = include_str!("../../../../../examples/join/kubeadm.sh");

/// In the order in which they are offered.
const WAYS: [(Way, &str); 4] = [
    (Way::K3s, "k3s"),
    (Way::Rke2, "rke2"),
    (Way::Kubeadm, "kubeadm"),
    (Way::Itself, "itself"),
];

/// The script that kproxide runs in each machine. It holds the cluster's token.
pub(super) struct Joining {
    pub(super) script: SecretString,
}

impl Joining {
    /// `None`: machines join by themselves.
    ///
    /// # Errors
    /// An answer is missing.
    pub(super) fn ask(
        asker: &Asker,
        args: &Init,
        kubernetes: &Kubernetes,
    ) -> Result<Option<Self>, Problem> {
        let way = ask_way(asker, args, kubernetes)?;
        let script = match way {
            Way::K3s => K3S,
            Way::Rke2 => RKE2,
            Way::Kubeadm => KUBEADM,
            Way::Itself => return Ok(None),
        };
        let version = version(way, kubernetes)?;
        let server = ask_server(asker, args, kubernetes, way)?;
        let server = match way {
            Way::Kubeadm => server.trim_start_matches("https://").to_owned(),
            Way::K3s | Way::Rke2 | Way::Itself => server,
        };
        let is_token = |text: &str| check_token(way, text);
        let token = asker.secret(
            token_question(Some(way)),
            args.join_token_file.as_deref(),
            &is_token,
        )?;
        let mut lines = vec![("server", server), ("version", version)];
        if way == Way::Kubeadm {
            let hash = kubernetes.hash.clone().ok_or_else(|| {
                Problem::kubernetes(
                    "ConfigMap kube-system/kube-root-ca.crt cannot be read, from which machines know the API server: ask as somebody who may read it",
                )
            })?;
            lines.push(("hash", hash));
        }
        let script = lines
            .iter()
            .fold(script.to_owned(), |script, (key, value)| {
                assign(&script, key, value)
            });
        let script = assign(&script, "token", token.expose_secret());
        Ok(Some(Self {
            script: script.into(),
        }))
    }

    /// Each answer that is missing or cannot be used, where nobody can be asked. `None`: nothing is known of the cluster.
    pub(super) fn lacking(args: &Init, kubernetes: Option<&Kubernetes>) -> Vec<Problem> {
        let (mut lacking, mut way) = (Vec::new(), args.join);
        if let Some(kubernetes) = kubernetes {
            match ask_way(&Asker::Nobody, args, kubernetes) {
                Ok(Way::Itself) => way = Some(Way::Itself),
                Ok(chosen) => {
                    way = Some(chosen);
                    lacking.extend(version(chosen, kubernetes).err());
                    lacking.extend(ask_server(&Asker::Nobody, args, kubernetes, chosen).err());
                }
                Err(problem) => lacking.push(problem),
            }
        }
        // What is in the file is read once, later: it may be standard input.
        if way != Some(Way::Itself) && args.join_token_file.is_none() {
            lacking.push(token_question(way).missing());
        }
        lacking
    }
}

fn ask_way(asker: &Asker, args: &Init, kubernetes: &Kubernetes) -> Result<Way, Problem> {
    let question = Question {
        text: "How machines join the cluster (itself: at the first boot, as their template was made to)",
        flag: "--join",
    };
    let name = |way: Way| WAYS.iter().find(|it| it.0 == way).map_or("", |it| it.1);
    // Nobody is offered what the cluster's version rules out.
    let fits = |way: Way| args.join == Some(way) || version(way, kubernetes).is_ok();
    let ways: Vec<Way> = WAYS
        .iter()
        .map(|it| it.0)
        .filter(|way| fits(*way))
        .collect();
    let names: Vec<String> = ways.iter().map(|way| name(*way).to_owned()).collect();
    let known = kubernetes
        .way
        .and_then(|way| ways.iter().position(|it| *it == way));
    let chosen = asker.one(question, args.join.map(name), &names, known)?;
    Ok(ways[chosen])
}

fn ask_server(
    asker: &Asker,
    args: &Init,
    kubernetes: &Kubernetes,
    way: Way,
) -> Result<String, Problem> {
    let question = Question {
        text: "Server that machines join at",
        flag: "--join-server",
    };
    let known = kubernetes.server_for(way);
    let is_server = |text: &str| check_server(way, text);
    asker.text(
        question,
        args.join_server.as_deref(),
        known.as_deref(),
        &is_server,
    )
}

/// `None`: it is not known how machines join.
fn token_question(way: Option<Way>) -> Question<'static> {
    Question {
        text: match way {
            Some(Way::K3s) => {
                "Token: what is in /var/lib/rancher/k3s/server/node-token on a server"
            }
            Some(Way::Rke2) => {
                "Token: what is in /var/lib/rancher/rke2/server/node-token on a server"
            }
            Some(Way::Kubeadm | Way::Itself) => {
                "Token: what `kubeadm token create --ttl 0` prints on a control plane"
            }
            None => "Token of the Kubernetes cluster, unless machines join by themselves",
        },
        flag: "--join-token-file",
    }
}

/// What the script installs: no newer than the server.
fn version(way: Way, kubernetes: &Kubernetes) -> Result<String, Problem> {
    let version = &kubernetes.version;
    let minor = || {
        let mut parts = version.split('.');
        Some(format!("{}.{}", parts.next()?, parts.next()?))
    };
    let fits = match way {
        Way::K3s => version.contains("+k3s").then(|| version.clone()),
        Way::Rke2 => version.contains("+rke2").then(|| version.clone()),
        Way::Kubeadm | Way::Itself => minor(),
    };
    fits.ok_or_else(|| {
        Problem::input(format!(
            "--join: the API server is {version}, which is another distribution"
        ))
    })
}

fn check_server(way: Way, text: &str) -> Result<(), String> {
    let host = match way {
        Way::Kubeadm => {
            let host = text.strip_prefix("https://").unwrap_or(text);
            Some(host).filter(|host| !host.contains("://"))
        }
        Way::K3s | Way::Rke2 | Way::Itself => text.strip_prefix("https://"),
    };
    let example = match way {
        Way::Kubeadm => "10.0.0.1:6443",
        Way::Rke2 => "https://10.0.0.1:9345",
        Way::K3s | Way::Itself => "https://10.0.0.1:6443",
    };
    let port = host.and_then(|host| host.rsplit_once(':'));
    let is_port = port.is_some_and(|(host, port)| is_plain(host) && port.parse::<u16>().is_ok());
    match is_port {
        true => Ok(()),
        false => Err(format!("write it like {example}")),
    }
}

/// No word of these shows the token.
fn check_token(way: Way, token: &str) -> Result<(), String> {
    if !is_plain(token) {
        return Err("that is no token: it is empty, or has blanks or quotation marks".to_owned());
    }
    let parts = token.split_once('.');
    let is_bootstrap = parts.is_some_and(|(id, secret)| id.len() == 6 && secret.len() == 16);
    match way == Way::Kubeadm && !is_bootstrap {
        true => Err("that is no token of kubeadm, such as abcdef.0123456789abcdef".to_owned()),
        false => Ok(()),
    }
}

/// Means the same to a shell in quotation marks and in a YAML string.
fn is_plain(text: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_graphic() && !b"'\"\\$`".contains(&it);
    !text.is_empty() && text.bytes().all(is_plain)
}

/// The script with another value in its line `key=…`. A value is plain.
fn assign(script: &str, key: &str, value: &str) -> String {
    let begin = format!("{key}=");
    let mut is_done = false;
    let lines = script.lines().map(|line| {
        let is_it = !is_done && line.starts_with(&begin);
        is_done |= is_it;
        match is_it {
            true => format!("{key}='{value}'\n"),
            false => format!("{line}\n"),
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::exit::Exit;
    use super::super::tests::parsed;
    use super::*;

    const BOOTSTRAP: &str = "abcdef.0123456789abcdef";

    fn of_version(version: &str) -> Kubernetes {
        Kubernetes {
            version: version.to_owned(),
            hash: Some("sha256:ab".to_owned()),
            ..Kubernetes::default()
        }
    }

    fn joined(way: &str, server: &str, token: &str, version: &str) -> Result<String, Problem> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), token).unwrap();
        let token = format!("--join-token-file={}", file.path().display());
        let flags = [
            format!("--join={way}"),
            format!("--join-server={server}"),
            token,
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let joining = Joining::ask(&Asker::Nobody, &parsed(&flags), &of_version(version))?;
        Ok(joining.map_or_else(String::new, |it| it.script.expose_secret().to_owned()))
    }

    /// The lines that differ from the shipped script.
    fn edited(shipped: &str, script: &str) -> Vec<String> {
        assert_eq!(shipped.lines().count(), script.lines().count());
        let pairs = shipped.lines().zip(script.lines());
        let changed = pairs.filter(|(before, after)| before != after);
        changed.map(|(_, after)| after.to_owned()).collect()
    }

    #[test]
    fn each_way_is_its_shipped_script_with_the_lines_edited_that_say_so() {
        let script = joined(
            "k3s",
            "https://10.0.0.1:6443",
            "K10ab::server:c",
            "v1.33.4+k3s1",
        );
        assert_eq!(
            edited(K3S, &script.unwrap()),
            [
                "server='https://10.0.0.1:6443'",
                "token='K10ab::server:c'",
                "version='v1.33.4+k3s1'"
            ]
        );
        let script = joined(
            "rke2",
            "https://10.0.0.1:9345",
            "K10ab::server:c\n",
            "v1.33.4+rke2r1",
        );
        assert_eq!(
            edited(RKE2, &script.unwrap()),
            [
                "server='https://10.0.0.1:9345'",
                "token='K10ab::server:c'",
                "version='v1.33.4+rke2r1'"
            ]
        );
        let script = joined("kubeadm", "https://10.0.0.1:6443", BOOTSTRAP, "v1.33.4");
        assert_eq!(
            edited(KUBEADM, &script.unwrap()),
            [
                "server='10.0.0.1:6443'".to_owned(),
                format!("token='{BOOTSTRAP}'"),
                "hash='sha256:ab'".to_owned(),
                "version='v1.33'".to_owned()
            ]
        );
        assert_eq!(joined("itself", "", "", "v1.33.4").unwrap(), "");
    }

    #[test]
    fn what_a_script_cannot_take_is_refused_before_it_is_written() {
        let refused = |way: &str, server: &str, token: &str, version: &str| {
            joined(way, server, token, version).unwrap_err().text
        };
        let k3s = "v1.33.4+k3s1";
        for server in [
            "10.0.0.1:6443",
            "https://10.0.0.1",
            "https://a'b:6443",
            "https://a b:1",
        ] {
            let said = refused("k3s", server, "a", k3s);
            assert!(
                said.ends_with("write it like https://10.0.0.1:6443"),
                "{said}"
            );
        }
        assert!(refused("kubeadm", "http://a:1", BOOTSTRAP, "v1.33.4").ends_with("10.0.0.1:6443"));
        for token in ["", "a b", "$(reboot)", "a'b"] {
            let said = refused("k3s", "https://a:1", token, k3s);
            assert!(said.ends_with("quotation marks"), "{said}");
        }
        assert!(refused("kubeadm", "a:1", "K10ab::c", "v1.33.4").contains("no token of kubeadm"));
        assert!(refused("rke2", "https://a:1", "a", k3s).contains("another distribution"));
        let unknown = Kubernetes {
            hash: None,
            ..of_version("v1.33.4")
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), BOOTSTRAP).unwrap();
        let token = format!("--join-token-file={}", file.path().display());
        let args = parsed(&["--join=kubeadm", "--join-server=a:1", &token]);
        let problem = Joining::ask(&Asker::Nobody, &args, &unknown).err().unwrap();
        assert_eq!(problem.exit, Exit::Kubernetes);
        // The way is not known, and neither is the server.
        let way = Joining::ask(&Asker::Nobody, &parsed(&[]), &unknown)
            .err()
            .unwrap();
        assert!(
            way.text.contains("give --join, one of: kubeadm, itself"),
            "{}",
            way.text
        );
        let server = Joining::ask(&Asker::Nobody, &parsed(&["--join=kubeadm"]), &unknown);
        assert!(server.err().unwrap().text.ends_with("give --join-server"));
    }

    #[test]
    fn o22_all_that_a_way_to_join_lacks_is_named_at_once() {
        let lacking = |flags: &[&str], kubernetes| {
            let lacking = Joining::lacking(&parsed(flags), kubernetes).into_iter();
            let flags = lacking.map(|it| it.text.rsplit_once("give ").unwrap().1.to_owned());
            flags.collect::<Vec<_>>()
        };
        let known = of_version("v1.33.4");
        assert_eq!(lacking(&[], None), ["--join-token-file"]);
        assert_eq!(
            lacking(&[], Some(&known)),
            ["--join, one of: kubeadm, itself", "--join-token-file"]
        );
        assert_eq!(
            lacking(&["--join=kubeadm"], Some(&known)),
            ["--join-server", "--join-token-file"]
        );
        for kubernetes in [None, Some(&known)] {
            assert!(lacking(&["--join=itself"], kubernetes).is_empty());
        }
    }
}
