//! Who may do what: users, API tokens, tickets and the access control list.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderMap, Method, header};
use sha2::{Digest, Sha256};

use super::answer::{Refusal, percent_decode};
use super::state::State;
use super::topology::{AclSpec, UserSpec, Version};

/// A ticket is refused this many seconds after it was given out.
const TICKET_LIFETIME_S: i64 = 2 * 60 * 60;

/// Every privilege the simulation knows; what `Administrator` stands for.
const PRIVILEGES: [&str; 36] = [
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Group.Allocate",
    "Mapping.Audit",
    "Mapping.Modify",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.Allocate",
    "SDN.Allocate",
    "SDN.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Backup",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Migrate",
    "VM.PowerMgmt",
    "VM.Snapshot",
];

/// The privileges for the guest agent, which 9 split from `VM.Monitor`.
const AGENT_V8: [&str; 1] = ["VM.Monitor"];
const AGENT_V9: [&str; 5] = [
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
    "VM.GuestAgent.Unrestricted",
];

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `name@realm`
    pub(crate) user: String,
    pub(crate) token: Option<String>,
}

impl Identity {
    /// `name@realm` or `name@realm!token`, as in UPIDs and logs.
    pub(crate) fn full(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.user),
            None => self.user.clone(),
        }
    }

    /// Proxmox compares the name literally: a token of root is not root.
    pub(crate) fn is_root(&self) -> bool {
        self.user == "root@pam" && self.token.is_none()
    }
}

/// Privilege → whether it reaches further down the tree.
pub(crate) type Privileges = BTreeMap<String, bool>;

pub(crate) struct Access {
    users: BTreeMap<String, User>,
    /// Path → subject → grant.
    acl: BTreeMap<String, BTreeMap<String, Grant>>,
    /// Ticket → (user, when it was given out).
    tickets: BTreeMap<String, (String, i64)>,
}

struct User {
    password: Option<String>,
    tokens: BTreeMap<String, Token>,
}

struct Token {
    secret: String,
    privsep: bool,
    expire: i64,
}

struct Grant {
    privileges: BTreeSet<String>,
    propagate: bool,
}

impl Access {
    pub(crate) fn new(users: Vec<UserSpec>, grants: Vec<AclSpec>) -> Access {
        let mut access = Access {
            users: BTreeMap::new(),
            acl: BTreeMap::new(),
            tickets: BTreeMap::new(),
        };
        for UserSpec {
            name,
            password,
            tokens,
        } in users
        {
            let tokens = tokens.into_iter().map(|spec| {
                let token = Token {
                    secret: spec.secret,
                    privsep: spec.privsep,
                    expire: spec.expire,
                };
                (spec.id, token)
            });
            let tokens = tokens.collect();
            access.users.insert(name, User { password, tokens });
        }
        for AclSpec {
            path,
            subject,
            privileges,
            propagate,
        } in grants
        {
            let grant = Grant {
                privileges: privileges.into_iter().collect(),
                propagate,
            };
            access.acl.entry(path).or_default().insert(subject, grant);
        }
        access
    }

