//! What an author implements: [`Policy`] and the trait of one kind of question.

use crate::{
    Candidate, Context, Decoration, Hypervisor, Machine, Node, Plan, PolicyError, Ranking, Request,
    Settings,
};

/// What a policy says of itself.
pub struct About {
    /// By convention the name of the `.wasm` file.
    pub name: &'static str,
    /// The author's version, for example `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
    /// One line: what it prefers.
    pub description: &'static str,
    /// JSON Schema of the settings, or empty.
    pub settings_schema: &'static str,
}

/// What all kinds of policy have in common: a name and settings.
pub trait Policy {
    const ABOUT: About;

    /// What an operator may set: [`NoSettings`](crate::NoSettings), or a type of the author's.
    type Settings: Settings;

    /// What serde cannot see, such as a number out of range. Called when the settings are loaded or changed.
    ///
    /// # Errors
    /// [`PolicyError::InvalidSettings`], whose text names the field, the value and what would be right.
    fn check(settings: &Self::Settings) -> Result<(), PolicyError> {
        let _ = settings;
        Ok(())
    }
}

/// On which hypervisor shall this machine be made?
pub trait HostSelection: Policy {
    /// Scores the eligible candidates; the highest score is tried first, unless the pods prefer another server.
    ///
    /// # Errors
    /// [`PolicyError::NoCandidate`] when the policy wants nothing placed now; [`PolicyError::Internal`] for a defect, upon
    /// which kproxide falls back to its built-in `spread`.
    fn rank(
        context: &Context,
        settings: &Self::Settings,
        request: &Request,
        candidates: &[Candidate],
    ) -> Result<Ranking, PolicyError>;
}

/// Which of one pool's removable nodes shall go first?
pub trait ScaleDown: Policy {
    /// Scores the nodes that shall go; the highest score goes first, nodes left out stay.
    ///
    /// # Errors
    /// Any [`PolicyError`]; nothing is removed then.
    fn order(
        context: &Context,
        settings: &Self::Settings,
        pool: &str,
        nodes: &[Node],
        hypervisors: &[Candidate],
        max_removals: u32,
    ) -> Result<Plan, PolicyError>;
}

/// Which labels, annotations and taints does a machine get on each hypervisor?
pub trait Labels: Policy {
    /// One decoration per hypervisor, in their order. The answer is cached: it must depend on the arguments alone.
    ///
    /// # Errors
    /// Any [`PolicyError`]; no machine of this pool and type is made until it is repaired, and the text says why.
    fn decorate(
        settings: &Self::Settings,
        machine: &Machine,
        hypervisors: &[Hypervisor],
    ) -> Result<Vec<Decoration>, PolicyError>;
}
