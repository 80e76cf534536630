//! The flags, sorted by the Proxmox cluster that they speak of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kproxide_planner::ids::is_dns_label;

use super::Problem;
use crate::args::Init;

/// The name of a cluster that no flag names.
pub(super) const UNNAMED: &str = "proxmox";

/// What flags say of one Proxmox cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) endpoints: Vec<String>,
    pub(super) fingerprints: Vec<String>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) token_id: Option<String>,
    pub(super) token_secret: Option<PathBuf>,
    pub(super) pool: Option<String>,
    pub(super) vmid_range: Option<String>,
    pub(super) servers: Vec<String>,
}

/// By name. At least one.
///
/// # Errors
/// A flag is given twice for one cluster, or two read standard input.
pub(super) fn by_cluster(args: &Init) -> Result<BTreeMap<String, Given>, Problem> {
    let mut found: BTreeMap<String, Given> = BTreeMap::new();
    for (all, take) in [
        (
            &args.endpoint,
            (|it, value| it.endpoints.push(value)) as fn(&mut Given, String),
        ),
        (&args.fingerprint, |it, value| it.fingerprints.push(value)),
        (&args.server, |it, value| it.servers.push(value)),
    ] {
        for (name, value) in all.iter().map(|text| split(text)) {
            take(found.entry(name).or_default(), value);
        }
    }
    for (flag, all, field) in [
        (
            "--token-id",
            &args.token_id,
            (|it| &mut it.token_id) as fn(&mut Given) -> &mut Option<String>,
        ),
        ("--pool", &args.pool, |it| &mut it.pool),
        ("--vmid-range", &args.vmid_range, |it| &mut it.vmid_range),
    ] {
        for (name, value) in all.iter().map(|text| split(text)) {
            let field = field(found.entry(name.clone()).or_default());
            once(flag, &name, field.replace(value).is_some())?;
        }
    }
    for (flag, all, field) in [
        (
            "--token-secret-file",
            &args.token_secret_file,
            (|it| &mut it.token_secret) as fn(&mut Given) -> &mut Option<PathBuf>,
        ),
        ("--ca-file", &args.ca_file, |it| &mut it.ca_file),
    ] {
        for (name, value) in all.iter().map(|text| split(text)) {
            let field = field(found.entry(name.clone()).or_default());
            once(flag, &name, field.replace(value.into()).is_some())?;
        }
    }
    if found.is_empty() {
        found.insert(UNNAMED.to_owned(), Given::default());
    }
    let secrets = found.values().filter_map(|it| it.token_secret.as_ref());
    let secrets = secrets.chain(&args.join_token_file);
    match secrets.filter(|path| path.as_os_str() == "-").count() {
        0 | 1 => Ok(found),
        _ => Err(Problem::input(
            "two flags read standard input (-): give a file for all but one",
        )),
    }
}

/// # Errors
/// It cannot be the name of a ProxmoxCluster and of a Secret.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    // A Secret of that name, and more, fits into the 63 letters of a label.
    match is_dns_label(name) && name.len() <= 40 {
        true => Ok(()),
        false => Err("a name has 1 to 40 lower-case letters, digits and '-'".to_owned()),
    }
}

fn once(flag: &str, name: &str, was_given: bool) -> Result<(), Problem> {
    match was_given {
        false => Ok(()),
        true => Err(Problem::input(format!(
            "{flag} is given twice for the Proxmox cluster {name}"
        ))),
    }
}

/// `NAME=VALUE`, where the name is one.
fn split(text: &str) -> (String, String) {
    match text.split_once('=') {
        Some((name, value)) if check_name(name).is_ok() => (name.to_owned(), value.to_owned()),
        Some(_) | None => (UNNAMED.to_owned(), text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::parsed;
    use super::*;

    #[test]
    fn flags_belong_to_the_cluster_that_they_name_and_else_to_the_only_one() {
        let args = parsed(&[
            "--endpoint=home=https://a:8006",
            "--endpoint=https://b:8006",
            "--endpoint=home=https://c:8006",
            "--fingerprint=sha256 Fingerprint=AA:BB",
            "--token-id=home=a@pve!b",
            "--token-secret-file=./odd=name",
            "--server=home=pve1",
        ]);
        let found = by_cluster(&args).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["home", "proxmox"]);
        let (home, other) = (&found["home"], &found["proxmox"]);
        assert_eq!(home.endpoints, ["https://a:8006", "https://c:8006"]);
        assert_eq!(home.servers, ["pve1"]);
        assert_eq!(home.token_id.as_deref(), Some("a@pve!b"));
        assert_eq!(other.endpoints, ["https://b:8006"]);
        assert_eq!(other.fingerprints, ["sha256 Fingerprint=AA:BB"]);
        assert_eq!(other.token_secret, Some(PathBuf::from("./odd=name")));
        assert_eq!(
            by_cluster(&parsed(&[])).unwrap(),
            [("proxmox".to_owned(), Given::default())].into()
        );
    }

    #[test]
    fn what_can_be_said_once_only_is_refused_twice() {
        let refused = |flags: &[&str]| by_cluster(&parsed(flags)).unwrap_err().text;
        assert_eq!(
            refused(&["--pool=home=a", "--pool=home=b"]),
            "--pool is given twice for the Proxmox cluster home"
        );
        by_cluster(&parsed(&["--pool=home=a", "--pool=away=b"])).unwrap();
        let twice = ["--token-secret-file=-", "--join-token-file=-"];
        assert!(refused(&twice).contains("standard input"));
        by_cluster(&parsed(&twice[..1])).unwrap();
    }
}
