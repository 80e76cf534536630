//! Who we are to Proxmox: an API token in every request, or a ticket that a login gives for two hours.
//!
//! Owns the credentials and the ticket; the client asks [`Auth::authorize`] before each request and [`Auth::refused`] after
//! a 401. Secrets live in [`SecretString`] and leave it only into a header or the login's body.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::endpoints::{self, Allowed};
use super::transport::Endpoint;

/// Where credentials come from: a folder in production ([`Credentials::read_folder`]), a closure in tests.
pub type CredentialSource =
    Arc<dyn Fn() -> Result<Credentials, CredentialsError> + Send + Sync + 'static>;

/// How old credentials may be before the source is asked again; a mounted Secret changes without notice.
const REREAD: Duration = Duration::from_secs(10);

/// If Proxmox refuses new credentials, the old ones stay in use. If the Secret still holds the new ones after this
/// long, kproxide tries them again.
const REFUSED_REST: Duration = Duration::from_secs(5 * 60);

/// Proxmox: a ticket lives two hours. Renewed at half of that, a failed renewal has an hour to be repaired.
const TICKET_RENEWAL: Duration = Duration::from_secs(60 * 60);

/// Proxmox delays every refusal by three seconds and logs it; the same wrong credentials are not shown again sooner.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// A source of credentials that reads the mounted Secret each time.
pub fn mounted(folder: std::path::PathBuf) -> CredentialSource {
    Arc::new(move || Credentials::read_folder(&folder))
}

/// What Proxmox knows us by, and who may have it.
#[derive(Debug, Clone)]
pub struct Credentials {
    login: Login,
    /// `None`: whatever a ProxmoxCluster names.
    allowed: Option<Allowed>,
}

#[derive(Debug, Clone)]
enum Login {
    /// An API token.
    Token {
        /// `user@realm!name`.
        id: String,
        /// The UUID shown once when the token was made.
        secret: SecretString,
    },
    /// A user's login.
    Password {
        /// `user@realm`.
        username: String,
        /// Its password.
        password: SecretString,
    },
}

