//! The worlds in which the answers were recorded, and in which order things happened in them.

#[path = "fixtures/guests.rs"]
mod guests;
#[path = "fixtures/one_server.rs"]
mod one_server;
#[path = "fixtures/tasks.rs"]
mod tasks;
#[path = "fixtures/two_servers.rs"]
mod two_servers;

use std::time::Duration;

use super::replay::{As, Fixture, pass};

pub(crate) const ALL: &[(&str, Fixture)] = &[
    ("one server", |replay| {
        Box::pin(one_server::one_server(replay))
    }),
    ("one server, machine 101", |replay| {
        Box::pin(one_server::one_machine(replay))
    }),
    ("one server, locked machine", |replay| {
        Box::pin(one_server::locked_machine(replay))
    }),
    ("pool token", |replay| {
        Box::pin(one_server::pool_token(replay))
    }),
    ("storage locks", |replay| {
        Box::pin(one_server::storage_locks(replay))
    }),
    ("status broadcasts", |replay| {
        Box::pin(one_server::status_broadcasts(replay))
    }),
    ("privileges asked for in tasks", |replay| {
        Box::pin(tasks::privileges(replay))
    }),
    ("tasks killed under a lock", |replay| {
        Box::pin(tasks::killed(replay))
    }),
    ("guest agent", |replay| Box::pin(guests::agent(replay))),
    ("cloud-init volume left", |replay| {
        Box::pin(guests::cloud_init_left(replay))
    }),
    ("guest agent of 8.4", |replay| {
        Box::pin(guests::agent_of_version_8(replay))
    }),
    ("tasks of 8.4", |replay| {
        Box::pin(tasks::privileges_of_version_8(replay))
    }),
    ("two servers", |replay| {
        Box::pin(two_servers::two_servers(replay))
    }),
    ("two servers, quorum just lost", |replay| {
        Box::pin(two_servers::quorum_just_lost(replay))
    }),
    ("two servers, running machine", |replay| {
        Box::pin(two_servers::running_machine(replay))
    }),
    ("two servers, quorum lost", |replay| {
        Box::pin(two_servers::quorum_lost(replay))
    }),
];

const ADMIN: As = As("aut@pve!full=secret");
const POOL: As = As("pooluser@pve!tt=secret");
const STRANGER: As = As("stranger@pve!none=secret");
const SMALL: As = As("kp@pve!tt=secret");
const SEPARATED: As = As("aut@pve!bare=secret");

/// Lets the tasks begin that were just started.
async fn tick() {
    pass(Duration::from_millis(300)).await;
}
