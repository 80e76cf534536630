//! Which servers may have the credentials: the file `endpoints` beside them. Who may change a ProxmoxCluster, and not this file, cannot send them to a
//! server of his own.

use std::collections::BTreeSet;

use super::auth::CredentialsError;
use super::tls::Fingerprint;
use super::transport::{Endpoint, base_url};

/// Name of the file, and of the key of a Secret.
pub const FILE: &str = "endpoints";

/// What the file says. One without a line allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// `host:port`, as [`address`] writes them.
    hosts: BTreeSet<String>,
    /// All of the file. Empty: `spec.tls` alone decides.
    fingerprints: BTreeSet<Fingerprint>,
}

impl Allowed {
    /// A line has an address as `spec.endpoints` takes it, and after it, or on a line without, fingerprints of certificates. What follows a `#` is for
    /// people.
    pub(super) fn read(text: &str) -> Result<Allowed, CredentialsError> {
        let mut allowed = Allowed::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |problem: String| CredentialsError::Endpoints {
                line: index + 1,
                problem,
            };
            let line = line.split_once('#').map_or(line, |(line, _)| line);
            for (position, word) in line.split_whitespace().enumerate() {
                if let Ok(fingerprint) = word.parse() {
                    allowed.fingerprints.insert(fingerprint);
                    continue;
                }
                if position > 0 {
                    return Err(wrong(format!(
                        "{word:?} is not a SHA-256 fingerprint, which has 32 bytes in hex: write one address on each line"
                    )));
                }
                let base = base_url(word).map_err(|error| wrong(error.to_string()))?;
                allowed.hosts.insert(address(&base));
            }
        }
        Ok(allowed)
    }

    /// Why a client of these endpoints may not have the credentials. `None`: it may.
    pub(super) fn refusal(&self, endpoints: &[Endpoint]) -> Option<String> {
        let unknown = endpoints
            .iter()
            .find(|endpoint| !self.hosts.contains(&address(&endpoint.name)));
        if let Some(Endpoint { name, .. }) = unknown {
            let there = match self.hosts.is_empty() {
                true => "is empty, so that none is allowed".to_owned(),
                false => format!("has {}", listed(&self.hosts)),
            };
            return Some(format!(
                "spec.endpoints: {name} is not in the file {FILE} beside the credentials, which {there}, so nothing was sent there. If it is a server of this Proxmox cluster, add the line `{name}` to the key {FILE} of the Secret. If not, correct spec.endpoints"
            ));
        }
        if self.fingerprints.is_empty() {
            return None;
        }
        let fix = format!(
            "so nothing was sent. Set spec.tls.fingerprints to what stands there ({}), or correct the key {FILE} of the Secret",
            listed(&self.fingerprints)
        );
        let pins = endpoints.iter().map(|endpoint| endpoint.pins.as_ref());
        for pins in pins {
            let Some(pins) = pins else {
                return Some(format!(
                    "spec.tls.fingerprints: it is not set, and the file {FILE} beside the credentials has fingerprints, {fix}"
                ));
            };
            let unknown = pins.iter().find(|pin| !self.fingerprints.contains(pin));
            if let Some(unknown) = unknown {
                return Some(format!(
                    "spec.tls.fingerprints: {unknown} is not in the file {FILE} beside the credentials, {fix}"
                ));
            }
        }
        None
    }
}

/// The file that allows these, and no other.
pub fn file(urls: &[String], fingerprints: &[impl ToString]) -> String {
    let fingerprints = fingerprints.iter().map(ToString::to_string);
    let mut lines = urls.iter().cloned().chain(fingerprints).collect::<Vec<_>>();
    lines.push(String::new());
    lines.join("\n")
}

/// `host:port` of an address with a scheme or without. DNS takes a name with a dot at its end for the same name.
fn address(base: &str) -> String {
    let base = base.trim_start_matches("https://");
    match base.rsplit_once(':') {
        Some((host, port)) => format!("{}:{port}", host.trim_end_matches('.')),
        None => base.to_owned(),
    }
}

