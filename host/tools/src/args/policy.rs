//! `kproxide policy`: tools for the authors of policies.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kproxide_planner::facts::PolicyKind;

use super::{Connection, Format, Leader};

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Show the policies that there are, their settings, digests and files, and what policies are asked
    #[command(subcommand)]
    Show(Show),
    /// Make a folder with a policy in your language, that builds and works
    ///
    /// It has all that the policy is built of, a test, and a README with the next commands.
    #[cfg(feature = "init")]
    New(New),
    /// Say what a policy is, and whether kproxide would take it
    ///
    /// It loads the policy as the controller does, shows it the settings, and asks it the questions of the self-test.
    Check(Check),
    /// Ask a policy, and show its answer with reasons, log lines, instructions and time
    Run(Run),
    /// Hold a policy to the answers that a folder has for it, and to what holds for every policy
    ///
    /// NAME.facts.yaml is a case (`kproxide policy show facts` writes one), NAME.expected.yaml the answer that is expected. In
    /// addition generated questions about 0, 1 and 1000 hypervisors must get an answer, twice the same, and the same
    /// whatever the order of the hypervisors.
    Test(Test),
    /// Measure how many instructions and how much time a policy needs for 10, 100 and 1000 hypervisors
    Bench(Bench),
    /// Print a ConfigMap with a policy, compressed; first make the policy of a core module
    ///
    /// The first lines say how large it is, and how to apply it. A core module is what Go, C or Rust build for WASI preview 1:
    /// what it writes to standard error becomes lines of the policy's log. It sees no files, no environment and no network; its
    /// clock begins at 0, and its random numbers are the same in each call.
    Pack(Pack),
    /// Say which decisions of a controller another policy would have made otherwise, and what each hypervisor would carry
    Replay(Box<Replay>),
}

/// What is shown.
#[derive(Debug, Subcommand)]
pub enum Show {
    /// List the built-in policies, and those of your folders
    List(List),
    /// Show the settings of a policy as a table, from its schema
    Settings(Settings),
    /// Print the SHA-256 of a policy, as claims, Events and metrics have it
    Digest(Digest),
    /// Print what policies are asked about a cluster, as facts for `run` and `test`
    ///
    /// With --from it plans a world of files, with --from-cluster the world of the replica that leads, and prints each
    /// question that it asks a policy meanwhile. Without either it prints the questions of the self-test: they are short,
    /// and good to begin with. `policies/README.md` describes the format.
    Facts(Box<Facts>),
    /// Write the built-in policies as NAME.wasm into a folder
    Files {
        /// The folder; kproxide creates it if it does not exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// A policy and its settings.
#[derive(Debug, Args)]
pub struct Subject {
    /// A file NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, or the name of a built-in policy
    #[arg(value_name = "FILE|NAME")]
    pub policy: String,
    /// File with the settings in YAML or JSON, as in a NodePool under `settings`; default: none
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
}

/// What a policy may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    HostSelection,
    ScaleDown,
    Labels,
}

#[derive(Debug, Args)]
pub struct New {
    /// Name of the policy and of its folder: lower-case letters, digits and dashes
    pub name: String,
    /// What the policy decides: the server of a machine, the Node to remove, or the labels of a Node
    #[arg(long, value_enum, default_value_t = Kind::HostSelection, value_name = "KIND")]
    pub kind: Kind,
    /// Language of the policy
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    pub lang: Language,
    /// Folder in which the folder NAME is made; it must be there
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub into: PathBuf,
}

/// In which a new policy is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    Js,
    Go,
    C,
    Python,
}

impl From<Kind> for PolicyKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::HostSelection => Self::HostSelection,
            Kind::ScaleDown => Self::ScaleDown,
            Kind::Labels => Self::Labels,
        }
    }
}

