//! The command line: which commands there are. Their options are with what they call.

#[cfg(feature = "init")]
use clap::ValueEnum;
use clap::{Parser, Subcommand};
use kproxide_controller::args::Run;
#[cfg(feature = "init")]
use kproxide_tools::args::Init;
use kproxide_tools::args::{Crds, DoctorArgs, ExplainArgs, Format, PlanArgs, Policy, StatusArgs};
#[cfg(feature = "simulator")]
use kproxide_tools::args::{Demo, Simulate};

/// Scales a Kubernetes cluster across Proxmox VE, by policies that you can replace.
#[derive(Debug, Parser)]
#[command(
    name = "kproxide",
    version,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the autoscaler against the cluster that this pod or kubeconfig belongs to
    Run(Box<Run>),
    /// Show the autoscaler at work on a simulated Kubernetes and Proxmox: nothing to install or configure
    ///
    /// Load comes and goes, a server dies, a built-in policy is replaced. It shows about ten minutes in one minute.
    /// Kubernetes and Proxmox are simulated; the autoscaler and its policies are the real ones. In a terminal it draws a
    /// picture: space pauses, → goes to the next thing that happens, q ends. Elsewhere it prints lines. Both end with a
    /// summary.
    #[cfg(feature = "simulator")]
    Demo(Demo),
    /// Serve a simulated Proxmox VE, and a simulated Kubernetes, to other programs
    #[cfg(feature = "simulator")]
    #[command(subcommand)]
    Simulate(Simulate),
    /// Write what an installation needs: values for the chart, Secrets, and a page with the commands that come next
    ///
    /// It asks, shows each certificate before it sends anything to a server, and offers what Proxmox has. It reads Proxmox
    /// and Kubernetes, and writes one folder. It ends with what `kproxide doctor` finds.
    #[cfg(feature = "init")]
    Init(Box<Init>),
    /// Show what kproxide would do with the objects of files or of a cluster; it writes nothing
    ///
    /// It asks the controller's own planner and policies, once: a limit such as scaleDown.budget of a NodePool holds as
    /// in one tick. Pods without a Node count as pending. Deployments, StatefulSets, ReplicaSets,
    /// ReplicationControllers, Jobs and CronJobs make the pods that the input lacks. Without a NodePool, NodeClass or
    /// ProxmoxCluster one is assumed, and without an Inventory three large hypervisors: the output says so.
    Plan(Box<PlanArgs>),
    /// Say what becomes of one pod, Node, hypervisor, claim or pool, why, and what you can do
    ///
    /// Without -f and --from-cluster it asks the controller: it finds the replica that leads by its Lease, and asks it
    /// through the API server with your rights. If none leads or none answers, it computes the answer as
    /// `kproxide plan --from-cluster` does, and says so. The answer is in the first line.
    Explain(Box<ExplainArgs>),
    /// Show on one screen whether all is well, what there is, and what is on its way; it writes nothing
    ///
    /// It asks the controller as `kproxide explain` does, and lists the conditions of your objects. The first line says
    /// whether all is well, and if not, what to look at first.
    Status(Box<StatusArgs>),
    /// Say what keeps kproxide from making machines, with the line that mends it; it writes nothing
    ///
    /// It looks at your objects, at Proxmox, at the join scripts and at the Nodes, with your rights. In the pod of the
    /// controller it looks with those of the controller.
    Doctor(Box<DoctorArgs>),
    /// Print the CustomResourceDefinitions as YAML, or apply them to a cluster
    Crds(Crds),
    /// Tools for the authors of policies: list, check, run, test and pack them
    ///
    /// They run the policy of a file as the controller does: in a process of its own, with the same limits.
    #[command(subcommand)]
    Policy(Policy),
    /// Print a script that lets your shell complete commands and flags
    #[cfg(feature = "init")]
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell that runs the script
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Say which kproxide this is, for bug reports and scripts
    Version {
        /// Format of the output: JSON and YAML have `version`, `commit`, `target` and `wasmtime`
        #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
        output: Format,
        /// Print the licences of what this program is made of instead
        #[arg(long, conflicts_with = "output")]
        licenses: bool,
    },
}

#[cfg(feature = "init")]
const COMPLETIONS: &str = "\
For this shell session, in bash and in zsh:
  source <(kproxide completions bash)
  source <(kproxide completions zsh)
For all sessions of fish:
  kproxide completions fish > ~/.config/fish/completions/kproxide.fish";

/// Those that `kproxide completions` writes scripts for.
#[cfg(feature = "init")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn plan_needs_something_to_read_and_explain_asks_the_controller() {
        let parse =
            |text: &str| Cli::try_parse_from(["kproxide"].into_iter().chain(text.split(' ')));
        let refused = |text: &str| parse(text).unwrap_err().to_string();
        assert!(refused("plan").contains("--from-cluster"));
        parse("plan -f a --from-cluster").unwrap();
        let lease = |text: &str| match parse(text).unwrap().command {
            Command::Explain(args) => args.leader.lease,
            other => panic!("{other:?}"),
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(lease("explain pod a"), pair("kproxide", "kproxide"));
        assert_eq!(
            lease("explain pod a --lease ops/scaler"),
            pair("ops", "scaler")
        );
        for wrong in ["ops", "ops/..", "ops/a/b", "/a"] {
            let said = refused(&format!("explain pod a --lease {wrong}"));
            assert!(said.contains("NAMESPACE/NAME"), "{said}");
        }
        assert!(refused("explain pod a --admin http://a -f b").contains("--admin"));
        assert!(refused("explain pod a --admin http://a --compute").contains("--admin"));
    }

    #[test]
    fn an_unknown_flag_is_refused_by_name() {
        let error = Cli::try_parse_from(["kproxide", "run", "--min-nodes", "3"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--min-nodes"), "{error}");
    }

    #[test]
    fn a_bad_duration_names_flag_value_and_fix() {
        let error = Cli::try_parse_from(["kproxide", "run", "--poll-interval", "10"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--poll-interval") && error.contains("write it like 10s"),
            "{error}"
        );
    }

    #[test]
    fn a_duration_may_be_in_days_as_in_objects() {
        let cli = Cli::try_parse_from(["kproxide", "run", "--quarantine", "7d"]).unwrap();
        let Command::Run(run) = cli.command else {
            panic!("{cli:?}");
        };
        assert_eq!(run.timing.quarantine.as_secs(), 7 * 24 * 60 * 60);
    }

    #[test]
    fn an_absurd_duration_is_refused_before_it_is_added_to_a_clock() {
        let error = Cli::try_parse_from(["kproxide", "run", "--poll-interval", "99999999999999h"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than a year"), "{error}");
    }

    #[test]
    fn the_service_of_systemd_starts_kproxide_with_flags_that_there_are() {
        let unit = include_str!("../../../examples/systemd/kproxide.service");
        let command = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let words = command.unwrap().split(' ');
        let Command::Run(run) = Cli::try_parse_from(words).unwrap().command else {
            panic!("{command:?}");
        };
        assert_eq!(run.admin_address.to_string(), "127.0.0.1:8080");
    }
}