/// Why credentials cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialsError {
    /// A file that cannot be read.
    #[error("credentials: cannot read {path}: {problem}")]
    Unreadable {
        /// The file.
        path: String,
        /// The operating system's words.
        problem: String,
    },
    /// None or both of the two kinds.
    #[error(
        "credentials: the folder {folder} must hold either token-id and token-secret, or username and password{found}"
    )]
    Incomplete {
        /// The folder.
        folder: String,
        /// What is there instead.
        found: String,
    },
    /// Not `user@realm!name`.
    #[error(
        "credentials: token-id {0:?} is not of the form user@realm!name (as in `kproxide@pve!autoscaler`)"
    )]
    TokenId(String),
    /// Not `user@realm`.
    #[error("credentials: username {0:?} is not of the form user@realm (as in `kproxide@pve`)")]
    Username(String),
    /// Something that does not fit into a header.
    #[error("credentials: {0} holds characters that cannot be part of it")]
    Characters(&'static str),
    /// A line of the file `endpoints`.
    #[error("credentials: endpoints, line {line}: {problem}")]
    Endpoints {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl Credentials {
    /// Checks a token.
    ///
    /// # Errors
    /// The ID has another form, or either holds control characters.
    pub fn token(id: &str, secret: &str) -> Result<Credentials, CredentialsError> {
        let (id, secret) = (id.trim(), secret.trim());
        let well_formed = id
            .split_once('!')
            .is_some_and(|(user, name)| has_realm(user) && !name.is_empty());
        if !well_formed {
            return Err(CredentialsError::TokenId(id.to_owned()));
        }
        if !visible(id) {
            return Err(CredentialsError::Characters("token-id"));
        }
        if secret.is_empty() || !visible(secret) {
            return Err(CredentialsError::Characters("token-secret"));
        }
        Ok(Credentials::anywhere(Login::Token {
            id: id.to_owned(),
            secret: secret.into(),
        }))
    }

    /// Checks a login.
    ///
    /// # Errors
    /// The user name lacks its realm.
    pub fn password(username: &str, password: &str) -> Result<Credentials, CredentialsError> {
        let username = username.trim();
        if !has_realm(username) {
            return Err(CredentialsError::Username(username.to_owned()));
        }
        Ok(Credentials::anywhere(Login::Password {
            username: username.to_owned(),
            // A file's last line end is not part of a password; blanks may be.
            password: password.trim_end_matches(['\r', '\n']).into(),
        }))
    }

    fn anywhere(login: Login) -> Credentials {
        Credentials {
            login,
            allowed: None,
        }
    }

    /// Reads a mounted Secret: `token-id` and `token-secret`, or `username` and `password`; and `endpoints`, if it is there.
    ///
    /// # Errors
    /// A file is missing, unreadable or malformed. No error shows a secret.
    pub fn read_folder(folder: &Path) -> Result<Credentials, CredentialsError> {
        Self::of_files(&folder.display().to_string(), |name| {
            let path = folder.join(name);
            match std::fs::read_to_string(&path) {
                Ok(text) => Ok(Some(text)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(CredentialsError::Unreadable {
                    path: path.display().to_string(),
                    problem: error.to_string(),
                }),
            }
        })
    }

    /// As [`Self::read_folder`], with files from elsewhere. `folder` is for messages.
    ///
    /// # Errors
    /// As there.
    pub fn of_files(
        folder: &str,
        read: impl Fn(&str) -> Result<Option<String>, CredentialsError>,
    ) -> Result<Credentials, CredentialsError> {
        let names = ["token-id", "token-secret", "username", "password"];
        let [id, secret, username, password] = names.map(&read);
        let credentials = match (id?, secret?, username?, password?) {
            (Some(id), Some(secret), None, None) => Credentials::token(&id, &secret),
            (None, None, Some(username), Some(password)) => {
                Credentials::password(&username, &password)
            }
            (id, secret, username, password) => {
                let there: Vec<&str> = [&id, &secret, &username, &password]
                    .into_iter()
                    .zip(names)
                    .filter_map(|(file, name)| file.as_ref().map(|_| name))
                    .collect();
                Err(CredentialsError::Incomplete {
                    folder: folder.to_owned(),
                    found: match there.as_slice() {
                        [] => "; none of them is there".to_owned(),
                        some => format!("; there is {}", some.join(", ")),
                    },
                })
            }
        }?;
        let allowed = read(endpoints::FILE)?.map(|text| Allowed::read(&text));
        Ok(Credentials {
            allowed: allowed.transpose()?,
            ..credentials
        })
    }

    /// The user or token, for messages and `pveum` lines.
    pub fn name(&self) -> &str {
        match &self.login {
            Login::Token { id, .. } => id,
            Login::Password { username, .. } => username,
        }
    }

    fn same(&self, other: &Credentials) -> bool {
        let is_of_kind =
            std::mem::discriminant(&self.login) == std::mem::discriminant(&other.login);
        is_of_kind && self.name() == other.name() && self.secret() == other.secret()
    }

    fn secret(&self) -> &str {
        match &self.login {
            Login::Token { secret, .. } => secret.expose_secret(),
            Login::Password { password, .. } => password.expose_secret(),
        }
    }
}

/// `user@realm`.
fn has_realm(user: &str) -> bool {
    let parts = user.split_once('@');
    parts.is_some_and(|(user, realm)| !user.is_empty() && !realm.is_empty())
}

fn visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The answer to a login.
#[derive(Deserialize)]
pub(super) struct Ticket {
    #[serde(deserialize_with = "secret")]
    ticket: SecretString,
    #[serde(rename = "CSRFPreventionToken", deserialize_with = "secret")]
    csrf: SecretString,
    #[serde(rename = "NeedTFA", default, deserialize_with = "super::types::flag")]
    pub(super) needs_second_factor: bool,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

/// What a request needs before it can be sent.
pub(super) enum Authorization {
    /// These headers.
    Headers {
        headers: HeaderMap,
        /// Names what was used, for [`Auth::refused`] and [`Auth::accepted`].
        generation: u64,
    },
    /// A login with these first; [`Auth::logged_in`] takes its answer.
    Login {
        username: String,
        password: SecretString,
    },
}

/// Why there is no authorization.
#[derive(Debug)]
pub(super) enum Unauthorized {
    /// The source gives nothing usable.
    Unusable(CredentialsError),
    /// They may not go there; says why.
    NotAllowed(String),
    /// Refused a moment ago.
    Refused,
}

/// The state of being logged in.
pub(super) struct Auth {
    source: CredentialSource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Known>,
    /// Of the last credentials that could be read, whichever are in use: what a person has taken out counts at once.
    allowed: Option<Allowed>,
    /// Those before, which worked, until the ones in use have been accepted.
    before: Option<Known>,
    /// Read, refused, and put aside for those before.
    put_aside: Option<(Credentials, Instant)>,
    /// Why those that the source has now are not the ones in use.
    unused: Option<String>,
    /// Grows with every change of credentials or ticket.
    generation: u64,
}

struct Known {
    credentials: Credentials,
    read_at: Instant,
    ticket: Option<(Ticket, Instant)>,
    refused_at: Option<Instant>,
    /// Proxmox has accepted them.
    worked: bool,
}

impl Auth {
    pub(super) fn new(source: CredentialSource) -> Auth {
        Auth {
            source,
            state: Mutex::default(),
        }
    }

    /// The user or token in use, once there was a request.
    pub(super) async fn name(&self) -> Option<String> {
        let state = self.state.lock().await;
        state
            .known
            .as_ref()
            .map(|known| known.credentials.name().to_owned())
    }

    /// Why the ones in use are not those that the source has now. `None`: they are, as far as is known.
    pub(super) async fn unused(&self) -> Option<String> {
        self.state.lock().await.unused.clone()
    }

    /// Whether they go to any server, once there was a request.
    pub(super) async fn is_anywhere(&self) -> Option<bool> {
        let state = self.state.lock().await;
        state.known.as_ref().map(|_| state.allowed.is_none())
    }

    /// Headers for a request to one of these endpoints, or the login that must come first. If one of them may not have the credentials, none gets them:
    /// somebody has changed what he may not.
    pub(super) async fn authorize(
        &self,
        endpoints: &[Endpoint],
        write: bool,
    ) -> Result<Authorization, Unauthorized> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let suspicious = state
            .known
            .as_ref()
            .is_none_or(|known| known.refused_at.is_some() || now - known.read_at >= REREAD);
        if suspicious {
            state.read(&self.source, now)?;
        }
        let refusal = state.allowed.as_ref();
        if let Some(refusal) = refusal.and_then(|allowed| allowed.refusal(endpoints)) {
            return Err(Unauthorized::NotAllowed(refusal));
        }
        let generation = state.generation;
        let known = state
            .known
            .as_ref()
            .expect("read just now, or an error was returned");
        if let Some(refused_at) = known.refused_at
            && now - refused_at < REFUSED_PAUSE
        {
            return Err(Unauthorized::Refused);
        }
        match (&known.credentials.login, &known.ticket) {
            (Login::Token { id, secret }, _) => Ok(Authorization::Headers {
                headers: token_headers(id, secret),
                generation,
            }),
            (Login::Password { .. }, Some((ticket, since))) if now - *since < TICKET_RENEWAL => {
                Ok(Authorization::Headers {
                    headers: ticket_headers(ticket, write),
                    generation,
                })
            }
            (Login::Password { username, password }, _) => Ok(Authorization::Login {
                username: username.clone(),
                password: password.clone(),
            }),
        }
    }

    /// Keeps a fresh ticket.
    pub(super) async fn logged_in(&self, ticket: Ticket) {
        let mut state = self.state.lock().await;
        state.generation += 1;
        if let Some(known) = &mut state.known {
            known.ticket = Some((ticket, Instant::now()));
            known.refused_at = None;
        }
    }

    /// Takes note of a 401 on what `generation` named; true if it is worth trying again now.
    pub(super) async fn refused(&self, generation: u64) -> bool {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if state.generation != generation {
            // Another call has renewed the ticket already.
            return true;
        }
        let before = state.generation;
        // An unreadable source changes nothing; the refusal stands.
        let _ = state.read(&self.source, now);
        if state.generation != before {
            return true;
        }
        state.generation += 1;
        let Some(known) = &mut state.known else {
            return false;
        };
        // A ticket ends early when the server's key rotates; a token that was refused stays refused.
        let had_ticket = known.ticket.take().is_some();
        had_ticket || state.note_refusal(now)
    }

    /// Takes note of a request that was accepted with what `generation` named. An answer that comes late says nothing of what is in use by now.
    pub(super) async fn accepted(&self, generation: u64) {
        let mut state = self.state.lock().await;
        if state.generation != generation {
            return;
        }
        state.before = None;
        let Some(known) = &mut state.known else {
            return;
        };
        known.refused_at = None;
        // Those before have worked earlier: that they still do says nothing of the new ones.
        if !std::mem::replace(&mut known.worked, true) {
            state.unused = None;
        }
    }

    /// Takes note of a refused login.
    pub(super) async fn login_refused(&self) {
        self.state.lock().await.note_refusal(Instant::now());
    }
}

impl State {
    fn read(&mut self, source: &CredentialSource, now: Instant) -> Result<(), Unauthorized> {
        let read = source();
        if let Ok(read) = &read {
            self.allowed.clone_from(&read.allowed);
        }
        match (read, &mut self.known) {
            (Ok(read), Some(known)) if known.credentials.same(&read) => {
                known.read_at = now;
                // Back from where they were changed. New ones are not known to be right before they are accepted.
                if known.worked {
                    self.unused = None;
                }
            }
            (Ok(read), Some(known)) if is_put_aside(self.put_aside.as_ref(), &read, now) => {
                known.read_at = now;
                self.unused = Some(refusal(&read));
            }
            (Ok(read), known) => {
                self.generation += 1;
                self.put_aside = None;
                let fresh = Known {
                    credentials: read,
                    read_at: now,
                    ticket: None,
                    refused_at: None,
                    worked: false,
                };
                let before = known.replace(fresh);
                let worked = |known: &Known| known.worked && known.refused_at.is_none();
                // Of several that come one after the other untried, those that worked stay at hand.
                self.before = before.filter(worked).or(self.before.take());
            }
            // A Secret that is being replaced must not stop what still works.
            (Err(error), Some(known)) => {
                known.read_at = now;
                let problem =
                    format!("{error}. The last credentials that could be read stay in use");
                if self.unused.as_ref() != Some(&problem) {
                    tracing::warn!(%error, "credentials cannot be read again, the last ones stay in use");
                    self.unused = Some(problem);
                }
            }
            (Err(error), None) => return Err(Unauthorized::Unusable(error)),
        }
        Ok(())
    }

    /// The credentials in use were refused; true if others are in use now.
    fn note_refusal(&mut self, now: Instant) -> bool {
        let Some(before) = self.before.take() else {
            // Those that were put aside may be the better ones after all.
            (self.put_aside, self.unused) = (None, None);
            if let Some(known) = &mut self.known {
                known.refused_at = Some(now);
            }
            return false;
        };
        self.generation += 1;
        if let Some(refused) = self.known.replace(before) {
            tracing::warn!(
                refused = refused.credentials.name(),
                "Proxmox refuses the new credentials; the ones before, which worked, stay in use"
            );
            self.unused = Some(refusal(&refused.credentials));
            self.put_aside = Some((refused.credentials, now));
        }
        true
    }
}

fn refusal(refused: &Credentials) -> String {
    format!(
        "Proxmox refuses the new credentials ({}). Those before, which worked, stay in use",
        refused.name()
    )
}

fn is_put_aside(
    put_aside: Option<&(Credentials, Instant)>,
    read: &Credentials,
    now: Instant,
) -> bool {
    put_aside.is_some_and(|(credentials, at)| credentials.same(read) && now - *at < REFUSED_REST)
}

fn token_headers(id: &str, secret: &SecretString) -> HeaderMap {
    let value = format!("PVEAPIToken={id}={}", secret.expose_secret());
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, sensitive(&value));
    headers
}

fn ticket_headers(ticket: &Ticket, write: bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let cookie = format!("PVEAuthCookie={}", ticket.ticket.expose_secret());
    headers.insert(header::COOKIE, sensitive(&cookie));
    // Proxmox: required on everything but GET.
    if write {
        headers.insert(
            "CSRFPreventionToken",
            sensitive(ticket.csrf.expose_secret()),
        );
    }
    headers
}

fn sensitive(value: &str) -> HeaderValue {
    // Tokens were checked when read; a ticket with control characters is none, and its request will be refused.
    let mut value = HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static("invalid"));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests;