    /// Who sends these headers; otherwise the reason of the 401.
    pub(crate) fn authenticate(
        &self,
        method: &Method,
        headers: &HeaderMap,
        now: i64,
    ) -> Result<Identity, &'static str> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) =
            text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("PVEAPIToken="))
        {
            return self.by_token(token, now).ok_or("Authentication failed!");
        }
        let cookies = text(header::COOKIE).unwrap_or_default();
        let mut cookies = cookies.split(';').map(str::trim);
        let Some(ticket) = cookies.find_map(|cookie| cookie.strip_prefix("PVEAuthCookie=")) else {
            return Err("No ticket");
        };
        let ticket = percent_decode(ticket, false);
        let user = self
            .by_ticket(&ticket, now)
            .ok_or("Authentication failed!")?;
        let csrf = headers
            .get("CSRFPreventionToken")
            .and_then(|value| value.to_str().ok());
        if method != Method::GET && csrf != Some(&csrf_token(&ticket)) {
            return Err("Permission denied - invalid csrf token");
        }
        Ok(Identity { user, token: None })
    }

    fn by_token(&self, text: &str, now: i64) -> Option<Identity> {
        let (full, secret) = text.split_once('=')?;
        let (user, id) = full.split_once('!')?;
        let token = self.users.get(user)?.tokens.get(id)?;
        let valid = token.secret == secret && (token.expire == 0 || now < token.expire);
        valid.then(|| Identity {
            user: user.to_owned(),
            token: Some(id.to_owned()),
        })
    }

    fn by_ticket(&self, ticket: &str, now: i64) -> Option<String> {
        let (user, issued) = self.tickets.get(ticket)?;
        (now < issued + TICKET_LIFETIME_S).then(|| user.clone())
    }

    /// A login by password, or the renewal of a ticket by sending it as the password. Returns the ticket and the
    /// token that guards against forged requests.
    pub(crate) fn log_in(
        &mut self,
        user: &str,
        password: &str,
        now: i64,
    ) -> Option<(String, String)> {
        let known = self.users.get(user)?;
        let renewal = self
            .by_ticket(password, now)
            .is_some_and(|owner| owner == user);
        if !renewal && known.password.as_deref() != Some(password) {
            return None;
        }
        let ticket = format!(
            "PVE:{user}:{now:08X}::{}",
            digest(&format!("ticket {user} {now} {}", self.tickets.len()))
        );
        self.tickets.insert(ticket.clone(), (user.to_owned(), now));
        let csrf = csrf_token(&ticket);
        Some((ticket, csrf))
    }

    /// Takes a token away, as an administrator would. Returns whether there was one.
    pub(crate) fn revoke(&mut self, user: &str, token: &str) -> bool {
        self.users
            .get_mut(user)
            .is_some_and(|user| user.tokens.remove(token).is_some())
    }

    /// Replaces all users and their tokens.
    pub(crate) fn set_users(&mut self, users: Vec<UserSpec>) {
        self.users = Access::new(users, Vec::new()).users;
    }

    /// Replaces all grants.
    pub(crate) fn set_acl(&mut self, grants: Vec<AclSpec>) {
        self.acl = Access::new(Vec::new(), grants).acl;
    }

    /// Paths that a grant names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &String> {
        self.acl.keys()
    }

    /// The grant to exactly this subject that counts at `path`: the one nearest to its end.
    fn grant(&self, subject: &str, path: &str) -> Option<&Grant> {
        let grants = prefixes(path).filter_map(|prefix| {
            let grant = self.acl.get(prefix)?.get(subject)?;
            (prefix == path || grant.propagate).then_some(grant)
        });
        grants.last()
    }

    fn is_granted(&self, subject: &str, path: &str, privilege: &str, version: Version) -> bool {
        self.grant(subject, path).is_some_and(|grant| {
            match grant.privileges.contains("Administrator") {
                true => is_privilege(privilege, version),
                false => grant.privileges.contains(privilege),
            }
        })
    }

    /// What was granted to exactly this subject along `path`.
    fn granted(&self, subject: &str, path: &str, version: Version) -> Privileges {
        let Some(grant) = self.grant(subject, path) else {
            return Privileges::new();
        };
        let names: Vec<String> = match grant.privileges.contains("Administrator") {
            true => every_privilege(version),
            false => grant.privileges.iter().cloned().collect(),
        };
        let names = names.into_iter();
        names.map(|name| (name, grant.propagate)).collect()
    }
}

impl State {
    /// What `who` may do at `path`.
    pub(crate) fn privileges(&self, who: &Identity, path: &str) -> Privileges {
        let of_user = if who.user == "root@pam" {
            every_privilege(self.version)
                .into_iter()
                .map(|name| (name, true))
                .collect()
        } else {
            self.granted_with_pools(&who.user, path)
        };
        let Some(token) = &who.token else {
            return of_user;
        };
        let separated = self
            .access
            .users
            .get(&who.user)
            .and_then(|user| user.tokens.get(token))
            .is_some_and(|t| t.privsep);
        if !separated {
            return of_user;
        }
        let mut of_token = self.granted_with_pools(&who.full(), path);
        of_token.retain(|name, _| of_user.contains_key(name));
        of_token
    }

