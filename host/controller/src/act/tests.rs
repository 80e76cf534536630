//! The shell on the simulated Proxmox and Kubernetes: whole lives of claims, with a crash at every request.

mod lab;

mod guest;

mod lives;

mod others;

mod joins;

mod drains;

mod breaking;

mod panics;

mod rests;

mod clones;
mod crashes;
