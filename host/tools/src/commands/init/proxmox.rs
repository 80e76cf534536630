//! One Proxmox cluster: nothing is sent to it before its certificate is confirmed.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join_all;
use secrecy::{ExposeSecret as _, SecretString};

use super::Problem;
use super::ask::{Asker, Question, typed};
use super::given::{Given, UNNAMED};
use kproxide_common::paths::AUTHORITIES;
use kproxide_pve::auth::Credentials;
use kproxide_pve::client::Client;
use kproxide_pve::error::{Error, Meaning};
use kproxide_pve::inventory::Inventory;
use kproxide_pve::limits::Concurrency;
use kproxide_pve::members::{Greeting, Member, fingerprint, greet};
use kproxide_pve::tls::{Fingerprint, Trust, TrustFailure};

/// As many as a ProxmoxCluster may have.
const ENDPOINTS_MAX: usize = 16;
const PORT: &str = "8006";
/// The defaults of the API and of the chart.
pub(super) const POOL: &str = "kproxide";
pub(super) const VMID_RANGE: (u32, u32) = (20_000, 20_999);

/// By what the servers' certificates are known.
pub(super) enum Trusted {
    /// One for each server.
    Fingerprints(Vec<Fingerprint>),
    /// The authority's certificate as PEM.
    Authority(PathBuf, Vec<u8>),
    /// A public authority vouches.
    Publicly,
}

/// What is known and wished of a Proxmox cluster.
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) endpoints: Vec<String>,
    pub(super) trusted: Trusted,
    pub(super) token_id: String,
    pub(super) token_secret: SecretString,
    pub(super) pool: String,
    pub(super) vmid_range: (u32, u32),
    /// Where machines are made.
    pub(super) servers: Vec<String>,
    pub(super) inventory: Inventory,
    pub(super) client: Client,
}

impl Trusted {
    fn trust(&self) -> Trust {
        match self {
            Self::Fingerprints(all) => Trust::Fingerprints(all.clone()),
            Self::Authority(path, pem) => Trust::Ca(path.clone(), pem.clone()),
            Self::Publicly => Trust::System,
        }
    }
}

impl Cluster {
    /// # Errors
    /// Proxmox is not reachable, not the one that is meant, or refuses; or an answer is missing.
    pub(super) async fn ask(
        asker: &Asker,
        out: &mut impl Write,
        name: &str,
        given: &Given,
    ) -> Result<Self, Problem> {
        let flag = flag_of(name);
        let (mut endpoints, mut trusted) = loop {
            let endpoints = ask_endpoints(asker, given, &flag("--endpoint"))?;
            match confirm(asker, out, given, &endpoints, &flag("--fingerprint")).await {
                Ok(trusted) => break (endpoints, trusted),
                Err(problem) => asker.asks_again(problem, given.endpoints.is_empty())?,
            }
        };
        let failed = |error: Error| Problem::proxmox(error.chain());
        let (token, client, version) = loop {
            let token = Token::ask(asker, given, &flag)?;
            let client = token.client(&endpoints, &trusted)?;
            let error = match client.version().await {
                Ok(version) => break (token, client, version),
                Err(error) => error,
            };
            let was_asked = given.token_id.is_none() || given.token_secret.is_none();
            // No other token would mend anything else.
            let is_refused = error.meaning == Meaning::Unauthorized;
            asker.asks_again(failed(error), was_asked && is_refused)?;
        };
        let members = client.members().await.map_err(failed)?;
        let inventory = client.inventory().await.map_err(failed)?;
        let names: Vec<&str> = members.iter().map(|it| it.name.as_str()).collect();
        writeln!(
            out,
            "Proxmox VE {}, servers: {}",
            version.version,
            names.join(", ")
        )?;
        let notes = reach(&mut endpoints, &mut trusted, &members).await;
        for note in notes {
            writeln!(out, "{note}")?;
        }

        let pool = ask_pool(asker, given, &inventory, &flag("--pool"))?;
        let vmid_range = ask_vmid_range(asker, given, &flag("--vmid-range"))?;
        let mut all: Vec<String> = inventory
            .hypervisors
            .iter()
            .map(|it| it.name.clone())
            .collect();
        all.sort();
        let question = Question {
            text: "Servers on which machines are made",
            flag: &flag("--server"),
        };
        Ok(Self {
            name: name.to_owned(),
            endpoints,
            trusted,
            token_id: token.id,
            token_secret: token.secret,
            pool,
            vmid_range,
            servers: asker.some(question, &given.servers, &all)?,
            inventory,
            client,
        })
    }