    /// A machine and a storage also have what was granted on their pool.
    fn granted_with_pools(&self, subject: &str, path: &str) -> Privileges {
        let mut found = self.access.granted(subject, path, self.version);
        for (name, _) in self.pools.iter().filter(|(_, pool)| is_in_pool(path, pool)) {
            found.extend(
                self.access
                    .granted(subject, &format!("/pool/{name}"), self.version),
            );
        }
        found
    }

    /// As [`Self::privileges`], of one privilege: asked for every machine of every list, and so without making the set.
    pub(crate) fn may(&self, who: &Identity, path: &str, privilege: &str) -> bool {
        let user_may = match who.user.as_str() {
            "root@pam" => is_privilege(privilege, self.version),
            user => self.is_granted_with_pools(user, path, privilege),
        };
        let Some(token) = &who.token else {
            return user_may;
        };
        let user = self.access.users.get(&who.user);
        let separated = user
            .and_then(|user| user.tokens.get(token))
            .is_some_and(|token| token.privsep);
        user_may && (!separated || self.is_granted_with_pools(&who.full(), path, privilege))
    }

    fn is_granted_with_pools(&self, subject: &str, path: &str, privilege: &str) -> bool {
        let granted = |path: &str| {
            self.access
                .is_granted(subject, path, privilege, self.version)
        };
        granted(path)
            || self
                .pools
                .iter()
                .any(|(name, pool)| is_in_pool(path, pool) && granted(&format!("/pool/{name}")))
    }

    /// Refuses unless `who` has the privilege at the path.
    pub(crate) fn require(
        &self,
        who: &Identity,
        path: &str,
        privilege: &str,
    ) -> Result<(), Refusal> {
        self.require_any(who, path, &[privilege])
    }

    /// Refuses unless `who` has at least one of the privileges at the path.
    pub(crate) fn require_any(
        &self,
        who: &Identity,
        path: &str,
        privileges: &[&str],
    ) -> Result<(), Refusal> {
        if privileges
            .iter()
            .any(|privilege| self.may(who, path, privilege))
        {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!(
            "{path}, {}",
            privileges.join("|")
        )))
    }

    /// The answer of `GET /access/permissions` without a path: every path at which `who` may do something.
    pub(crate) fn all_privileges(&self, who: &Identity) -> BTreeMap<String, Privileges> {
        let fixed = [
            "/",
            "/access",
            "/access/groups",
            "/access/realm",
            "/nodes",
            "/pool",
            "/sdn",
            "/storage",
            "/vms",
        ];
        let mut paths: BTreeSet<String> = fixed.iter().map(|path| (*path).to_owned()).collect();
        paths.extend(self.access.paths().cloned());
        paths.extend(self.pools.keys().map(|name| format!("/pool/{name}")));
        paths.extend(self.nodes.keys().map(|name| format!("/nodes/{name}")));
        paths.extend(self.storages.keys().map(|name| format!("/storage/{name}")));
        paths.extend(self.vms.keys().map(|vmid| format!("/vms/{vmid}")));
        let found = paths
            .into_iter()
            .map(|path| (path.clone(), self.privileges(who, &path)));
        found
            .filter(|(_, privileges)| !privileges.is_empty())
            .collect()
    }
}

/// Whether a path is of something that is in a pool.
fn is_in_pool(path: &str, pool: &super::state::Pool) -> bool {
    match path.split_once('/').map(|(_, rest)| rest.split_once('/')) {
        Some(Some(("vms", id))) => id.parse().is_ok_and(|vmid| pool.vms.contains(&vmid)),
        Some(Some(("storage", name))) => pool.storages.contains(name),
        Some(Some(_) | None) | None => false,
    }
}

fn is_privilege(name: &str, version: Version) -> bool {
    let agent: &[&str] = match version {
        Version::V8 => &AGENT_V8,
        Version::V9 => &AGENT_V9,
    };
    PRIVILEGES.contains(&name) || agent.contains(&name)
}

fn every_privilege(version: Version) -> Vec<String> {
    let agent: &[&str] = match version {
        Version::V8 => &AGENT_V8,
        Version::V9 => &AGENT_V9,
    };
    PRIVILEGES
        .iter()
        .chain(agent)
        .map(|name| (*name).to_owned())
        .collect()
}

