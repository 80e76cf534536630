//! The control endpoint: what a test in another process, or a person, does to the world, over the same wire as the API.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::Pve;
use super::answer::{Params, json_response};
use super::world::UnknownVm;
use crate::holds::Phase;
use crate::matcher::UnknownRequest;

/// The requests, for people: `kproxide simulate serve --help` ends with them. What stands in brackets may be left out, and
/// `|` stands between values of which one is given.
pub const REQUESTS: &str = "\
GET  /_sim/snapshot
     servers, VMs, disks and tasks as they are
GET  /_sim/audit[?since=0]
     the requests that could change something, from this number on
POST /_sim/hypervisor?name=pve1[&online=0|1][&hung=0|1][&daemon=0|1][&maintenance=0|1]
     a server dies with its VMs or comes back; takes connections and never answers; loses its daemon; is in maintenance
POST /_sim/quorum?quorate=0|1
     the Proxmox cluster loses its quorum, or has it again
POST /_sim/storage?name=local-lvm[&online=0|1][&free=BYTES]
     a storage cannot be reached, or has only so much room
POST /_sim/duds?count=1
     so many of the next VMs never boot
POST /_sim/starts[?fail=TEXT]
     each start of a VM ends with this error; without it, starts work again
POST /_sim/agents[?refuse=TEXT]
     guest agents run no command, with this error; without it, they do again
POST /_sim/vm/VMID/start
POST /_sim/vm/VMID/stop
POST /_sim/vm/VMID/destroy
POST /_sim/vm/VMID/clone?new=150&name=copy
POST /_sim/vm/VMID/config?key=description[&value=TEXT]
POST /_sim/vm/VMID/pool[?name=kproxide]
     a person does this to a VM; without a value, the key goes; without a pool, the VM is in none
POST /_sim/vm/VMID/flag?name=never-boots|ignores-shutdown|ha|stuck[&on=0|1]
     never boots; does not shut down when asked; is managed by HA; its disks cannot be removed
POST /_sim/hold?request=clone&phase=before|after
     holds the next such request before or after it takes effect, and answers with the number of the hold. Requests are:
     clone config configure resize start shutdown stop destroy exec login
GET  /_sim/held
     the requests that are held
POST /_sim/release[?hold=1][&discard=0|1]
     lets a held request go on, or all of them; discarded, it is never answered
POST /_sim/token?user=kproxide@pve&token=ci
     takes an API token away, for good
";

