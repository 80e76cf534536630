//! kproxide: a node autoscaler for Kubernetes on Proxmox VE.

pub mod kube;
