//! The questions about what kproxide says: its Events, its metrics, its last plan.

use std::collections::BTreeMap;
use std::path::Path;

use kproxide_testkit::eventually;
use serde_json::Value;
use tokio::process::Command;

use super::machines::{FIRST_VMID, is_anchor};
use super::{FIRST_ADDRESS, POOL, Replica, SECOND_ADDRESS, SOON, Stage};

const EVENTS: &str = "/api/v1/namespaces/default/events";

impl Stage<'_> {
    /// Reasons and messages of the Events about an object in `default` whose name begins so, or about a cluster-scoped
    /// object.
    pub(crate) async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events = self.api().list(EVENTS).await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .filter(|event| text(&event["involvedObject"]["name"]).starts_with(name))
            .map(|event| (text(&event["reason"]), text(&event["message"])))
            .collect()
    }

    /// Waits for an Event with a reason and a part of its message.
    pub(crate) async fn until_event(&self, name: &str, reason: &str, part: &str) {
        let what = format!("an Event {reason} about {name} that says {part:?}");
        eventually(SOON, &what, async || {
            let events = self.events(name).await;
            let found = events
                .iter()
                .any(|(of, message)| of == reason && message.contains(part));
            if found {
                Ok(())
            } else {
                Err(format!("{events:?}"))
            }
        })
        .await;
    }

    /// Waits until the last plan keeps the only managed Node, for a reason whose JSON has this part.
    pub(crate) async fn until_kept(&self, part: &str) {
        eventually(
            SOON,
            &format!("the Node kept because: {part}"),
            async || {
                let nodes = &self.debug_plan().await?["plan"]["report"]["nodes"];
                let kept = nodes[0]["outcome"]["Kept"].to_string();
                if kept.contains(part) {
                    Ok(())
                } else {
                    Err(nodes.to_string())
                }
            },
        )
        .await;
    }

    /// Waits until the last plan keeps so many Nodes for reasons whose JSON has this part.
    pub(crate) async fn until_all_kept(&self, part: &str, count: usize) {
        eventually(SOON, &format!("{count} Nodes kept: {part}"), async || {
            let nodes = self.debug_plan().await?["plan"]["report"]["nodes"].clone();
            let kept = nodes.as_array().into_iter().flatten();
            let kept = kept.filter(|node| node["outcome"]["Kept"].to_string().contains(part));
            if kept.count() == count {
                Ok(())
            } else {
                Err(nodes.to_string())
            }
        })
        .await;
    }

    /// Waits until kproxide's last inventory shows none of its machines, and so much used memory on each hypervisor as if there had been none.
    pub(crate) async fn until_inventory_as_at_first(&self, used: &BTreeMap<String, u64>) {
        eventually(SOON, "an inventory without machines", async || {
            let inventory = &self.debug_plan().await?["world"]["inventories"]["lab"];
            let guests = inventory["guests"].as_object().ok_or("no inventory")?;
            let ours = |(vmid, guest): (&String, &Value)| {
                let machine = !is_anchor(guest["name"].as_str().unwrap_or_default());
                machine && vmid.parse::<u32>().is_ok_and(|vmid| vmid >= FIRST_VMID)
            };
            let measured = &inventory["hypervisors"];
            let settled = used
                .iter()
                .all(|(name, bytes)| measured[name]["memory_used_bytes"] == *bytes);
            if guests.iter().any(ours) || !settled {
                Err(format!("{} {measured}", inventory["guests"]))
            } else {
                Ok(())
            }
        })
        .await;
    }

    /// kproxide's world and its last plan.
    async fn debug_plan(&self) -> Result<Value, String> {
        let text = self.admin(FIRST_ADDRESS, "/debug/plan").await?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    /// What this program's `kproxide status` shows of the replica that leads, as JSON.
    pub(crate) async fn status(&self, program: &Path) -> Value {
        let address = format!("http://{FIRST_ADDRESS}:{}", self.admin_port);
        let shown = Command::new(program)
            .args(["status", "-o", "json", "--admin", &address, "--kubeconfig"])
            .arg(self.cluster.admin_kubeconfig_path())
            .env_clear()
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&shown.stderr);
        assert!(shown.status.success(), "{said}");
        serde_json::from_slice(&shown.stdout).unwrap()
    }

    /// What a replica has counted, labels and all; 0 where there is nothing of that name.
    pub(crate) async fn metric(&self, replica: Replica, name: &str) -> Result<f64, String> {
        let address = match replica {
            Replica::First => FIRST_ADDRESS,
            Replica::Second => SECOND_ADDRESS,
        };
        let text = self.admin(address, "/metrics").await?;
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            // Not of a longer name.
            rest.starts_with(['{', ' ']).then_some(())?;
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        Ok(values.sum())
    }

    /// Waits until the pool says that no machine can be made, for a reason with this part.
    pub(crate) async fn until_pool_unusable(&self, part: &str) {
        eventually(SOON, &format!("a pool that says {part:?}"), async || {
            let pool = self.api().get(POOL).await.unwrap();
            let conditions = pool["status"]["conditions"].as_array();
            let says = conditions.into_iter().flatten().any(|condition| {
                condition["status"] == "False"
                    && condition["message"]
                        .as_str()
                        .is_some_and(|message| message.contains(part))
            });
            if says {
                Ok(())
            } else {
                Err(pool["status"].to_string())
            }
        })
        .await;
    }

    /// Waits until kproxide has planned so many more times: enough for whatever it is going to do.
    pub(crate) async fn until_more_ticks(&self, count: u32) {
        let ticks = async || self.metric(Replica::First, "kproxide_ticks_total").await;
        let before = eventually(SOON, "the number of ticks", ticks).await;
        eventually(SOON, &format!("{count} more ticks"), async || {
            let now = ticks().await?;
            if now >= before + f64::from(count) {
                Ok(())
            } else {
                Err(format!("{}", now - before))
            }
        })
        .await;
    }

    async fn admin(&self, address: &str, path: &str) -> Result<String, String> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .get(format!("http://{address}:{}{path}", self.admin_port))
            .send()
            .await
            .map_err(|error| error.to_string())?;
        answer.text().await.map_err(|error| error.to_string())
    }
}