/// Why a control request did nothing.
#[derive(Debug, thiserror::Error)]
enum Misuse {
    #[error("there is no control request {0} {1}")]
    NoSuchRequest(Method, String),
    #[error("parameter '{name}': '{value}' is not {wanted}")]
    Parameter {
        name: &'static str,
        value: String,
        wanted: &'static str,
    },
    #[error("parameter '{0}' is missing")]
    Missing(&'static str),
    #[error(transparent)]
    Request(#[from] UnknownRequest),
    #[error(transparent)]
    Vm(#[from] UnknownVm),
}

/// Answers one control request.
pub(crate) fn control(pve: &Pve, request: &Request<Bytes>) -> Response<Bytes> {
    let params = Params::of(request).unwrap_or_default();
    let path = request.uri().path().trim_start_matches("/_sim/");
    let parts: Vec<&str> = path.split('/').collect();
    match run(pve, request.method(), &parts, &Arguments(&params)) {
        Ok(value) => json_response(StatusCode::OK, "OK", &value),
        Err(misuse) => {
            let text = misuse.to_string();
            json_response(
                StatusCode::BAD_REQUEST,
                "Bad Request",
                &json!({"error": text}),
            )
        }
    }
}

fn run(pve: &Pve, method: &Method, parts: &[&str], arguments: &Arguments) -> Result<Value, Misuse> {
    match (method.as_str(), parts) {
        ("POST", ["hold"]) => {
            let matcher = arguments.text("request")?.parse()?;
            let phase = match arguments.text("phase")? {
                "before" => Phase::Before,
                "after" => Phase::After,
                other => return Err(wrong("phase", other, "'before' or 'after'")),
            };
            Ok(json!({"hold": pve.holds().hold_by_id(matcher, phase)}))
        }
        ("GET", ["held"]) => Ok(json!(pve.holds().held())),
        ("POST", ["release"]) => {
            let discard = arguments.flag("discard")?.unwrap_or(false);
            Ok(json!({"ended": pve.holds().end(arguments.number("hold")?, discard)}))
        }
        ("GET", ["snapshot"]) => Ok(json!(pve.snapshot())),
        ("GET", ["audit"]) => {
            let since = arguments.number("since")?.unwrap_or(0);
            Ok(json!(
                pve.audit_since(usize::try_from(since).unwrap_or(usize::MAX))
            ))
        }
        ("POST", ["vm", vmid, action]) => {
            let vmid = vmid.parse().map_err(|_| wrong("vmid", vmid, "a number"))?;
            change_vm(pve, vmid, action, arguments, parts, method)?;
            Ok(json!({}))
        }
        ("POST", [what]) => {
            change_world(pve, what, arguments, method)?;
            Ok(json!({}))
        }
        _ => Err(Misuse::NoSuchRequest(method.clone(), parts.join("/"))),
    }
}

fn change_world(
    pve: &Pve,
    what: &str,
    arguments: &Arguments,
    method: &Method,
) -> Result<(), Misuse> {
    match what {
        "quorum" => pve.set_quorate(
            arguments
                .flag("quorate")?
                .ok_or(Misuse::Missing("quorate"))?,
        ),
        "hypervisor" => {
            let name = arguments.text("name")?;
            if let Some(online) = arguments.flag("online")? {
                pve.set_hypervisor_online(name, online);
            }
            if let Some(hung) = arguments.flag("hung")? {
                pve.set_hypervisor_hung(name, hung);
            }
            if let Some(daemon) = arguments.flag("daemon")? {
                pve.set_daemon_running(name, daemon);
            }
            if let Some(maintenance) = arguments.flag("maintenance")? {
                pve.set_maintenance(name, maintenance);
            }
        }
        "storage" => {
            let name = arguments.text("name")?;
            if let Some(online) = arguments.flag("online")? {
                pve.set_storage_online(name, online);
            }
            if let Some(free) = arguments.number("free")? {
                pve.fill_storage(name, free);
            }
        }
        "token" => {
            pve.revoke_token(arguments.text("user")?, arguments.text("token")?);
        }
        "agents" => pve.set_agents_refuse(arguments.text("refuse").ok()),
        "starts" => pve.set_starts_fail(arguments.text("fail").ok()),
        "duds" => {
            let count = arguments.number("count")?.ok_or(Misuse::Missing("count"))?;
            pve.set_next_never_boot(u32::try_from(count).unwrap_or(u32::MAX));
        }
        _ => return Err(Misuse::NoSuchRequest(method.clone(), what.to_owned())),
    }
    Ok(())
}

fn change_vm(
    pve: &Pve,
    vmid: u32,
    action: &str,
    arguments: &Arguments,
    parts: &[&str],
    method: &Method,
) -> Result<(), Misuse> {
    match action {
        "start" => pve.human_starts(vmid)?,
        "stop" => pve.human_stops(vmid)?,
        "destroy" => pve.human_destroys(vmid)?,
        "clone" => {
            let new = arguments.number("new")?.ok_or(Misuse::Missing("new"))?;
            let new = u32::try_from(new).map_err(|_| wrong("new", "it", "a VMID"))?;
            pve.human_clones_vm(vmid, new, arguments.text("name")?)?;
        }
        "config" => pve.human_sets(vmid, arguments.text("key")?, arguments.text("value").ok())?,
        "pool" => pve.human_sets_pool(vmid, arguments.text("name").ok())?,
        "flag" => {
            let on = arguments.flag("on")?.unwrap_or(true);
            match arguments.text("name")? {
                "never-boots" => pve.set_never_boots(vmid, on)?,
                "ignores-shutdown" => pve.set_ignores_shutdown(vmid, on)?,
                "ha" => pve.set_ha_managed(vmid, on)?,
                "stuck" => pve.set_disks_stuck(vmid, on),
                other => {
                    return Err(wrong(
                        "name",
                        other,
                        "'never-boots', 'ignores-shutdown', 'ha' or 'stuck'",
                    ));
                }
            }
        }
        _ => return Err(Misuse::NoSuchRequest(method.clone(), parts.join("/"))),
    }
    Ok(())
}

struct Arguments<'a>(&'a Params);

impl Arguments<'_> {
    fn text(&self, name: &'static str) -> Result<&str, Misuse> {
        self.0.get(name).ok_or(Misuse::Missing(name))
    }

    fn number(&self, name: &'static str) -> Result<Option<u64>, Misuse> {
        let parse = |value: &str| value.parse().map_err(|_| wrong(name, value, "a number"));
        self.0.get(name).map(parse).transpose()
    }

    fn flag(&self, name: &'static str) -> Result<Option<bool>, Misuse> {
        let parse = |value: &str| match value {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            other => Err(wrong(name, other, "0 or 1")),
        };
        self.0.get(name).map(parse).transpose()
    }
}

fn wrong(name: &'static str, value: &str, wanted: &'static str) -> Misuse {
    Misuse::Parameter {
        name,
        value: value.to_owned(),
        wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::pve::Topology;

    /// A request of the list with everything that may be left out, and the first of the values.
    fn spelt_out(line: &str, vmid: u32) -> Option<Request<Bytes>> {
        let (method, rest) = line.split_once(' ')?;
        let method: Method = method.parse().ok()?;
        let rest = rest.trim().replace(['[', ']'], "");
        let (path, query) = rest.split_once('?').unwrap_or((&rest, ""));
        let first = |pair: &str| pair.split('|').next().unwrap_or_default().to_owned();
        let query: Vec<String> = query.split('&').map(first).collect();
        let query = query.join("&").replace("BYTES", "1000");
        let path = path.replace("VMID", &vmid.to_string());
        let uri = format!("{path}?{query}");
        Request::builder()
            .method(method)
            .uri(uri)
            .body(Bytes::new())
            .ok()
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_of_the_list_is_answered_and_no_other() {
        let template = 9_001;
        let pve = Pve::new(
            Topology::of(1),
            Clock::starting_at("2026-01-05T08:00:00Z".parse().unwrap()),
            1,
        );
        let lines = REQUESTS.lines().filter(|line| !line.starts_with(' '));
        let mut answered = Vec::new();
        for line in lines {
            // Each to a copy of its own: that one may be destroyed.
            let vmid = 200 + u32::try_from(answered.len()).unwrap();
            pve.human_clones_vm(template, vmid, "copy").unwrap();
            if !line.ends_with("/start") {
                pve.human_starts(vmid).unwrap();
            }
            let request = spelt_out(line, vmid).unwrap();
            let answer = control(&pve, &request);
            assert_eq!(
                answer.status(),
                StatusCode::OK,
                "{line}: {:?}",
                answer.body()
            );
            answered.push(request.uri().path().to_owned());
        }
        assert_eq!(answered.len(), 19);
        let unknown = spelt_out("POST /_sim/earthquake?name=pve1", 0).unwrap();
        assert_eq!(control(&pve, &unknown).status(), StatusCode::BAD_REQUEST);
    }
}