    /// Each answer that is missing or cannot be used, where nobody can be asked, as far as that shows before Proxmox is
    /// asked. No secret is read.
    pub(super) async fn lacking(name: &str, given: &Given) -> Vec<Problem> {
        let nobody = &Asker::Nobody;
        let flag = flag_of(name);
        let certificate = flag("--fingerprint");
        let mut lacking = Vec::new();
        match ask_endpoints(nobody, given, &flag("--endpoint")) {
            Ok(endpoints) => {
                let mut unseen = io::sink();
                let shown = confirm(nobody, &mut unseen, given, &endpoints, &certificate).await;
                lacking.extend(shown.err());
            }
            Err(problem) => {
                lacking.push(problem);
                if given.fingerprints.is_empty() && given.ca_file.is_none() {
                    let question = Question {
                        text: "Fingerprint of its certificate, unless a public authority vouches for it",
                        flag: &format!("{certificate} (or --ca-file)"),
                    };
                    lacking.push(question.missing());
                }
            }
        }
        lacking.extend(ask_token_id(nobody, given, &flag).err());
        if given.token_secret.is_none() {
            let flag = flag("--token-secret-file");
            lacking.push(secret_question(&flag).missing());
        }
        lacking.extend(ask_vmid_range(nobody, given, &flag("--vmid-range")).err());
        lacking
    }

    /// Machines may be made on each server, also on those to come.
    pub(super) fn has_all_servers(&self) -> bool {
        self.servers.len() == self.inventory.hypervisors.len()
    }
}

/// How a flag is given for the Proxmox cluster of that name.
fn flag_of(name: &str) -> impl Fn(&str) -> String {
    move |flag| match name {
        UNNAMED => flag.to_owned(),
        name => format!("{flag} {name}=…"),
    }
}

fn ask_endpoints(asker: &Asker, given: &Given, flag: &str) -> Result<Vec<String>, Problem> {
    let mut endpoints = given.endpoints.clone();
    if endpoints.is_empty() {
        let question = Question {
            text: "Address of any server of the Proxmox cluster, such as https://10.0.0.1:8006",
            flag,
        };
        endpoints.push(asker.text(question, None, None, &check_url)?);
    }
    for url in &mut endpoints {
        *url = address(url).map_err(|why| Problem::input(format!("--endpoint {url}: {why}")))?;
    }
    Ok(endpoints)
}

struct Token {
    id: String,
    secret: SecretString,
}

impl Token {
    fn ask(asker: &Asker, given: &Given, flag: &impl Fn(&str) -> String) -> Result<Self, Problem> {
        let id = ask_token_id(asker, given, flag)?;
        let is_secret = |secret: &str| match Credentials::token(&id, secret) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        let flag = flag("--token-secret-file");
        let question = secret_question(&flag);
        let secret = asker.secret(question, given.token_secret.as_deref(), &is_secret)?;
        Ok(Self { id, secret })
    }

    fn client(&self, endpoints: &[String], trusted: &Trusted) -> Result<Client, Problem> {
        let credentials = Credentials::token(&self.id, self.secret.expose_secret());
        let credentials = Arc::new(move || credentials.clone());
        let concurrency = Concurrency::default();
        let client = Client::https(endpoints, &trusted.trust(), credentials, concurrency);
        client.map_err(|error| Problem::proxmox(kproxide_common::chain::chain(&error)))
    }
}

fn ask_token_id(
    asker: &Asker,
    given: &Given,
    flag: &impl Fn(&str) -> String,
) -> Result<String, Problem> {
    let question = Question {
        text: "API token, such as kproxide@pve!autoscaler",
        flag: &flag("--token-id"),
    };
    asker.text(question, given.token_id.as_deref(), None, &check_token_id)
}

