//! What makes metrics: a registry that notes what people read of them, series that come and go, and the requests to Proxmox, which more than one part
//! counts.

mod register;
mod requests;
mod table;

pub use register::{Described, Register};
pub use requests::{ClusterRequests, Requests};
pub use table::{Present, Rows, Table};
