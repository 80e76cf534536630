//! The control endpoint: what a test in another process does to the world, over the same wire as the API.
//!
//! ```text
//! POST /_sim/hold?request=clone&phase=before|after   → {"hold": 1}
//! GET  /_sim/held                                    → held requests
//! POST /_sim/release[?hold=1][&discard=1]            → {"ended": 1}
//! GET  /_sim/snapshot   GET /_sim/audit[?since=n]
//! POST /_sim/quorum?quorate=0|1
//! POST /_sim/hypervisor?name=pve1[&online=0|1][&hung=0|1][&daemon=0|1][&maintenance=0|1]
//! POST /_sim/storage?name=ceph[&online=0|1][&free=bytes]
//! POST /_sim/token?user=kproxide@pve&token=ci        → revoked
//! POST /_sim/duds?count=1                            → the next machines never boot
//! POST /_sim/agents[?refuse=text]                    → guest agents run no command, for this reason
//! POST /_sim/starts[?fail=text]                      → each start ends with this text
//! POST /_sim/vm/{vmid}/start | stop | destroy
//! POST /_sim/vm/{vmid}/clone?new=150&name=copy       → a person's copy
//! POST /_sim/vm/{vmid}/config?key=description[&value=x]
//! POST /_sim/vm/{vmid}/pool[?name=k8s]
//! POST /_sim/vm/{vmid}/flag?name=never-boots|ignores-shutdown|ha|stuck&on=0|1
//! ```

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::Pve;
use super::answer::{Params, json_response};
use super::world::UnknownVm;
use crate::holds::Phase;
use crate::matcher::UnknownRequest;

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
