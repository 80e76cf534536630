//! `kproxide status`: who is asked, and how often.

use std::error::Error;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use terminal_size::{Height, Width, terminal_size};

use super::Exit;
use super::exit::Mistake;
use super::plan::{done, given, is_coloured, print, scene, told};
use crate::args::{Format, StatusArgs, WhatIf};
use crate::manifest::{NotListed, Object, each};
use crate::status::{Look, Screen, Seen, Text};
use crate::whatif::{self, Input, NoAnswer};
use kproxide_common::chain::chain;
use kproxide_common::foreign::{Out, shown};
use kproxide_controller::judge::reasons::{LEADER_SILENT, NO_LEADER, NOT_LISTED};
use kproxide_controller::judge::{self, Finding, Group};
use kproxide_kube::client::Client;
use kproxide_policy::Library;

/// With -w. The controller shows its plan once a second at most.
const AGAIN: Duration = Duration::from_secs(2);
/// Their conditions are findings. Those of NodeClaims are judged with their Nodes.
const SHOWN: [&str; 3] = ["ProxmoxCluster", "NodeClass", "NodePool"];
/// For each list of conditions.
const LIST_DEADLINE: Duration = Duration::from_secs(5);
/// Whose conditions are shown.
const LISTED: [&str; 3] = ["proxmoxclusters", "nodeclasses", "nodepools"];

/// # Errors
/// Nothing can be seen, or the output is closed.
pub fn run(args: &StatusArgs, out: &mut Out<impl Write>) -> Result<Exit, Box<dyn Error>> {
    let is_text = matches!(args.output, Format::Text);
    if args.watch && !is_text {
        let mistake = "-w draws text: leave out -w, or -o".to_owned();
        return Err(Mistake(mistake).into());
    }
    done(async |policies| {
        if !args.watch {
            let screen = looked(args, policies).await?;
            match is_text {
                true => write!(out.raw(), "{}", Text(&screen, look(args)))?,
                false => print(out, args.output, &screen)?,
            }
            return Ok(Exit::Success);
        }
        loop {
            let text = match looked(args, policies).await {
                Ok(screen) => Text(&screen, look(args)).to_string(),
                // It may come back.
                Err(error) => shown(&format!("kproxide: {}\n", chain(&*error))).into_owned(),
            };
            redraw(&text, out.raw())?;
            tokio::time::sleep(AGAIN).await;
        }
    })
}

fn look(args: &StatusArgs) -> Look {
    let columns = terminal_size().map(|(Width(columns), _)| usize::from(columns));
    Look {
        columns: columns.filter(|_| io::stdout().is_terminal()),
        is_coloured: is_coloured(args.no_color),
    }
}

/// Over what was there, as far as the terminal is high.
fn redraw(text: &str, out: &mut impl Write) -> io::Result<()> {
    if !io::stdout().is_terminal() {
        writeln!(out, "{text}")?;
        return out.flush();
    }
    let rows = terminal_size().map_or(usize::MAX, |(_, Height(rows))| usize::from(rows));
    let hidden = text.lines().count().saturating_sub(rows.saturating_sub(1));
    let shown = text.lines().count() - hidden;
    write!(out, "\x1b[H")?;
    for line in text.lines().take(shown) {
        write!(out, "{line}\x1b[K\r\n")?;
    }
    write!(out, "\x1b[J")?;
    if hidden > 0 {
        write!(
            out,
            "… {hidden} more lines in a higher terminal, or without -w"
        )?;
    }
    out.flush()
}