#[derive(Debug, Args)]
pub struct List {
    /// Folder with your policies, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// Format of the output: JSON and YAML have a list with `name`, `kinds`, `version`, `description`, `bytes`, `digest`,
    /// `file` and `refused`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = CHECK_CODES)]
pub struct Check {
    #[command(flatten)]
    pub subject: Subject,
    /// Format of the output: JSON and YAML have `ok`, `problems`, `use`, `about`, `digest`, `bytes`, `unpackedBytes`,
    /// `settings`, `selfTests` and `log`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

const CHECK_CODES: &str = "\
Exit codes: 0 kproxide would take it; 1 it would not; 2 there is no such file. `kproxide --help` lists all exit codes.";

#[derive(Debug, Args)]
pub struct Facts {
    /// File or folder with what `kproxide plan -f` takes, or an answer of /debug/plan or /debug/decisions; `-` is standard
    /// input. May be given several times
    #[arg(long, value_name = "FILE|DIR|-", conflicts_with = "from_cluster")]
    pub from: Vec<PathBuf>,
    /// Ask the controller: the replica that leads. If none leads or none answers, plan what the cluster lists
    #[arg(long)]
    pub from_cluster: bool,
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub leader: Leader,
    /// Ask the controller at this address, such as that of a `kubectl port-forward`, and not through the API server
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    pub admin: Option<String>,
    /// Plan for this moment, such as 2026-01-05T08:00:00Z; default: now, or the moment of the /debug/plan answer
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// Folder with your policies, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// Print the questions to policies of this kind alone
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Print the questions for this NodePool alone
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// Write each question into a file NUMBER-KIND-POOL.facts.yaml of this folder instead, as cases for `kproxide policy
    /// test`
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Format of the output. YAML is the text that `run` and `test` read; JSON is a list of the same
    #[arg(short, long, value_enum, default_value_t = Format::Yaml, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_CODES)]
pub struct Run {
    #[command(flatten)]
    pub subject: Subject,
    /// File with facts, as `kproxide policy show facts` prints them; default: the questions of the self-test
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// Format of the output: JSON and YAML have a list with `kind`, `pool`, `instanceType`, `candidates`, `noAnswer`,
    /// `failure`, `log`, `instructions` and `microseconds`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

const RUN_CODES: &str = "\
Without --settings a policy gets the settings that stand in the facts.

Exit codes: 0 it has answered; 1 it has failed, or kproxide would not take it. `kproxide --help` lists all exit codes.";

#[derive(Debug, Args)]
#[command(after_help = TEST_CODES)]
pub struct Test {
    /// The folder with the cases
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The policy: a file, or the name of a built-in policy; default: the one .wasm file in the folder
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: Option<String>,
    /// File with the settings for the generated questions; default: none. A case has its own settings
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Write what the policy answers now into the expected files
    #[arg(long)]
    pub update: bool,
    /// Format of the output: JSON and YAML have `ok`, `cases` and `properties`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

const TEST_CODES: &str =
    "Exit codes: 0 all is as it should be; 1 it is not. `kproxide --help` lists all exit codes.";

#[derive(Debug, Args)]
pub struct Bench {
    #[command(flatten)]
    pub subject: Subject,
    /// Format of the output: JSON and YAML have a list with `kind`, `candidates`, `instructions`, `microseconds` and `calls`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct Pack {
    /// A file NAME.wasm, NAME.wasm.gz or NAME.wasm.zst with a policy or a core module, or the name of a built-in policy
    #[arg(value_name = "FILE|NAME")]
    pub policy: String,
    /// Write the policy into this file, for example mine.wasm, and print no ConfigMap
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "namespace", "output"])]
    pub into: Option<PathBuf>,
    /// Name of the ConfigMap; default: that of the policy
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Namespace of the ConfigMap: that of kproxide
    #[arg(short, long, default_value = "kproxide", value_name = "NAME")]
    pub namespace: String,
    /// Format of the output: the ConfigMap as YAML or JSON; JSON has no lines about its size
    #[arg(short, long, value_enum, default_value_t = Format::Yaml, value_name = "FORMAT")]
    pub output: Format,
}

const REPLAY_CODES: &str = "\
Where the policy fails, kproxide does what it does then: for host-selection the built-in `spread` answers.

Exit codes: 0 it has answered; 1 it has failed, or kproxide would not take it. `kproxide --help` lists all exit codes.";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_CODES)]
pub struct Replay {
    /// The policy that is tried: a file, or the name of a built-in policy
    #[arg(long, value_name = "FILE|NAME")]
    pub policy: String,
    /// File with its settings in YAML or JSON; default: those that the policy of the decision had
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Which decisions it makes; default: all that it answers
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Option<Kind>,
    /// Make the decisions for this NodePool alone
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// Folder with the policies that decide today, as of `kproxide run`. May be given several times
    #[arg(long, value_name = "DIR")]
    pub policy_dir: Vec<PathBuf>,
    /// For files with objects: plan for this moment, such as 2026-01-05T08:00:00Z; default: now
    #[arg(long, value_name = "TIME")]
    pub now: Option<jiff::Timestamp>,
    /// An answer of /debug/decisions or /debug/plan, or a file or folder that `kproxide plan -f` takes. May be given several
    /// times; an answer of /debug/decisions alone
    #[arg(value_name = "FILE|DIR", required = true)]
    pub file: Vec<PathBuf>,
    /// Format of the output: JSON and YAML have `policy`, `changed`, `failed`, `withoutFacts`, `decisions` and `hypervisors`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Debug, Args)]
pub struct Digest {
    /// A file NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, or the name of a built-in policy
    #[arg(value_name = "FILE|NAME")]
    pub policy: String,
}

#[derive(Debug, Args)]
pub struct Settings {
    /// A file NAME.wasm, NAME.wasm.gz or NAME.wasm.zst, or the name of a built-in policy
    #[arg(value_name = "FILE|NAME")]
    pub policy: String,
    /// Format of the output: JSON and YAML have `name`, `version`, `description` and a list `settings` with `path`, `type`,
    /// `default`, `required` and `description`
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
}