fn listed(all: &BTreeSet<impl ToString>) -> String {
    let all: Vec<String> = all.iter().map(ToString::to_string).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tls::Trust;
    use super::super::transport::https;
    use super::*;

    const A: &str = "20:ED:95:02:68:25:1D:7F:DF:46:DA:44:77:89:BA:3D:AC:C8:78:D2:E1:95:FE:36:B0:12:7D:D4:C1:98:CF:C7";

    fn other() -> String {
        Fingerprint::of(b"other").to_string()
    }

    fn check(file: &str, urls: &[&str], pins: Option<&[&str]>) -> Option<String> {
        let trust = match pins {
            Some(pins) => Trust::Fingerprints(pins.iter().map(|it| it.parse().unwrap()).collect()),
            None => Trust::InsecureSkipVerify,
        };
        let endpoints = urls.iter().map(|url| https(url, &trust, Duration::ZERO));
        let endpoints: Vec<Endpoint> = endpoints.map(Result::unwrap).collect();
        Allowed::read(file).unwrap().refusal(&endpoints)
    }

    fn allows(file: &str, url: &str) -> bool {
        check(file, &[url], None).is_none()
    }

    fn problem(file: &str) -> String {
        Allowed::read(file).unwrap_err().to_string()
    }

    #[test]
    fn s9_one_host_has_many_spellings() {
        let file = "# of the rack\nPve1.Example:8006   # the first\n\n pve2.example\r\n[2001:DB8:0::1]\n[2001:db8::2]:443\npve5.example.:9000\n";
        for url in [
            "https://pve1.example:8006",
            "https://PVE1.example:8006/api2/json",
            "https://pve1.example.",
            "pve2.example:8006",
            "https://[2001:db8::1]:8006",
            "[2001:0db8:0:0:0:0:0:1]",
            "https://[2001:db8::2]:443",
            "pve5.example:9000",
        ] {
            assert!(allows(file, url), "{url}");
        }
        for url in [
            "https://pve1.example:8007",
            "https://pve2.example:443",
            "https://[2001:db8::1]:443",
            "https://[2001:db8::2]",
            "https://[2001:db8::3]",
            "pve5.example",
            "https://pve1.example.org",
            "https://evil.example/pve1.example:8006",
            "https://rack",
        ] {
            assert!(!allows(file, url), "{url}");
        }
    }

    #[test]
    fn s9_a_refusal_names_field_value_and_what_to_type() {
        let urls = ["https://pve1", "https://evil.example", "https://pve2"];
        let text = check("pve2\npve1\n", &urls, None).unwrap();
        assert!(
            text.starts_with("spec.endpoints: evil.example:8006 is not in the file endpoints"),
            "{text}"
        );
        assert!(text.contains("which has pve1:8006, pve2:8006, so nothing was sent"));
        assert!(text.contains("add the line `evil.example:8006` to the key endpoints"));
    }

    #[test]
    fn s9_a_file_without_a_line_allows_nothing() {
        for file in ["", "\n \n", "# pve1:8006\n"] {
            let text = check(file, &["https://pve1:8006"], None).unwrap();
            assert!(text.contains("is empty, so that none is allowed"), "{text}");
        }
    }

    #[test]
    fn s9_a_fingerprint_of_the_file_is_asked_of_the_settings() {
        let other = other();
        let file = format!(
            "pve1:8006 {A}\npve2 {}\n",
            A.replace(':', "").to_lowercase()
        );
        let urls = ["https://pve1", "https://pve2"];
        assert_eq!(check(&file, &urls, Some(&[A])), None);
        let text = check(&file, &urls, None).unwrap();
        assert!(
            text.starts_with("spec.tls.fingerprints: it is not set"),
            "{text}"
        );
        let text = check(&file, &urls, Some(&[A, &other])).unwrap();
        assert!(
            text.starts_with(&format!("spec.tls.fingerprints: {other} is not in")),
            "{text}"
        );
        assert!(text.contains(&format!("what stands there ({A})")), "{text}");
        // What init and doctor write.
        let written = super::file(
            &["https://pve1:8006".into(), "https://pve2:8006".into()],
            &[A],
        );
        assert_eq!(check(&written, &urls, Some(&[A])), None);
        assert!(check(&written, &urls, Some(&[&other])).is_some());
        // The new and the old one, while a certificate is renewed.
        let both = format!("pve1 {A} {other}\npve2");
        assert_eq!(check(&both, &urls, Some(&[&other])), None);
        // Without one the settings alone decide.
        assert_eq!(check("pve1\npve2", &urls, Some(&[&other])), None);
    }

    #[test]
    fn s9_a_file_that_cannot_be_read_says_which_line() {
        let text = problem("pve1\n\nhttp://pve2:8006");
        assert!(
            text.starts_with("credentials: endpoints, line 3: "),
            "{text}"
        );
        assert!(text.contains("over TLS only"), "{text}");
        assert!(problem("root:secret@pve1").contains("do not belong into the address"));
        assert!(problem("2001:db8::1").contains("write it as https://HOST:8006"));
        assert!(problem("pve1:80060").contains("line 1: "));
        assert!(problem("pve1 pve2").contains("\"pve2\" is not a SHA-256 fingerprint"));
    }
}