/// `/`, `/a`, `/a/b` for `/a/b`.
fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let ends = path
        .char_indices()
        .filter(|(at, c)| *c == '/' && *at > 0)
        .map(|(at, _)| at);
    let longer = ends
        .chain(std::iter::once(path.len()))
        .map(move |end| &path[..end]);
    std::iter::once("/").chain(longer.filter(|prefix| *prefix != "/"))
}

/// The token that must accompany every writing request of a ticket.
fn csrf_token(ticket: &str) -> String {
    let time = ticket.split(':').nth(2).unwrap_or_default();
    format!("{time}:{}", &digest(&format!("csrf {ticket}"))[..27])
}

fn digest(text: &str) -> String {
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::pve::topology::{TokenSpec, Topology};
    use crate::rng::Seed;

    fn grant(path: &str, subject: &str, privilege: &str) -> AclSpec {
        AclSpec {
            path: path.into(),
            subject: subject.into(),
            privileges: vec![privilege.into()],
            propagate: true,
        }
    }

    fn state(acl: Vec<AclSpec>) -> State {
        let mut topology = Topology::of(1);
        topology.acl = acl;
        topology.users[0].tokens.push(TokenSpec {
            id: "apart".into(),
            secret: "s".into(),
            privsep: true,
            expire: 0,
        });
        topology.vms[0].pool = Some("k8s".into());
        State::build(
            topology,
            &Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
            Seed(1),
        )
    }

    fn who(token: Option<&str>) -> Identity {
        Identity {
            user: "kproxide@pve".into(),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn separated_token_needs_both_grants() {
        let user_only = state(vec![grant("/", "kproxide@pve", "Sys.Audit")]);
        assert!(user_only.may(&who(None), "/nodes/pve1", "Sys.Audit"));
        assert!(!user_only.may(&who(Some("apart")), "/nodes/pve1", "Sys.Audit"));
        let both = state(vec![
            grant("/", "kproxide@pve", "Sys.Audit"),
            grant("/nodes", "kproxide@pve!apart", "Sys.Audit"),
        ]);
        assert!(both.may(&who(Some("apart")), "/nodes/pve1", "Sys.Audit"));
        assert!(!both.may(&who(Some("apart")), "/", "Sys.Audit"));
    }

    #[test]
    fn deeper_grant_replaces_the_shallower_one() {
        let state = state(vec![
            grant("/vms", "kproxide@pve", "VM.Audit"),
            grant("/vms/101", "kproxide@pve", "VM.Clone"),
        ]);
        assert!(state.may(&who(None), "/vms/100", "VM.Audit"));
        assert!(!state.may(&who(None), "/vms/101", "VM.Audit"));
        assert!(state.may(&who(None), "/vms/101", "VM.Clone"));
    }

    #[test]
    fn pool_grant_reaches_its_machines() {
        let state = state(vec![grant("/pool/k8s", "kproxide@pve", "VM.Audit")]);
        assert!(state.may(&who(None), "/vms/9001", "VM.Audit"));
        assert!(!state.may(&who(None), "/vms/9002", "VM.Audit"));
    }

    #[test]
    fn refusal_names_path_and_privilege() {
        let refused = state(Vec::new())
            .require(&who(None), "/vms/301", "VM.Audit")
            .unwrap_err();
        assert_eq!(
            refused.text(),
            "Permission check failed (/vms/301, VM.Audit)"
        );
    }

    #[test]
    fn ticket_lives_two_hours_and_renews() {
        let mut access = state(Vec::new()).access;
        assert!(access.log_in("kproxide@pve", "wrong", 0).is_none());
        let (ticket, csrf) = access.log_in("kproxide@pve", "password", 0).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(
            header::COOKIE,
            format!("PVEAuthCookie={ticket}").parse().unwrap(),
        );
        assert!(access.authenticate(&Method::GET, &headers, 10).is_ok());
        let refused = access
            .authenticate(&Method::POST, &headers, 10)
            .unwrap_err();
        assert_eq!(refused, "Permission denied - invalid csrf token");
        headers.insert("CSRFPreventionToken", csrf.parse().unwrap());
        assert!(access.authenticate(&Method::POST, &headers, 10).is_ok());
        assert!(access.log_in("kproxide@pve", &ticket, 7_199).is_some());
        assert!(access.authenticate(&Method::GET, &headers, 7_200).is_err());
    }
}