async fn looked(args: &StatusArgs, policies: &Library) -> Result<Screen, Box<dyn Error>> {
    let question = question(args);
    let is_read = question.file.is_empty();
    let asks = is_read && !question.from_cluster;
    let client = match Client::connect_as_user(&args.connection).await {
        Ok(client) => Some(client).filter(|_| is_read),
        Err(error) if is_read && args.admin.is_none() => return Err(error.into()),
        Err(_) => None,
    };
    let mut unseen = Vec::new();
    let told = match asks {
        true => {
            let patience = args.connection.request_timeout;
            let admin = args.admin.as_deref();
            match told(&args.leader, admin, patience, client.as_ref()).await {
                Ok(told) => Some(told),
                Err(error @ NoAnswer::Forbidden { .. }) => return Err(error.into()),
                Err(error) if admin.is_some() => return Err(error.into()),
                Err(error) => {
                    unseen.push(no_answer(args, &error));
                    None
                }
            }
        }
        false => None,
    };
    let is_told = told.is_some();
    let mut findings = None;
    let (input, objects, source, decisions) = match told {
        Some(mut told) => {
            findings = told.world.findings.take();
            let input = Input {
                saved: Some(told.world),
                ..Input::default()
            };
            let objects = listed(client.as_ref(), &mut unseen).await;
            (input, objects, told.by, told.decisions)
        }
        None => {
            let mut input = given(&question, client.as_ref()).await?;
            input.is_as_given = true;
            let all = input.cluster.iter().chain(input.files.iter().flatten());
            let ours = all.filter(|it| it.api_version().starts_with("kproxide.dev/"));
            let objects = ours.cloned().collect();
            let source = match is_read {
                true => "this computer, from what the cluster lists",
                false => "this computer, from files",
            };
            (input, objects, source.to_owned(), Vec::new())
        }
    };
    let mut scene = scene(&question, input, policies).await?;
    if is_told {
        scene.assumed.clear();
    }
    let is_computed = !is_told && scene.planned.is_none();
    // What policies answer here is no decision of the controller.
    let plan = match scene.planned.take() {
        Some(plan) => plan,
        None => whatif::plan(&scene.world, scene.now, policies).await.0,
    };
    // A saved answer of the controller has what it found.
    let found = findings.or_else(|| scene.findings.take());
    let mut findings = found.unwrap_or_else(|| {
        let stored = objects.iter().filter(|it| SHOWN.contains(&it.kind()));
        let stored = stored.flat_map(|it| crate::stored::of_conditions(it, &plan.report));
        stored
            .chain(judge::of_machines(
                &scene.world,
                scene.assumes_hypervisors,
                scene.now,
            ))
            .collect()
    });
    findings.extend(unseen);
    Ok(Screen::of(Seen {
        scene: &scene,
        plan: &plan,
        decisions: &decisions,
        objects: &objects,
        findings,
        source,
        is_computed,
    }))
}

/// As `kproxide plan` takes it.
fn question(args: &StatusArgs) -> WhatIf {
    WhatIf {
        file: args.file.clone(),
        recursive: false,
        namespace: None,
        all_namespaces: true,
        // Without an answer of the controller, it is what the cluster lists.
        from_cluster: args.from_cluster,
        connection: args.connection.clone(),
        proxmox_credentials: args.proxmox_credentials.clone(),
        policy_dir: args.policy_dir.clone(),
        replicas: Vec::new(),
        add_type: Vec::new(),
        without_hypervisor: Vec::new(),
        now: args.now,
        no_color: args.no_color,
    }
}

fn no_answer(args: &StatusArgs, error: &NoAnswer) -> Finding {
    let (namespace, lease) = &args.leader.lease;
    let object = format!("Lease/{namespace}/{lease}");
    let message = format!(
        "{}, so this is computed here, from what the cluster lists",
        chain(error)
    );
    match error {
        NoAnswer::Nobody(_, renewed) => Finding {
            since: *renewed,
            ..Finding::error(Group::Kubernetes, object, &NO_LEADER, message)
        },
        NoAnswer::Forbidden { .. }
        | NoAnswer::Refused { .. }
        | NoAnswer::Silent(..)
        | NoAnswer::Unreadable(..)
        | NoAnswer::OtherVersion(_) => {
            Finding::warning(Group::Kubernetes, object, &LEADER_SILENT, message)
        }
    }
}

/// Our objects with their conditions.
async fn listed(client: Option<&Client>, unseen: &mut Vec<Finding>) -> Vec<Object> {
    let mut objects = Vec::new();
    let mut not_listed = |what: &str, why: String| {
        unseen.push(Finding::warning(Group::Kubernetes, what, &NOT_LISTED, why));
    };
    let Some(client) = client else {
        let why = "there is no usable kubeconfig, so conditions are not shown".to_owned();
        not_listed("kubeconfig", why);
        return objects;
    };
    for (resource, list) in each(client, &LISTED, LIST_DEADLINE).await {
        match list {
            Ok(found) => objects.extend(found),
            Err(NotListed::Forbidden(why) | NotListed::Failed(why)) => not_listed(resource, why),
            Err(NotListed::Undefined) => {
                let why = "the cluster does not serve this kind".to_owned();
                not_listed(resource, why);
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests;
