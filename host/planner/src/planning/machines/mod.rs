//! Machines as pods will see them: what each will offer, and what real ones have shown.

pub(in crate::planning) mod believed;
pub(in crate::planning) mod csi;
pub(in crate::planning) mod learned;
pub(crate) mod shape;
