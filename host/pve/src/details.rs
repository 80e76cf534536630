//! What a server says of itself beyond its room: its processor, its versions, its load, and the tags in its notes.
//!
//! Only policies use it. What Proxmox does not tell, or does not let the credentials see, is left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::join;
use kproxide_planner::facts::HypervisorDetails;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::client::Client;
use super::error::Error;
use super::inventory::HYPERVISOR_DEADLINE;
use super::request::Call;
use super::types;
use kproxide_common::foreign::value;

/// Of one hypervisor. They come from people, and go to policies with every question.
const TAGS_MAX: usize = 32;
/// Of one tag, and of a name of a processor, kernel or version.
const TEXT_BYTES_MAX: usize = 128;

impl Client {
    /// Asks a server for it: two requests, neither of which needs one of its three workers. `None`: it told nothing.
    ///
    /// Proxmox: the first needs `Sys.Audit` on `/nodes/{node}`, the second on `/`.
    pub async fn details(&self, hypervisor: &str) -> Option<HypervisorDetails> {
        let (status, config) = join!(
            timeout(HYPERVISOR_DEADLINE, self.server_status(hypervisor)),
            timeout(HYPERVISOR_DEADLINE, self.server_config(hypervisor)),
        );
        let status = status.ok().and_then(Result::ok);
        let config = config.ok().and_then(Result::ok);
        (status.is_some() || config.is_some()).then(|| details(status, config))
    }

    pub(super) async fn server_status(&self, hypervisor: &str) -> Result<Status, Error> {
        self.fetch(Call::get(&["nodes", hypervisor, "status"]))
            .await
    }

    pub(super) async fn server_config(&self, hypervisor: &str) -> Result<Config, Error> {
        self.fetch(Call::get(&["nodes", hypervisor, "config"]))
            .await
    }
}

/// What of `nodes/{node}/status` is used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    cpuinfo: Value,
    #[serde(default)]
    loadavg: Value,
    #[serde(default, deserialize_with = "types::text")]
    pveversion: Option<String>,
    #[serde(default, deserialize_with = "types::text")]
    kversion: Option<String>,
    /// Since Proxmox VE 8.
    #[serde(default, rename = "current-kernel")]
    current_kernel: Value,
}

/// What of `nodes/{node}/config` is used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    /// The notes that Proxmox shows of a server.
    #[serde(default, deserialize_with = "types::text")]
    description: Option<String>,
}

fn details(status: Option<Status>, config: Option<Config>) -> HypervisorDetails {
    let status = status.unwrap_or_default();
    let release = types::as_text(&status.current_kernel["release"]);
    // `Linux 6.8.12-4-pve #1 SMP …`
    let kernel = status.kversion.as_deref();
    let kernel = kernel.and_then(|it| it.split_whitespace().nth(1));
    // `pve-manager/9.2.11/14a22df35955d97d`
    let version = status.pveversion.as_deref();
    let version = version.and_then(|it| it.split('/').nth(1));
    let sockets = types::as_count(&status.cpuinfo["sockets"]);
    HypervisorDetails {
        cpu_model: types::as_text(&status.cpuinfo["model"]).and_then(|it| named(&it)),
        sockets: sockets.and_then(|it| u32::try_from(it).ok()),
        version: version.and_then(named),
        kernel: release.as_deref().or(kernel).and_then(named),
        load: load(&status.loadavg),
        tags: config.map(|it| tags(it.description.as_deref().unwrap_or_default())),
    }
}

/// Proxmox gives three texts.
fn load(value: &Value) -> Option<[f64; 3]> {
    let at = |place: usize| types::as_number(value.get(place)?);
    Some([at(0)?, at(1)?, at(2)?])
}

fn named(text: &str) -> Option<Arc<str>> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= TEXT_BYTES_MAX).then(|| value(text).into())
}

/// The words that begin with `#`. (With a space after it, `#` begins a heading of Proxmox's notes.)
fn tags(notes: &str) -> Arc<[Arc<str>]> {
    let is_of_tag = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    let words = notes.split_whitespace();
    let tags = words.filter_map(|word| {
        let word = word.strip_prefix('#')?;
        let end = word.find(|c| !is_of_tag(c)).unwrap_or(word.len());
        let tag = word[..end].trim_end_matches('.');
        (!tag.is_empty() && tag.len() <= TEXT_BYTES_MAX).then(|| tag.to_lowercase())
    });
    let tags: BTreeSet<String> = tags.collect();
    tags.into_iter().take(TAGS_MAX).map(Arc::from).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What Proxmox's own daemon answered.
    fn recorded(name: &str) -> Value {
        let text = include_str!("../../../tests/data/pve/recordings.json");
        let all: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut named = all.into_iter().filter(|it| it["name"] == name);
        named.next().unwrap()["body"]["data"].take()
    }

    fn of(status: Value, config: Value) -> HypervisorDetails {
        details(
            serde_json::from_value(status).ok(),
            serde_json::from_value(config).ok(),
        )
    }

    #[test]
    fn what_proxmox_itself_answered_is_read() {
        let read = of(recorded("nodestatus"), json!({"digest": "x"}));
        let expected = HypervisorDetails {
            cpu_model: Some("AMD EPYC".into()),
            sockets: Some(1),
            version: Some("9.2.11".into()),
            kernel: Some("6.18.44-fc-v595".into()),
            load: Some([3.70, 3.69, 2.54]),
            tags: Some([].into()),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn an_older_proxmox_tells_its_kernel_in_a_line() {
        let kernel = |status| of(status, json!({})).kernel;
        let line = "Linux 6.2.16-3-pve #1 SMP PREEMPT_DYNAMIC PMX 6.2.16-3";
        assert_eq!(
            kernel(json!({"kversion": line})).as_deref(),
            Some("6.2.16-3-pve")
        );
        assert_eq!(kernel(json!({"kversion": "Linux"})), None);
    }

    #[test]
    fn tags_are_the_words_with_a_hash_in_the_notes() {
        let tags = |notes: &str| {
            let read = of(json!({}), json!({"description": notes}));
            let tags = read.tags.unwrap();
            tags.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            tags("# Attic\n\nold #GPU, #ssd. See wiki#x\n#gpu # #-"),
            ["-", "gpu", "ssd"]
        );
        assert_eq!(tags(""), [""; 0]);
        let many: String = (0..40).map(|n| format!("#t{n:02} ")).collect();
        assert_eq!(tags(&many).len(), TAGS_MAX);
        assert_eq!(tags(&format!("#{} #b", "a".repeat(200))), ["b"]);
    }

    #[test]
    fn odd_answers_leave_out_what_is_odd() {
        let read = of(
            json!({"cpuinfo": "fast", "loadavg": ["1", "x", "2"], "pveversion": 7, "kversion": null}),
            json!({"description": ["a"]}),
        );
        let nothing = HypervisorDetails {
            tags: Some([].into()),
            ..HypervisorDetails::default()
        };
        assert_eq!(read, nothing);
        assert_eq!(details(None, None), HypervisorDetails::default());
    }
}
