//! What tests of the judge share.

use super::*;

/// Nothing is known beside the world.
#[derive(Default)]
pub(crate) struct Quiet {
    pub(crate) report: Report,
    lacking: BTreeMap<ClusterName, Lacking>,
    texts: BTreeMap<ClusterName, String>,
    paths: BTreeMap<Arc<str>, String>,
    refusals: BTreeMap<Arc<str>, Refusal>,
    unfit: Unfit,
    held_up: BTreeMap<ClaimName, Waits>,
}

impl Quiet {
    pub(crate) fn known(&self) -> Known<'_> {
        Known {
            report: &self.report,
            key_problem: None,
            lacking: &self.lacking,
            excess: &self.texts,
            unused: &self.texts,
            join_problems: &self.paths,
            refusals: &self.refusals,
            unfit: &self.unfit,
            held_up: &self.held_up,
            sees_books: true,
            now: Timestamp::UNIX_EPOCH,
        }
    }
}
