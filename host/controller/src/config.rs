//! What the command line means: every field set, checked and in the unit that it is used in.

use std::path::PathBuf;
use std::time::Duration;

use kproxide_planner::facts::Served;
use kproxide_planner::planning::Limits;
use thiserror::Error;

use crate::args;
use crate::autoscaler::Timing;

/// How one host behaves. Behaviour towards the cluster is in NodePools and NodeClasses; this is about the process.
#[derive(Clone, Debug)]
pub struct Config {
    pub dry_run: bool,
    pub namespace: String,
    /// This replica, as the Lease's holder and in Events.
    pub identity: String,
    /// Of the Lease; the Secret with the ownership key is `<name>-ownership-key`.
    pub name: String,
    pub own_node: Option<String>,
    pub policy_dirs: Vec<PathBuf>,
    pub credentials_dir: PathBuf,
    pub join_dir: PathBuf,
    pub timing: Timing,
    /// What one tick of the planner may do, and how long things rest.
    pub limits: Limits,
    /// A VM in each Proxmox cluster tells this Kubernetes cluster from its copies.
    pub anchor: bool,
    pub lease: LeaseTiming,
    pub served: Served,
    /// With kproximate's eight gauges.
    pub kproximate_metrics: bool,
}

/// client-go's three durations, in its order: duration > renew deadline > retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    #[error(
        "--lease-renew-deadline {renew:?} must be shorter than --lease-duration {duration:?}: otherwise two replicas act at once"
    )]
    RenewDeadline { renew: Duration, duration: Duration },
    #[error(
        "--lease-retry {retry:?} must be shorter than --lease-renew-deadline {renew:?}: otherwise a single failure loses the Lease"
    )]
    Retry { retry: Duration, renew: Duration },
    #[error(
        "--lease-duration {0:?} must be whole seconds, at least 1s: a Lease holds nothing finer"
    )]
    LeaseDuration(Duration),
    #[error("--lease-retry must be longer than 0: write it like 2s")]
    LeaseRetry,
    #[error("--batch-idle {idle:?} must not be longer than --batch-max {max:?}")]
    Batch { idle: Duration, max: Duration },
    #[error("--poll-interval must be longer than 0: write it like 10s")]
    PollInterval,
}

impl Config {
    /// # Errors
    /// Flags that contradict each other; each message names the flags and the fix.
    pub fn new(args: &args::Run) -> Result<Self, ConfigError> {
        let args::Timing {
            poll_interval,
            batch_idle,
            batch_max,
            inventory_max_age,
            cold_start,
            quarantine,
            orphan_grace,
            coming_room,
            anchor,
            lease_duration,
            lease_renew_deadline,
            lease_retry,
            max_launches_per_tick,
        } = args.timing.clone();
        if lease_duration.is_zero() || lease_duration.subsec_nanos() != 0 {
            return Err(ConfigError::LeaseDuration(lease_duration));
        }
        if lease_retry.is_zero() {
            return Err(ConfigError::LeaseRetry);
        }
        if lease_renew_deadline >= lease_duration {
            return Err(ConfigError::RenewDeadline {
                renew: lease_renew_deadline,
                duration: lease_duration,
            });
        }
        if lease_retry >= lease_renew_deadline {
            return Err(ConfigError::Retry {
                retry: lease_retry,
                renew: lease_renew_deadline,
            });
        }
        if batch_idle > batch_max {
            return Err(ConfigError::Batch {
                idle: batch_idle,
                max: batch_max,
            });
        }
        if poll_interval.is_zero() {
            return Err(ConfigError::PollInterval);
        }
        Ok(Self {
            dry_run: args.dry_run,
            namespace: args.namespace.clone(),
            identity: args.pod_name.clone(),
            name: args.name.clone(),
            own_node: args.node_name.clone(),
            policy_dirs: args.policy_dir.clone(),
            credentials_dir: args.credentials_dir.clone(),
            join_dir: args.join_dir.clone(),
            timing: Timing {
                poll_interval,
                batch_idle,
                batch_max,
                inventory_max_age,
                cold_start,
            },
            limits: Limits {
                max_launches_per_tick,
                quarantine,
                orphan_grace,
                coming_room,
                ..Limits::default()
            },
            anchor,
            lease: LeaseTiming {
                duration: lease_duration,
                renew_deadline: lease_renew_deadline,
                retry: lease_retry,
            },
            served: Served {
                schedulers: args
                    .scheduler_names
                    .iter()
                    .map(|it| it.as_str().into())
                    .collect(),
                least_priority: args.least_priority,
            },
            kproximate_metrics: args.kproximate_metrics,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[&str], expected: &str) {
        let run = args::Run::from_flags(flags).unwrap();
        assert_eq!(Config::new(&run).unwrap_err().to_string(), expected);
    }

    #[test]
    fn f97_contradictions_name_the_flags_and_the_fix() {
        check(
            &["--lease-duration", "10s"],
            "--lease-renew-deadline 10s must be shorter than --lease-duration 10s: otherwise two replicas act at once",
        );
        check(
            &["--lease-retry", "20s"],
            "--lease-retry 20s must be shorter than --lease-renew-deadline 10s: otherwise a single failure loses the Lease",
        );
        check(
            &["--lease-duration", "15500ms"],
            "--lease-duration 15.5s must be whole seconds, at least 1s: a Lease holds nothing finer",
        );
        check(
            &["--lease-retry", "0s"],
            "--lease-retry must be longer than 0: write it like 2s",
        );
        check(
            &["--batch-idle", "2s"],
            "--batch-idle 2s must not be longer than --batch-max 1s",
        );
        check(
            &["--poll-interval", "0s"],
            "--poll-interval must be longer than 0: write it like 10s",
        );
    }
}
