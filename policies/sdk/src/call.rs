//! One function per export: from the facts and the settings' text to the author's plain function. The component and a
//! native caller (a test, or the native twin in a benchmark) run exactly this.

use crate::{
    Candidate, Context, Decoration, HostSelection, Hypervisor, Info, Labels, Machine, Node, Plan,
    Policy, PolicyError, Ranking, Request, ScaleDown, Settings,
};

/// The export `describe`.
pub fn describe<P: Policy>() -> Info {
    let about = P::ABOUT;
    Info {
        name: about.name.to_owned(),
        version: about.version.to_owned(),
        description: about.description.to_owned(),
        settings_schema: about.settings_schema.to_owned(),
    }
}

/// The export `check-settings`.
///
/// # Errors
/// [`PolicyError::InvalidSettings`], from reading them or from [`Policy::check`].
pub fn check_settings<P: Policy>(json: &str) -> Result<(), PolicyError> {
    P::check(&P::Settings::parse(json)?)
}

/// The export `host-selection.rank`.
///
/// # Errors
/// As [`HostSelection::rank`]; settings that do not parse.
pub fn rank<P: HostSelection>(
    context: &Context,
    request: &Request,
    candidates: &[Candidate],
) -> Result<Ranking, PolicyError> {
    P::rank(
        context,
        &P::Settings::parse(&context.settings)?,
        request,
        candidates,
    )
}

/// The export `scale-down.order`.
///
/// # Errors
/// As [`ScaleDown::order`]; settings that do not parse.
pub fn order<P: ScaleDown>(
    context: &Context,
    pool: &str,
    nodes: &[Node],
    hypervisors: &[Candidate],
    max_removals: u32,
) -> Result<Plan, PolicyError> {
    P::order(
        context,
        &P::Settings::parse(&context.settings)?,
        pool,
        nodes,
        hypervisors,
        max_removals,
    )
}

/// The export `labels.decorate`.
///
/// # Errors
/// As [`Labels::decorate`]; settings that do not parse.
pub fn decorate<P: Labels>(
    settings: &str,
    machine: &Machine,
    hypervisors: &[Hypervisor],
) -> Result<Vec<Decoration>, PolicyError> {
    P::decorate(&P::Settings::parse(settings)?, machine, hypervisors)
}
