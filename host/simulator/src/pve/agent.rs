//! The guest agent: what a guest answers, once it is up.

use serde_json::{Map, Value, json};

use super::answer::{Answer, Refusal, Reply};
use super::observe::MachineEvent;
use super::pause;
use super::serve::Call;
use super::topology::Version;
use super::vm::{Command, Guest};

/// How long an agent that does not answer is waited for, with one of the server's workers.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// How long an agent is waited for that has closed its connection, because it could not start the program.
const BROKEN_PIPE: std::time::Duration = std::time::Duration::from_secs(5);

/// `POST …/agent/ping`
pub(crate) async fn ping(call: Call) -> Answer {
    ask(&call, |_| Ok(json!({"result": {}}).into())).await
}

/// `POST …/agent/exec`: starts a command in the guest.
pub(crate) async fn exec(call: Call) -> Answer {
    let command = call.params.all("command").to_vec();
    let input = call.params.get("input-data").unwrap_or_default();
    let (node, vmid) = (call.node.clone(), call.vmid());
    let (refusal, version) = {
        let state = call.pve.state();
        (state.agents_refuse.clone(), state.version)
    };
    // Perl takes a letter for a byte as long as it is one.
    let input: Result<Vec<u8>, _> = input.chars().map(u8::try_from).collect();
    let Ok(input) = input else {
        let line = match version {
            Version::V8 => 82,
            Version::V9 => 135,
        };
        return Err(Refusal::Failed(format!(
            "Wide character in subroutine entry at /usr/share/perl5/PVE/QemuServer/Agent.pm line {line}."
        )));
    };
    let mut pid = 0;
    let reply = ask(&call, |guest| {
        if let Some(why) = refusal {
            let command = version.agent_command();
            return Err(Refusal::Failed(format!(
                "VM {vmid} {command} 'guest-exec' failed - {why}"
            )));
        }
        if guest.has_no_shell {
            return Err(Refusal::Forwarding(596, "Broken pipe"));
        }
        guest.command_count += 1;
        pid = 4_000 + guest.command_count;
        guest.commands.insert(pid, Command::default());
        Ok(json!({"pid": pid}).into())
    })
    .await;
    if matches!(reply, Err(Refusal::Forwarding(..))) {
        pause(BROKEN_PIPE).await;
    }
    let reply = reply?;
    call.pve.state().emit(MachineEvent::AgentExec {
        vmid,
        hypervisor: node,
        pid,
        command,
        input,
    });
    Ok(reply)
}

/// `GET …/agent/exec-status`: the result of a command can be read once.
pub(crate) async fn exec_status(call: Call) -> Answer {
    let pid = call.params.integer("pid").unwrap_or(0);
    let pid = u32::try_from(pid).unwrap_or(0);
    ask(&call, |guest| {
        let command = guest.commands.get_mut(&pid);
        let command =
            command.ok_or_else(|| Refusal::failed("Agent error: PID ld does not exist"))?;
        let Some(result) = command.result.take() else {
            return Ok(json!({"exited": 0}).into());
        };
        guest.commands.remove(&pid);
        let mut data = Map::from_iter([("exited".to_owned(), 1.into())]);
        match result.signal {
            Some(signal) => data.insert("signal".to_owned(), signal.into()),
            None => data.insert("exitcode".to_owned(), result.exitcode.into()),
        };
        for (key, text) in [("out", &result.out), ("err", &result.err)] {
            if !text.is_empty() {
                // Each byte is shown as one letter.
                let text: String = text.iter().copied().map(char::from).collect();
                data.insert(format!("{key}-data"), text.into());
                data.insert(format!("{key}-truncated"), 0.into());
            }
        }
        Ok(Value::from(data).into())
    })
    .await
}

/// `POST …/agent/file-write`
pub(crate) async fn file_write(call: Call) -> Answer {
    let file = call.params.get("file").unwrap_or_default().to_owned();
    let content = call.params.get("content").unwrap_or_default().to_owned();
    ask(&call, |guest| {
        guest.files.insert(file, content);
        Ok(Reply::null())
    })
    .await
}

/// `GET …/agent/get-host-name`
pub(crate) async fn host_name(call: Call) -> Answer {
    ask(&call, |guest| {
        let name = guest.hostname.clone().unwrap_or_else(|| "localhost".into());
        Ok(json!({"result": {"host-name": name}}).into())
    })
    .await
}

/// `GET …/agent/network-get-interfaces`
pub(crate) async fn interfaces(call: Call) -> Answer {
    let mac = call
        .pve
        .state()
        .vm_on(&call.node, call.vmid())?
        .mac()
        .unwrap_or_default()
        .to_lowercase();
    ask(&call, |guest| {
        let address = |ip: &String, prefix: u32| {
            let kind = if ip.contains(':') { "ipv6" } else { "ipv4" };
            json!({"ip-address": ip, "ip-address-type": kind, "prefix": prefix})
        };
        let outside: Vec<Value> = guest.addresses.iter().map(|ip| address(ip, 24)).collect();
        Ok(json!({"result": [
            {
                "name": "lo",
                "hardware-address": "00:00:00:00:00:00",
                "ip-addresses": [address(&"127.0.0.1".to_owned(), 8), address(&"::1".to_owned(), 128)],
            },
            {"name": "eth0", "hardware-address": mac, "ip-addresses": outside},
        ]})
        .into())
    })
    .await
}

/// Asks the guest, or says why it cannot be asked. A silent agent costs three seconds.
async fn ask(call: &Call, question: impl FnOnce(&mut Guest) -> Answer) -> Answer {
    let vmid = call.vmid();
    let answers = {
        let state = call.pve.state();
        let vm = state.vm_on(&call.node, vmid)?;
        if !vm.agent_enabled() {
            return Err(Refusal::failed("No QEMU guest agent configured"));
        }
        let running = vm
            .running
            .as_ref()
            .ok_or_else(|| Refusal::failed(format!("VM {vmid} is not running")))?;
        running.guest.agent
    };
    if !answers {
        pause(TIMEOUT).await;
    }
    let mut state = call.pve.state();
    let guest = state
        .vm_on_mut(&call.node, vmid)?
        .running
        .as_mut()
        .map(|running| &mut running.guest);
    match guest.filter(|guest| guest.agent) {
        Some(guest) => question(guest),
        None => Err(Refusal::failed("QEMU guest agent is not running")),
    }
}