fn check_token_id(id: &str) -> Result<(), String> {
    // What follows is the secret, and an ID is kept.
    if id.contains('=') {
        return Err("give what stands before `=`: the secret is asked for by itself".to_owned());
    }
    match Credentials::token(id, "a") {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn secret_question(flag: &str) -> Question<'_> {
    Question {
        text: "The token's secret",
        flag,
    }
}

fn ask_vmid_range(asker: &Asker, given: &Given, flag: &str) -> Result<(u32, u32), Problem> {
    let question = Question {
        text: "VMIDs of the machines, which nobody else uses",
        flag,
    };
    let (first, last) = VMID_RANGE;
    let range = asker.text(
        question,
        given.vmid_range.as_deref(),
        Some(&format!("{first}-{last}")),
        &|text| vmid_range(text).map(|_| ()),
    )?;
    vmid_range(&range).map_err(Problem::input)
}

/// By whom the certificate of the endpoints is vouched for.
async fn confirm(
    asker: &Asker,
    out: &mut impl Write,
    given: &Given,
    endpoints: &[String],
    flag: &str,
) -> Result<Trusted, Problem> {
    if let Some(path) = &given.ca_file {
        let pem = fs::read(path)
            .map_err(|error| Problem::input(format!("--ca-file {}: {error}", path.display())))?;
        let trusted = Trusted::Authority(path.clone(), pem);
        return all_shown(endpoints, trusted).await;
    }
    if !given.fingerprints.is_empty() {
        let read = given.fingerprints.iter().map(|text| text.parse());
        let read: Result<Vec<Fingerprint>, _> = read.collect();
        let read = read.map_err(|error| Problem::input(format!("--fingerprint: {error}")))?;
        return all_shown(endpoints, Trusted::Fingerprints(read)).await;
    }
    if let Ok(trusted) = all_shown(endpoints, Trusted::Publicly).await {
        writeln!(
            out,
            "{}: a public authority vouches for its certificate",
            endpoints.join(", ")
        )?;
        return Ok(trusted);
    }
    let mut confirmed = Vec::new();
    for url in endpoints {
        let seen = fingerprint(url).await;
        let seen = seen.map_err(|why| Problem::proxmox(format!("{url}: {why}")))?;
        let Asker::Person(kept) = asker else {
            return Err(Problem::input(format!(
                "{url} shows a certificate with the fingerprint {seen}, which nobody has confirmed: compare it with what setup.sh printed, and give {flag} (or --ca-file)"
            )));
        };
        writeln!(
            out,
            "\n{url} shows a certificate with this SHA-256 fingerprint:\n  {seen}\nsetup.sh prints it, and Proxmox shows it at the server, under System > Certificates."
        )?;
        // Of another certificate the earlier answer says nothing.
        let key = format!("{flag} {url}");
        let was_confirmed = kept.one(&key) == Some(seen.to_string());
        if was_confirmed {
            writeln!(out, "You have confirmed it before.")?;
        }
        out.flush()?;
        let answer = typed(
            "Is it the same? Write yes or no, or paste the other one, which is then compared",
            was_confirmed.then_some("yes"),
            &|answer| is_same(answer, seen).map(|_| ()),
        )?;
        if !is_same(&answer, seen).map_err(Problem::input)? {
            return Err(Problem::proxmox(format!(
                "the certificate of {url} is not confirmed: it has another fingerprint than the one that you know. Nothing was sent to it"
            )));
        }
        kept.keep(&key, &[seen.to_string()])?;
        confirmed.push(seen);
    }
    Ok(Trusted::Fingerprints(confirmed))
}

/// A whole word, or the fingerprint that somebody knows from elsewhere, such as the line that setup.sh prints.
fn is_same(answer: &str, seen: Fingerprint) -> Result<bool, String> {
    let known = answer.trim_start_matches("fingerprint:");
    match (
        answer.to_ascii_lowercase().as_str(),
        known.parse::<Fingerprint>(),
    ) {
        ("yes", _) => Ok(true),
        ("no", _) => Ok(false),
        (_, Ok(known)) => Ok(seen == known),
        (_, Err(_)) => Err(
            "write yes or no, or paste a whole SHA-256 fingerprint, which has 64 digits".to_owned(),
        ),
    }
}

/// Each endpoint shows a certificate that is trusted so.
async fn all_shown(endpoints: &[String], trusted: Trusted) -> Result<Trusted, Problem> {
    let trust = trusted.trust();
    for url in endpoints {
        let text = match greet(url, &trust).await {
            Ok(Greeting::Trusted) => continue,
            Ok(Greeting::Untrusted(TrustFailure::Fingerprint { expected, seen })) => {
                let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
                format!(
                    "it shows a certificate with the fingerprint {seen}, and not with {}. Nothing was sent to it",
                    expected.join(" or ")
                )
            }
            Ok(Greeting::Untrusted(failure)) => failure.to_string(),
            Ok(Greeting::Silent(why)) => why,
            Err(error) => kproxide_common::chain::chain(&error),
        };
        return Err(Problem::proxmox(format!("{url}: {text}")));
    }
    Ok(trusted)
}

/// Adds the other servers, as far as they answer from here with the certificates that the confirmed one knows of. Says
/// which do not.
async fn reach(
    endpoints: &mut Vec<String>,
    trusted: &mut Trusted,
    members: &[Member],
) -> Vec<String> {
    let first = endpoints.first().map_or("", String::as_str);
    let port = port_of(first).to_owned();
    let others = members.iter().filter(|it| !it.is_local);
    let others = others.filter_map(|it| {
        let host = it.address.as_deref()?;
        let host = match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{host}]"),
            Ok(IpAddr::V4(_)) | Err(_) => host.to_owned(),
        };
        Some((it, format!("https://{host}:{port}")))
    });
    let others: Vec<(&Member, String)> =
        others.filter(|(_, url)| !endpoints.contains(url)).collect();
    let answers = others.iter().map(async |(member, url)| {
        let trust = match (&*trusted, member.fingerprint) {
            (Trusted::Fingerprints(_), Some(told)) => Trust::Fingerprints(vec![told]),
            (Trusted::Fingerprints(_), None) => {
                return Some("the cluster does not know its certificate".to_owned());
            }
            (Trusted::Authority(..) | Trusted::Publicly, _) => trusted.trust(),
        };
        match greet(url, &trust).await {
            Ok(Greeting::Trusted) => None,
            Ok(Greeting::Untrusted(failure)) => Some(failure.to_string()),
            Ok(Greeting::Silent(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        }
    });
    let answers = join_all(answers).await;
    let mut notes = Vec::new();
    for ((member, url), problem) in others.into_iter().zip(answers) {
        let problem = problem.or_else(|| {
            let is_full = endpoints.len() == ENDPOINTS_MAX;
            is_full.then(|| format!("there are {ENDPOINTS_MAX} others"))
        });
        if let Some(problem) = problem {
            notes.push(format!(
                "{} is no endpoint, because of {url}: {problem}. kproxide uses it all the same, through the others",
                member.name
            ));
            continue;
        }
        if let (Trusted::Fingerprints(all), Some(told)) = (&mut *trusted, member.fingerprint)
            && !all.contains(&told)
        {
            all.push(told);
        }
        endpoints.push(url);
    }
    notes
}

fn ask_pool(
    asker: &Asker,
    given: &Given,
    inventory: &Inventory,
    flag: &str,
) -> Result<String, Problem> {
    let question = Question {
        text: "Proxmox pool of the machines",
        flag,
    };
    let pools: Vec<String> = inventory.pools.iter().cloned().collect();
    let given = given.pool.as_deref();
    if pools.is_empty() {
        // The token may see none. Doctor says so.
        return asker.text(question, given, Some(POOL), &|_| Ok(()));
    }
    let usual = pools.iter().position(|pool| pool == POOL);
    let chosen = asker.one(question, given, &pools, usual)?;
    Ok(pools[chosen].clone())
}

fn check_url(url: &str) -> Result<(), String> {
    address(url).map(|_| ())
}

/// `https://HOST:PORT` of what people write.
fn address(written: &str) -> Result<String, String> {
    let trust = Trust::Fingerprints(vec![Fingerprint::of(b"")]);
    match kproxide_pve::transport::https(written, &trust, kproxide_pve::client::CONNECT_TIMEOUT) {
        Ok(endpoint) => Ok(format!("https://{}", endpoint.name)),
        Err(error) => Err(error.to_string()),
    }
}

fn port_of(url: &str) -> &str {
    let port = url.rsplit_once(':').map(|(_, port)| port);
    port.filter(|port| port.bytes().all(|it| it.is_ascii_digit()))
        .unwrap_or(PORT)
}

fn vmid_range(text: &str) -> Result<(u32, u32), String> {
    let wrong =
        || format!("{text:?} is no range of VMIDs from 100 to 999999999, such as 20000-20999");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    match 100 <= first && first <= last && last <= 999_999_999 {
        true => Ok((first, last)),
        false => Err(wrong()),
    }
}

/// Where the pod has the certificate of a cluster's authority.
pub(super) fn ca_path(name: &str) -> PathBuf {
    Path::new(AUTHORITIES).join(format!("{name}.pem"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o7_only_the_whole_word_or_the_same_fingerprint_confirms() {
        let seen = Fingerprint::of(b"certificate");
        let other = Fingerprint::of(b"another").to_string();
        let hex = seen.to_string();
        let lines = ["SHA256 Fingerprint=", "fingerprint: "].map(|it| format!("{it}{hex}"));
        for same in [
            "yes",
            "YES",
            &hex,
            &hex.to_lowercase(),
            &lines[0],
            &lines[1],
        ] {
            assert_eq!(is_same(same, seen), Ok(true), "{same}");
        }
        for not in ["no", "No", &other, &other.replace(':', "")] {
            assert_eq!(is_same(not, seen), Ok(false), "{not}");
        }
        for unclear in ["maybe", "y", "n", "yes, it is", "", &hex[3..]] {
            let said = is_same(unclear, seen).unwrap_err();
            assert!(said.starts_with("write yes or no"), "{unclear}: {said}");
        }
    }

    #[test]
    fn an_id_with_its_secret_is_refused_because_ids_are_kept() {
        check_token_id("kproxide@pve!autoscaler").unwrap();
        let said = check_token_id("kproxide@pve!autoscaler=hush").unwrap_err();
        assert!(
            said.contains("before `=`") && !said.contains("hush"),
            "{said}"
        );
        assert!(
            check_token_id("root")
                .unwrap_err()
                .contains("user@realm!name")
        );
    }

    #[tokio::test]
    async fn o22_all_that_a_proxmox_cluster_lacks_is_named_at_once() {
        let lacking = Cluster::lacking("home", &Given::default()).await;
        let flags: Vec<&str> = lacking
            .iter()
            .map(|it| it.text.rsplit_once(": give ").unwrap().1)
            .collect();
        assert_eq!(
            flags,
            [
                "--endpoint home=…",
                "--fingerprint home=… (or --ca-file)",
                "--token-id home=…",
                "--token-secret-file home=…",
            ]
        );
        let given = Given {
            endpoints: vec!["http://pve1".to_owned()],
            fingerprints: vec!["AA".to_owned()],
            token_id: Some("root".to_owned()),
            token_secret: Some("-".into()),
            vmid_range: Some("9-1".to_owned()),
            ..Given::default()
        };
        let wrong = Cluster::lacking(UNNAMED, &given).await;
        let wrong: Vec<&str> = wrong.iter().map(|it| it.text.as_str()).collect();
        let begins = [
            "--endpoint http://pve1",
            "--token-id root",
            "--vmid-range 9-1",
        ];
        assert_eq!(wrong.len(), begins.len(), "{wrong:?}");
        for (wrong, begin) in wrong.iter().zip(begins) {
            assert!(wrong.starts_with(begin), "{wrong}");
        }
    }

    #[test]
    fn addresses_and_ranges_are_read_as_people_write_them() {
        assert_eq!(address("pve1").unwrap(), "https://pve1:8006");
        assert_eq!(
            address("https://[fd00::1]:8007/api2/json").unwrap(),
            "https://[fd00::1]:8007"
        );
        assert_eq!(
            address("https://pve1:8006/api2/json/").unwrap(),
            "https://pve1:8006"
        );
        assert!(address("http://pve1").unwrap_err().contains("TLS"));
        assert_eq!(port_of("https://[fd00::1]:8007"), "8007");
        assert_eq!(port_of("https://pve1:8006"), "8006");
        assert_eq!(vmid_range("500-599").unwrap(), (500, 599));
        for wrong in ["500", "599-500", "99-200", "a-b", "100-1000000000"] {
            assert!(
                vmid_range(wrong).unwrap_err().contains("20000-20999"),
                "{wrong}"
            );
        }
    }
}
